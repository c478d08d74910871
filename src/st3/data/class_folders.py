"""Pictures in class folders, as a data set: one folder per part, or a share of the training pictures held out."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .errors import DataError
from .examples import Splits
from .listing import Listing, list_pictures
from .photographs import Photographs, import_pillow

__all__ = ["read_class_folders"]

MAX_SIDE = 4096  # pixels: a hundred pictures of that size take gigabytes


def read_class_folders(
    name: str,
    root: Path,
    folders: Mapping[str, str],
    shares: Mapping[str, float],
    *,
    side: int,
    resize: int | None,
) -> Splits:
    """Read train, validation and test from `folders`: part -> its folder under `root`, "" for `root` itself.

    A part without a folder takes its share of the training pictures of every class, evenly spaced. With a share of 0,
    validation and test are the same pictures. `resize` is 8/7 of `side` unless given.
    """
    resize = round(side * 8 / 7) if resize is None else resize
    if not 1 <= side <= resize <= MAX_SIDE:
        raise ValueError(
            f"side must be at least 1 and at most resize, and that at most {MAX_SIDE:,} pixels, "
            f"got side={side} and resize={resize}"
        )
    held_out = {part: share for part, share in shares.items() if share != 0}
    _check_shares(held_out, others=[*folders])
    import_pillow()  # if it is missing, say so now and not at the first batch
    listings = list_pictures(root, tuple(folders.values()))
    classes = _same_classes(root, listings)
    files = {part: _label(root, folder, listings[folder]) for part, folder in folders.items()}
    files |= files["train"].split(held_out)
    parts = {
        part: Photographs(root, found.paths, found.labels, side=side, resize=resize)
        for part, found in files.items()
    }
    return Splits(
        name=name,
        train=parts["train"],
        validation=parts["validation" if "validation" in parts else "test"],
        test=parts["test" if "test" in parts else "validation"],
        classes=classes,
        shape=(3, side, side),
    )


@dataclass(frozen=True)
class _Files:
    """Paths of pictures under `root`, class by class, and their labels."""

    root: Path
    paths: list[str]
    labels: Tensor

    def split(self, shares: Mapping[str, float]) -> "dict[str, _Files]":
        """Return a part for every share, with at least one picture of each class, and the rest as "train"."""
        parts = ("train", *shares)
        part_of = np.zeros(len(self.paths), dtype=int)  # index into `parts`
        for begin, end in pairwise([0, *self.labels.bincount().cumsum(0).tolist()]):
            rows = np.arange(begin, end)
            for number, share in enumerate(shares.values(), 1):
                count = max(1, round(share * (end - begin)))
                if count >= len(rows):
                    held_out = " and ".join(f"{part}={share:g}" for part, share in shares.items())
                    folder = (self.root / self.paths[begin]).parent
                    raise DataError(
                        f"class folder {folder} has too few pictures ({end - begin}) to hold out {held_out} of them "
                        "and train on the rest; add pictures, or choose smaller shares"
                    )
                is_taken = np.diff(np.arange(len(rows) + 1) * count // len(rows)) > 0
                part_of[rows[is_taken]] = number
                rows = rows[~is_taken]
        return {part: self._select(part_of == number) for number, part in enumerate(parts)}

    def _select(self, mask: np.ndarray) -> "_Files":
        paths = [path for path, is_in in zip(self.paths, mask.tolist(), strict=True) if is_in]
        return _Files(self.root, paths, self.labels[torch.from_numpy(mask)])


def _check_shares(held_out: Mapping[str, float], others: list[str]) -> None:
    for part, share in held_out.items():
        if not 0 < share < 1:
            raise ValueError(f"{part} is a share of the training pictures, from 0 to below 1, got {share:g}")
    if not {"validation", "test"} & {*held_out, *others}:
        raise ValueError("validation and test cannot both be 0: there are no folders for them")


def _label(root: Path, folder: str, listing: Listing) -> _Files:
    prefix = f"{folder}/" if folder else ""
    classes = sorted(listing)
    paths = [f"{prefix}{name}/{picture}" for name in classes for picture in listing[name]]
    counts = torch.tensor([len(listing[name]) for name in classes])
    return _Files(root, paths, torch.arange(len(classes)).repeat_interleave(counts))


def _same_classes(root: Path, listings: Mapping[str, Listing]) -> tuple[str, ...]:
    """Return the names of the classes, or say which folder lacks some that another has."""
    classes = sorted(set().union(*listings.values()))
    lacking = {folder: [name for name in classes if name not in found] for folder, found in listings.items()}
    faults = [
        f"{folder}/ lacks {', '.join(names[:5])}{f' and {len(names) - 5} more' * (len(names) > 5)}"
        for folder, names in lacking.items()
        if names
    ]
    if faults:
        folders = " and ".join(f"{folder}/" for folder in listings)
        raise DataError(
            f"{root} must have the same classes in {folders}, but {' and '.join(faults)}; "
            "add the missing folders, or delete these classes"
        )
    return tuple(classes)
