"""Small pictures, all held in memory as bytes; a batch is cropped, mirrored and normalised as one tensor."""

import copy
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from .pictures import Pictures

__all__ = ["InMemory", "Padding"]

Padding = Literal["zero", "edge"]


class InMemory(Pictures):
    """Pictures (n, c, h, w) as bytes from 0 to `largest`.

    Augmenting shifts a picture by up to `shift` pixels and, with `flip`, mirrors half of the pictures. The pixels that
    a shift uncovers are black (`padding` "zero") or repeat the border ("edge"). `mean` and `std` are per channel, for
    pixels between 0 and 1.
    """

    def __init__(
        self,
        pixels: Tensor,
        labels: Tensor,
        *,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        shift: int = 0,
        flip: bool = False,
        padding: Padding = "zero",
        largest: int = 255,
    ) -> None:
        if padding not in ("zero", "edge"):
            raise ValueError(f"padding must be 'zero' or 'edge', got {padding!r}")
        self.pixels = pixels.contiguous()
        self.labels = labels.long()
        self.shift, self.flip, self.padding = shift, flip, padding
        self._mean = largest * torch.tensor(mean).view(-1, 1, 1)
        self._std = largest * torch.tensor(std).view(-1, 1, 1)
        self._labels = self.labels  # on the device of the pixels

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw for each picture the offset of its crop (down, right) and whether it is mirrored (0 or 1)."""
        offsets = torch.randint(2 * self.shift + 1, (count, 2), generator=generator)
        mirrored = torch.randint(1 + self.flip, (count, 1), generator=generator)
        return torch.cat([offsets, mirrored], dim=1)

    def batch(self, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        indices = _move(indices, self.device)
        # index_select copies whole pictures and is many times faster than indexing with brackets.
        pixels = self.pixels.index_select(0, indices)
        if draws is not None:
            down, right, mirrored = _move(draws, self.device).unbind(1)
            if self.shift:
                pixels = crop(self._pad(pixels), down, right, pixels.shape[2:])
            if self.flip:
                pixels = mirror(pixels, mirrored)
        return pixels.float().sub_(self._mean).div_(self._std), self._labels.index_select(0, indices)

    def _pad(self, pixels: Tensor) -> Tensor:
        if self.padding == "zero":
            return F.pad(pixels, [self.shift] * 4)
        for dim in (2, 3):
            size = pixels.shape[dim]
            border = torch.arange(-self.shift, size + self.shift, device=self.device).clamp(0, size - 1)
            pixels = pixels.index_select(dim, border)
        return pixels

    def to(self, device: torch.device | str) -> "InMemory":
        moved = copy.copy(self)
        moved.pixels, moved._labels = self.pixels.to(device), self._labels.to(device)
        moved._mean, moved._std = self._mean.to(device), self._std.to(device)
        moved.device = moved.pixels.device
        return moved


def crop(pixels: Tensor, down: Tensor, right: Tensor, size: torch.Size) -> Tensor:
    """Cut a window of `size` out of each picture (n, c, h, w), its upper left corner at (down, right)."""
    count, channels, height, width = pixels.shape
    rows, columns = size
    plane = torch.arange(count * channels, device=pixels.device).view(count, channels, 1) * (height * width)
    start = (down.view(-1, 1, 1) + torch.arange(rows, device=pixels.device)) * width + right.view(-1, 1, 1)
    # The view holds every run of `columns` bytes in memory; those that are rows of a window are selected.
    runs = pixels.flatten().unfold(0, columns, 1) if count else pixels.new_empty(0, columns)
    return runs.index_select(0, (plane + start).flatten()).view(count, channels, rows, columns)


def mirror(pixels: Tensor, mirrored: Tensor) -> Tensor:
    """Flip each picture (n, c, h, w) whose entry in `mirrored` is 1 left to right."""
    both = torch.cat([pixels, pixels.flip(3)])
    return both.index_select(0, torch.arange(len(pixels), device=pixels.device) + len(pixels) * mirrored)


def _move(numbers: Tensor, device: torch.device) -> Tensor:
    """Copy to the device; to a GPU from pinned memory, so that nothing waits for it."""
    if device.type != "cuda" or numbers.device.type == "cuda":
        return numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)
