"""1,797 handwritten digits of 8×8 pixels; they come with the package, so that the first run needs no download.

They are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI Machine
Learning Repository, 1998, https://doi.org/10.24432/C50P49), licensed CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/), in the order in which scikit-learn bundles them. Changes: they are
stored as bytes in a compressed NumPy file, together with the order of the split.
"""

import hashlib
import io
from importlib import resources

import numpy as np
import torch

from .catalogue import DATASETS
from .errors import DataError
from .examples import Splits
from .in_memory import InMemory

__all__ = ["digits"]

FILE = "digits.npz"
SHA256 = "0394458451955ac813351348748cb5f070999da7ee0378b12c931da2cf10f7fe"
LARGEST = 16  # value of a pixel, which counts the inked ones among 4×4 finer pixels
MEAN, STD = 0.30515, 0.37637  # of the training pictures, divided by LARGEST
TRAIN, VALIDATION = 1197, 200  # number of pictures; the other 400 are for the test


@DATASETS.register("digits", model="digits_cnn", recipe="digits", embedded=True, dense_twin=True)
def digits(*, augment: bool = True) -> Splits:
    """Read the digits of the package: 1,197 pictures to train, 200 to validate, 400 to test.

    The split is a fixed shuffle in which every class has its share of each part. Augmenting shifts a digit by up to
    one pixel and never mirrors it: a mirrored digit is no longer that digit.

    >>> splits = digits()
    >>> len(splits.train), len(splits.validation), len(splits.test)
    (1197, 200, 400)
    """
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


def _read() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels (n, 8, 8) and labels in the order of the split."""
    file = resources.files(__package__) / FILE
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{file} is damaged (its sha256 is not {SHA256}); install st3 again")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        order = arrays["order"]
        return arrays["pictures"][order], arrays["labels"][order]
