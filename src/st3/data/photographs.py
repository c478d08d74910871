"""Pictures as files, decoded with Pillow when a batch is made."""

import os
import warnings
from pathlib import Path
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .crops import central_box, random_box, short_side_size
from .errors import DataError
from .pictures import Pictures

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Photographs", "import_pillow"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet: red, green, blue between 0 and 1
MAX_SEED = 2**63 - 1
MAX_PIXELS = 2**27  # of a picture that is scaled by its short side


def import_pillow() -> ModuleType:
    """Return Pillow's module Image, or say how to install it."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError("reading pictures needs Pillow: pip install 'st3[image]'") from None
    return Image


class Photographs(Pictures):
    """Picture files of any size, at `paths` under `root`, made into squares of `side` pixels.

    Training sees a random part of a picture, mirrored half of the time. Evaluation sees the centre, after the short
    side was scaled to `resize`.
    """

    def __init__(self, root: Path, paths: list[str], labels: Tensor, *, side: int, resize: int) -> None:
        self.root, self.labels = root, labels
        self.side, self.resize = side, resize
        # One array, because every worker would copy a list of a million strings as it counts references to them.
        self._paths = np.array([os.fsencode(path) for path in paths], dtype=np.bytes_)

    def path(self, index: int) -> Path:
        """Return the file of picture number `index`."""
        return self.root / os.fsdecode(self._paths[index])

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw one seed per picture: it determines the part and the mirroring once the picture's size is known."""
        return torch.randint(MAX_SEED, (count,), generator=generator)

    def batch(self, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        pixels = np.empty((len(indices), self.side, self.side, 3), dtype=np.uint8)
        seeds = [None] * len(indices) if draws is None else draws.tolist()
        for row, index, seed in zip(pixels, indices.tolist(), seeds, strict=True):
            row[:] = np.asarray(self._read(self.path(index), seed))
        pictures = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().float()
        mean, std = (255 * torch.tensor(values).view(-1, 1, 1) for values in (MEAN, STD))
        return pictures.sub_(mean).div_(std), self.labels[indices]

    def _read(self, path: Path, seed: int | None) -> "Image.Image":
        image = import_pillow()
        try:
            # Pillow's warnings are about metadata, not about pixels.
            with warnings.catch_warnings(action="ignore"), image.open(path) as file:
                return self._crop(image, _to_rgb(file), seed)
        except Exception as error:  # every format raises different errors for a damaged file
            reason = f"{type(error).__name__}: {error}"
            raise DataError(f"{path} cannot be read as a picture ({reason}); replace or delete it") from None

    def _crop(self, image: Any, picture: "Image.Image", seed: int | None) -> "Image.Image":
        side, bilinear = self.side, image.Resampling.BILINEAR
        if seed is None:
            size = short_side_size(*picture.size, self.resize)
            if size[0] * size[1] > MAX_PIXELS:
                raise ValueError(
                    f"{picture.size[0]}x{picture.size[1]} pixels are too long and narrow to be scaled"
                )
            return picture.resize(size, bilinear).crop(central_box(*size, side))
        random = Random(seed)
        part = picture.crop(random_box(*picture.size, random)).resize((side, side), bilinear)
        return part.transpose(image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else part


def _to_rgb(picture: "Image.Image") -> "Image.Image":
    if picture.mode.startswith("I"):  # 16-bit grey, which Pillow would clip to white
        picture = import_pillow().fromarray((np.asarray(picture) // 256).clip(0, 255).astype(np.uint8))
    if picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")
    return picture.convert("RGB")
