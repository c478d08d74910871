"""CIFAR-10 and CIFAR-100 (A. Krizhevsky, 2009), from the published archives or the folders unpacked from them.

Both are normalised by the mean and standard deviation of CIFAR-10, as in the authors' program.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .archive import Archive, Content
from .catalogue import DATASETS
from .errors import DataError
from .examples import Splits
from .in_memory import InMemory, Padding
from .restricted_pickle import load_plain

__all__ = ["cifar10", "cifar100"]

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Layout:
    """Where an archive keeps its pictures, labels and class names."""

    archive: Archive
    train: tuple[str, ...]  # files
    test: str  # file
    meta: str  # file with the class names
    labels: str  # key in the files of pictures
    names: str  # key in the file of class names
    classes: int  # how many
    held_out: int = 5_000  # training pictures, for validation


CIFAR10 = Layout(
    Archive(
        name="cifar10",
        address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        folder="cifar-10-batches-py",
        files={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        },
    ),
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels="labels",
    names="label_names",
    classes=10,
)

CIFAR100 = Layout(
    Archive(
        name="cifar100",
        address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        folder="cifar-100-python",
        files={
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
            "meta": "7973b15100ade9c7d40fb424638fde48",
        },
    ),
    train=("train",),
    test="test",
    meta="meta",
    labels="fine_labels",
    names="fine_label_names",
    classes=100,
)


@DATASETS.register("cifar10", model="resnet20", recipe="cifar")
def cifar10(
    directory: Path | None = None, *, download: bool = False, padding: Padding = "zero", augment: bool = True
) -> Splits:
    """Read CIFAR-10: 45,000 pictures to train, the last 5,000 of the training files to validate, 10,000 to test.

    `directory` is, or holds, cifar-10-batches-py or cifar-10-python.tar.gz; None means st3's cache. Augmenting pads a
    picture by 4 pixels (`padding`: "zero" or "edge"), takes a random crop, and mirrors half of the pictures.
    """
    return _read_splits(CIFAR10, directory, download, padding, augment)


@DATASETS.register("cifar100", model="resnet20", recipe="cifar")
def cifar100(
    directory: Path | None = None, *, download: bool = False, padding: Padding = "zero", augment: bool = True
) -> Splits:
    """Read CIFAR-100 with its 100 fine classes; everything else is as for CIFAR-10.

    `directory` is, or holds, cifar-100-python or cifar-100-python.tar.gz; None means st3's cache.
    """
    return _read_splits(CIFAR100, directory, download, padding, augment)


def _read_splits(
    layout: Layout, directory: Path | None, download: bool, padding: Padding, augment: bool
) -> Splits:
    parts: dict[str, tuple[Tensor, Tensor]] = {}
    classes: tuple[str, ...] = ()
    for content in layout.archive.read(directory, download):
        if content.name == layout.meta:
            classes = _read_class_names(content, layout)
        else:
            parts[content.name] = _read_pictures(content, layout)

    def pictures(pixels: Tensor, labels: Tensor) -> InMemory:
        shift = 4 if augment else 0
        return InMemory(pixels, labels, mean=MEAN, std=STD, shift=shift, flip=augment, padding=padding)

    pixels, labels = (torch.cat(tensors) for tensors in zip(*map(parts.pop, layout.train), strict=True))
    cut = len(labels) - layout.held_out
    return Splits(
        name=layout.archive.name,
        train=pictures(pixels[:cut], labels[:cut]),
        validation=pictures(pixels[cut:], labels[cut:]),
        test=pictures(*parts[layout.test]),
        classes=classes,
        shape=SHAPE,
    )


def _read_pictures(content: Content, layout: Layout) -> tuple[Tensor, Tensor]:
    table = _read_table(content)
    pixels, labels = table.get("data"), table.get(layout.labels)
    if not (
        isinstance(pixels, np.ndarray)
        and pixels.dtype == np.uint8
        and isinstance(labels, list)
        and pixels.shape == (len(labels), np.prod(SHAPE))
    ):
        raise DataError(
            f"{content.place} does not hold pictures of 3×32×32 bytes with {layout.labels}; download it again"
        )
    if not set(labels) <= set(range(layout.classes)):
        raise DataError(f"{content.place} has labels beyond its {layout.classes} classes; download it again")
    return torch.from_numpy(pixels.reshape(-1, *SHAPE)), torch.tensor(labels)


def _read_class_names(content: Content, layout: Layout) -> tuple[str, ...]:
    names = _read_table(content).get(layout.names)
    if not isinstance(names, list) or len(names) != layout.classes:
        found = len(names) if isinstance(names, list) else "no"
        raise DataError(
            f"{content.place} names {found} classes, expected {layout.classes}; download it again"
        )
    return tuple(_decode(name) for name in names)


def _read_table(content: Content) -> dict[str, Any]:
    """Return the dictionary in the file, with keys as text (they are bytes if Python 2 wrote them)."""
    table = load_plain(content.data, content.place)
    return {_decode(key): value for key, value in table.items()} if isinstance(table, dict) else {}


def _decode(name: Any) -> str:
    return name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)
