"""Fashion-MNIST (H. Xiao, K. Rasul, R. Vollgraf, 2017): grey pictures of clothes, 28×28 pixels, 10 classes."""

import gzip
import zlib
from pathlib import Path

from torch import Tensor

from .catalogue import DATASETS
from .checksum import check_md5
from .download import download_file
from .errors import DataError
from .examples import Splits
from .files import read_file
from .idx import parse_idx
from .in_memory import InMemory
from .places import cache_folder

__all__ = ["fashion_mnist"]

ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
# Checksums of the published files, whose names end in .gz.
MD5 = {
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}
COUNTS = {"train": 60_000, "t10k": 10_000}
HELD_OUT = 5_000  # training pictures, for validation
SIDE = 28  # pixels
CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
MEAN, STD = 0.2860, 0.3530  # of the pixels in the training files, between 0 and 1


@DATASETS.register("fashion_mnist", model="resnet20", recipe="cifar")
def fashion_mnist(directory: Path | None = None, *, download: bool = False, augment: bool = True) -> Splits:
    """Read Fashion-MNIST: 55,000 pictures to train, the last 5,000 of the training file to validate, 10,000 to test.

    `directory` holds the four idx files, or FashionMNIST/raw with them; None means st3's cache. They may be unpacked;
    checksums are compared for gzipped files. Augmenting pads a picture by 2 black pixels, takes a random crop, and
    mirrors half of the pictures.
    """
    directory = cache_folder() / "fashion_mnist" if directory is None else Path(directory)
    if directory.is_file():
        raise DataError(
            f"fashion_mnist: {directory} is a file; give the folder that holds its four files, {directory.parent}"
        )
    pixels, labels = _read_part(directory, "train", download)
    cut = len(labels) - HELD_OUT

    def pictures(pixels: Tensor, labels: Tensor) -> InMemory:
        return InMemory(pixels, labels, mean=(MEAN,), std=(STD,), shift=2 if augment else 0, flip=augment)

    return Splits(
        name="fashion_mnist",
        train=pictures(pixels[:cut], labels[:cut]),
        validation=pictures(pixels[cut:], labels[cut:]),
        test=pictures(*_read_part(directory, "t10k", download)),
        classes=CLASSES,
        shape=(1, SIDE, SIDE),
    )


def _read_part(directory: Path, part: str, download: bool) -> tuple[Tensor, Tensor]:
    """Return pixels (n, 1, 28, 28) and labels; `part` is "train" or "t10k" (the test)."""
    count = COUNTS[part]
    pixels = _read_tensor(directory, f"{part}-images-idx3-ubyte", (count, SIDE, SIDE), download)
    name = f"{part}-labels-idx1-ubyte"
    labels = _read_tensor(directory, name, (count,), download)
    if (largest := int(labels.max())) >= len(CLASSES):
        raise DataError(
            f"{name} in {directory} has label {largest}, but the classes are 0 to 9; download it again"
        )
    return pixels.unsqueeze(1), labels


def _read_tensor(directory: Path, name: str, shape: tuple[int, ...], download: bool) -> Tensor:
    path = _find(directory, name, download)
    content = read_file(path)
    try:
        if path.suffix == ".gz":
            remedy = f"delete it, then add --download (in Python: download=True) or get {ADDRESS}/{path.name}"
            check_md5(content, MD5[name], str(path), remedy)
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); delete it and download it again") from error
    return parse_idx(content, shape, str(path))


def _find(directory: Path, name: str, download: bool) -> Path:
    for folder in (directory, directory / "FashionMNIST" / "raw"):
        for path in (folder / f"{name}.gz", folder / name):
            if path.is_file():
                return path
    packed = directory / f"{name}.gz"
    address = f"{ADDRESS}/{packed.name}"
    if not download:
        raise DataError(
            f"fashion_mnist: {directory} holds neither {packed.name} nor {name}; "
            f"add --download (in Python: download=True), or get {address} and put it there"
        )
    download_file(address, packed, md5=MD5[name])
    return packed
