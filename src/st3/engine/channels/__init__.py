"""Remove dead channels: channels that are constant, and channels that no step reads.

A filter of zeros makes a constant channel, which the biases of its readers can absorb. A channel for which all readers
have zero weights need not be computed. Channels that are tied (through additions, pooling, depthwise convolutions) are
removed together or not at all.

    axes        the channel axis of every value
    constants   which channels are constant, and their values
    ties        which channels are tied, and which are needed
    removal     weights, biases and shapes without the dead channels
"""

from .removal import drop_dead_channels

__all__ = ["drop_dead_channels"]
