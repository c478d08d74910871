"""A program: the steps in execution order, and the shape of every value."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from .step import Shape, Step

__all__ = ["Program"]


@dataclass(frozen=True, kw_only=True)
class Program:
    """The steps, the shape of every value, and the names of the inputs and outputs."""

    steps: tuple[Step, ...]
    shapes: dict[str, Shape] = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def readers(self, value: str) -> tuple[Step, ...]:
        """Return the steps that read a value."""
        return tuple(step for step in self.steps if value in step.sources)

    def count_reads(self) -> Counter[str]:
        """Return how often each value is read, by steps and as an output."""
        return Counter([*(source for step in self for source in step.sources), *self.outputs])

    def with_steps(self, steps: Sequence[Step]) -> "Program":
        """Return the program with these steps, and the shapes of their values only."""
        made = {*self.inputs, *(step.target for step in steps)}
        shapes = {name: shape for name, shape in self.shapes.items() if name in made}
        return replace(self, steps=tuple(steps), shapes=shapes)

    def without_unread_steps(self) -> "Program":
        """Return the program without steps whose value is never read."""
        needed, steps = set(self.outputs), []
        for step in reversed(self.steps):
            if step.target in needed:
                needed.update(step.sources)
                steps.append(step)
        return self.with_steps(steps[::-1])
