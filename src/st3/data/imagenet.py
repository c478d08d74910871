"""ImageNet, or any pictures that lie in class folders train/CLASS/ and val/CLASS/.

The labels of ImageNet's own test set are not public, so results are reported on val/. By default val/ is what
validation looks at too: a model chosen by its best epoch there is then reported on the pictures that it was chosen
by, and looks a little better than it is. The option `validation` takes that many training pictures instead, and
leaves val/ untouched until the test.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .catalogue import DATASETS
from .errors import DataError
from .folder_index import Listing, index
from .photographs import Photographs, pillow
from .pictures import Splits

__all__ = ["imagenet"]


@DATASETS.register("imagenet")
def imagenet(
    directory: Path | None = None,
    *,
    download: bool = False,
    validation: int = 0,
    side: int = 224,
    resize: int = 256,
) -> Splits:
    """Read the pictures in the class folders of `directory`/train and `directory`/val; the classes may be any.

    Training takes a random part of 8 to 100 % of a picture, scales it to `side` and mirrors every other; evaluation
    scales the short side to `resize` and takes the centre. `validation` pictures, evenly spaced over the training
    pictures of every class, are held out; with 0, validation and test are both val/, which flatters the test.
    """
    if not 1 <= side <= resize:
        raise ValueError(f"side must be at least 1 and at most resize, got side={side} and resize={resize}")
    root = _root(directory, download)
    pillow()
    listings = index(root, ("train", "val"))
    classes = _same_classes(root, listings)
    names, labels = _rows("train", listings["train"])
    is_held_out = _every_nth(len(labels), validation, labels, len(classes))

    def part(names: list[str], labels: Tensor) -> Photographs:
        return Photographs(root, names, labels, side=side, resize=resize)

    def chosen(mask: Tensor) -> Photographs:
        return part([name for name, is_in in zip(names, mask.tolist(), strict=True) if is_in], labels[mask])

    test = part(*_rows("val", listings["val"]))
    return Splits(
        name="imagenet",
        train=chosen(~is_held_out),
        validation=chosen(is_held_out) if validation else test,
        test=test,
        classes=classes,
        shape=(3, side, side),
    )


def _root(directory: Path | None, download: bool) -> Path:
    if download:
        raise DataError(
            "imagenet cannot be downloaded by a program: register at https://image-net.org, "
            "then give the directory with train/ and val/"
        )
    if directory is None:
        raise DataError("imagenet needs a directory that holds train/ and val/ with a folder per class")
    return Path(directory)


def _same_classes(root: Path, listings: dict[str, Listing]) -> tuple[str, ...]:
    train, val = (set(listings[part]) for part in ("train", "val"))
    faults = [
        f"{', '.join(sorted(names)[:5])}{f' and {len(names) - 5} more' * (len(names) > 5)} only in {part}/"
        for part, names in (("train", train - val), ("val", val - train))
        if names
    ]
    if faults:
        raise DataError(
            f"{root} must have the same classes in train/ and val/, but has {' and '.join(faults)}; "
            "move or delete these folders"
        )
    return tuple(sorted(train))


def _rows(part: str, listing: Listing) -> tuple[list[str], Tensor]:
    """Return path and label of every picture, class by class."""
    classes = sorted(listing)
    names = [f"{part}/{name}/{picture}" for name in classes for picture in listing[name]]
    counts = torch.tensor([len(listing[name]) for name in classes])
    return names, torch.arange(len(classes)).repeat_interleave(counts)


def _every_nth(total: int, held_out: int, labels: Tensor, classes: int) -> Tensor:
    """Mark `held_out` of the pictures, evenly spaced, so that every class gives its share."""
    if held_out < 0:
        raise ValueError(f"validation must be at least 0, got {held_out}")
    # Marked where the running share reaches the next whole number.
    reached = np.arange(total + 1) * held_out // total
    mask = torch.from_numpy(np.diff(reached) > 0)
    if held_out > total or len(labels[~mask].unique()) < classes:
        raise ValueError(
            f"validation={held_out} of {total} training pictures would leave a class without pictures to train on"
        )
    return mask
