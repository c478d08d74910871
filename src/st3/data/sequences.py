"""A text as a data set: sequences of the same length, each with the character that follows every one of its own."""

import torch
from torch import Tensor

from .examples import Examples

__all__ = ["Sequences"]


class Sequences(Examples):
    """All sequences of `context` characters in a text, which is given as numbers.

    They follow one another without a gap; what is left over at the end is not used. Augmenting moves a sequence to the
    right by less than its length, so that an epoch passes over the whole text and every place can be a beginning.
    """

    def __init__(self, text: Tensor, context: int) -> None:
        if context < 1 or len(text) < context + 1:
            raise ValueError(
                f"sequences of {context} characters and the one after them do not fit in {len(text)} characters"
            )
        self.text, self.context = text, context
        self.device = text.device

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw for each sequence how far it is moved."""
        return torch.randint(self.context, (count, 1), generator=generator)

    def batch(self, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return characters (n, context) as numbers, and the character after each."""
        first = indices * self.context
        if draws is not None:
            first = (first + draws[:, 0]).clamp_(max=len(self.text) - self.context - 1)
        places = first.unsqueeze(1) + torch.arange(self.context + 1)
        rows = self.text[places.to(self.device)].long()
        return rows[:, :-1], rows[:, 1:]

    def to(self, device: torch.device | str) -> "Sequences":
        return Sequences(self.text.to(device), self.context)
