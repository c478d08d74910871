"""Dead channels removed: those that are constant, and those that nobody reads.

A filter of zeros makes a channel that is the same number everywhere; that number can go into the biases of the layers
that read it. A channel whose readers have nothing but zeros for it need not be computed. Channels that belong together
(through additions, pooling, depthwise convolutions) are removed together or not at all.

    axes        which axis of a value its channels lie on
    constants   forward: which channels are constant, and what they are
    ties        which channels must stay or go together, and which are needed
    removal     weights, biases and shapes without the others
"""

from .removal import drop_dead_channels

__all__ = ["drop_dead_channels"]
