"""The arena: one block of memory whose buffers overlap where their values are never needed at the same time."""

from dataclasses import dataclass

__all__ = ["SLACK", "Buffer", "assign_offsets"]

ALIGNMENT = 16  # floats: a cache line
SLACK = 64  # floats after the last buffer


@dataclass(eq=False)
class Buffer:
    """A range of floats in the arena, needed from operation `first` to operation `last`."""

    size: int
    first: int = -1
    last: int = -1
    offset: int = -1

    def mark_used(self, step: int) -> None:
        self.first = step if self.first < 0 else min(self.first, step)
        self.last = max(self.last, step)


def assign_offsets(buffers: list[Buffer]) -> int:
    """Give every buffer the lowest free offset, largest buffers first; return the floats needed."""
    placed: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda each: -each.size):
        overlapping = [other for other in placed if other.first <= buffer.last and buffer.first <= other.last]
        offset = 0
        for other in sorted(overlapping, key=lambda each: each.offset):
            if offset + buffer.size <= other.offset:
                break
            offset = max(offset, -(-(other.offset + other.size) // ALIGNMENT) * ALIGNMENT)
        buffer.offset = offset
        placed.append(buffer)
    return max((each.offset + each.size for each in placed), default=0)
