"""Pictures of your own, sorted into one folder per class.

The directory holds train/CLASS/ and perhaps val/CLASS/ and test/CLASS/. If val/ or test/ is missing, a share of the
training pictures takes its place. If train/ is missing as well, the class folders are expected in the directory itself.
The split depends on the sorted file names alone.
"""

from pathlib import Path

from .catalogue import DATASETS
from .class_folders import read_class_folders
from .errors import DataError
from .examples import Splits

__all__ = ["folder"]

SHARE = 0.1  # of the training pictures, for validation and for the test


@DATASETS.register("folder", model="resnet50", recipe="imagenet")
def folder(
    directory: Path | None = None,
    *,
    download: bool = False,
    validation: float | None = None,
    test: float | None = None,
    side: int = 224,
    resize: int | None = None,
) -> Splits:
    """Read pictures of your own, sorted into one folder per class.

    `directory` holds the class folders, or train/ with them and perhaps val/ and test/. `validation` and `test` are the
    shares of the training pictures that replace a missing val/ and test/: a tenth each unless given. With a share of 0,
    validation and test are the same pictures, which flatters the test.

    Training takes a random part of 8 to 100 % of a picture, scales it to `side` and mirrors half of them; evaluation
    scales the short side to `resize`, 8/7 of `side` unless given, and takes the centre.
    """
    if download or directory is None:
        raise DataError(
            "folder reads pictures of your own and downloads none: give their directory (--data-dir) and no download"
        )
    root = Path(directory)
    folders = {"train": "train", "validation": "val", "test": "test"}
    there = {part: name for part, name in folders.items() if (root / name).is_dir()}
    if there and "train" not in there:
        raise DataError(
            f"{root} has {' and '.join(f'{name}/' for name in there.values())} but no train/; add it, or put all "
            "class folders into one directory to have it split"
        )
    shares = {"validation": validation, "test": test}
    for part, share in shares.items():
        if part in there and share is not None:
            raise DataError(
                f"{part}={share:g} cannot be held out: {root} has {there[part]}/ for it; leave one out"
            )
    held_out = {
        part: SHARE if share is None else share for part, share in shares.items() if part not in there
    }
    return read_class_folders("folder", root, there or {"train": ""}, held_out, side=side, resize=resize)
