"""ImageNet (ILSVRC 2012): 1,000 classes in train/CLASS/ and val/CLASS/.

The labels of ImageNet's own test set are not public, so results are reported on val/. By default val/ serves for
validation too: the best epoch is then chosen by the pictures that it is reported on, and looks a little better than it
is. The option `validation` holds out a share of the training pictures instead and leaves val/ to the test.
"""

from pathlib import Path

from .catalogue import DATASETS
from .class_folders import read_class_folders
from .errors import DataError
from .examples import Splits

__all__ = ["imagenet"]

CLASSES = 1000


@DATASETS.register(
    "imagenet", model="resnet50", recipe="imagenet", recipes={"mobilenet_v1": "imagenet-mobilenet"}
)
def imagenet(
    directory: Path | None = None,
    *,
    download: bool = False,
    validation: float = 0.0,
    side: int = 224,
    resize: int | None = None,
) -> Splits:
    """Read ImageNet: 1,000 class folders each in train/ and val/ of `directory`.

    `validation` is the share of the training pictures to hold out; with 0, validation and test are both val/, which
    flatters the test. `side` and `resize` are those of `folder`.
    """
    if download:
        raise DataError(
            "imagenet cannot be downloaded by a program: register at https://image-net.org, "
            "then give the directory that holds train/ and val/"
        )
    if directory is None:
        raise DataError(
            "imagenet needs the directory that holds train/ and val/, each with a folder per class"
        )
    root, folders = Path(directory), {"train": "train", "test": "val"}
    splits = read_class_folders(
        "imagenet", root, folders, {"validation": validation}, side=side, resize=resize
    )
    if len(splits.classes) != CLASSES:
        raise DataError(
            f"{root} has {len(splits.classes):,} classes, but ImageNet has {CLASSES:,}; give all of it, or read these "
            "pictures as --data folder"
        )
    return splits
