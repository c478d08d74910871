"""What a network has that writes text: a decoder, which reads on from call to call."""

from typing import Protocol, runtime_checkable

from torch import nn

__all__ = ["HasDecoder"]


@runtime_checkable
class HasDecoder(Protocol):
    """A network that scores the next character at every place of a sequence, and can do so one call at a time."""

    def decoder(self) -> nn.Module:
        """Return the network with a cache in buffers.

        It takes the next characters (1, n) and their positions (n,), and returns scores (1, n, vocabulary).
        """
        ...
