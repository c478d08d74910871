"""1,797 handwritten digits of 8×8 pixels, inside the package: the first run needs no download.

They are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI Machine
Learning Repository, 1998, https://doi.org/10.24432/C50P49), licensed CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/), in the order in which scikit-learn bundles them. Changes: stored as
bytes in a compressed NumPy file, with the order of the split beside them.
"""

import hashlib
import io
from importlib import resources
from pathlib import Path

import numpy as np
import torch

from .catalogue import DATASETS
from .errors import DataError
from .in_memory import InMemory
from .pictures import Splits

__all__ = ["digits", "needless"]

FILE = "digits.npz"
SHA256 = "0394458451955ac813351348748cb5f070999da7ee0378b12c931da2cf10f7fe"
LARGEST = 16  # of a pixel: each counts the ink in 4×4 finer ones
# Of the training pictures, divided by 16.
MEAN, STD = 0.30515, 0.37637
TRAIN, VALIDATION = 1197, 200  # the other 400 are for testing


@DATASETS.register("digits")
def digits(directory: Path | None = None, *, download: bool = False, augment: bool = True) -> Splits:
    """Split the digits into 1,197 for training, 200 for validation and 400 for testing.

    They come with the package, so a `directory` or a `download` is refused. The split is a fixed shuffle in which
    every class has its share of each part. Augmenting shifts a digit by up to a pixel; a mirrored digit is none.

    >>> splits = digits()
    >>> len(splits.train), len(splits.validation), len(splits.test)
    (1197, 200, 400)
    """
    if fault := needless(directory, download):
        raise DataError(fault)
    pixels, labels = _read()

    def part(begin: int, end: int | None) -> InMemory:
        return InMemory(
            torch.from_numpy(pixels[begin:end]).unsqueeze(1),
            torch.from_numpy(labels[begin:end]),
            mean=(MEAN,),
            std=(STD,),
            shift=1 if augment else 0,
            largest=LARGEST,
        )

    held_out = TRAIN + VALIDATION
    return Splits(
        name="digits",
        train=part(0, TRAIN),
        validation=part(TRAIN, held_out),
        test=part(held_out, None),
        classes=tuple("0123456789"),
        shape=(1, 8, 8),
    )


def needless(directory: Path | str | None, download: bool) -> str:
    """Return why these cannot be meant; an empty text if nothing was said.

    >>> needless(None, download=False)
    ''
    """
    said = [
        name for name, is_said in (("--data-dir", directory is not None), ("--download", download)) if is_said
    ]
    if not said:
        return ""
    others = ", ".join(name for name in DATASETS if name != "digits")
    return (
        f"digits are part of st3 and need no {' and no '.join(said)}; did you mean another --data ({others})?"
    )


def _read() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels (n, 8, 8) and labels in the order of the split."""
    file = resources.files(__package__) / FILE
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{file} is damaged (its sha256 is not {SHA256}); install st3 again")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        order = arrays["order"]
        return arrays["pictures"][order], arrays["labels"][order]
