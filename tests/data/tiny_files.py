"""Tiny data sets with the file layout of the real ones, so that tests need no download."""

import dataclasses
import gzip
import hashlib
import io
import pickle
import random
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from st3.data import DATASETS, Splits, cifar, fashion_mnist
from st3.data import imagenet as imagenet_module

# Writes tiny files into a directory, and returns the options to read them with.
Maker = Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def noise(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def python2_pickle(pixels: np.ndarray, labels: list[int], key: bytes = b"labels") -> bytes:
    """Write {"data": array, key: list} with the pickle instructions of Python 2 and old NumPy, as CIFAR has them."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    blank = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t" + text(b"b") + b"tR"
    )
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    shape = b"(" + b"".join(number(size) for size in pixels.shape) + b"t"
    array = blank + b"(" + number(1) + shape + dtype + b"\x89" + text(pixels.tobytes()) + b"tb"
    numbers = b"](" + b"".join(number(label) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(key) + numbers + b"u."


def cifar_files(layout: cifar.Layout, per_file: int = 4) -> dict[str, bytes]:
    """Return files with a few pictures each: random pixels, labels 0, 1, 2, ... over all files."""
    files = {}
    for number, name in enumerate((*layout.train, layout.test)):
        labels = [(number * per_file + i) % layout.classes for i in range(per_file)]
        files[name] = python2_pickle(noise(per_file, 3072, seed=number), labels, layout.labels.encode())
    names = [f"class {number}".encode() for number in range(layout.classes)]
    files[layout.meta] = pickle.dumps({layout.names.encode(): names}, protocol=2)
    return files


def expect(
    monkeypatch: pytest.MonkeyPatch, layout: cifar.Layout, files: dict[str, bytes], **changes: Any
) -> cifar.Layout:
    """Make st3 accept these files as the published ones, with the last 2 training pictures for validation."""
    sums = {name: md5(content) for name, content in files.items()}
    archive = dataclasses.replace(layout.archive, files=sums, **changes)
    tiny = dataclasses.replace(layout, archive=archive, held_out=2)
    monkeypatch.setattr(cifar, layout.archive.name.upper(), tiny)
    return tiny


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def tar_gz(folder: str, files: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in more:
            archive.addfile(member)
    return buffer.getvalue()


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def fashion_files(train: int = 12, test: int = 5) -> dict[str, bytes]:
    """Return the four unpacked files."""
    files = {}
    for number, (part, count) in enumerate({"train": train, "t10k": test}.items()):
        files[f"{part}-images-idx3-ubyte"] = idx(noise(count, 28, 28, seed=number))
        files[f"{part}-labels-idx1-ubyte"] = idx(np.arange(count, dtype=np.uint8) % 10)
    return files


def expect_fashion(monkeypatch: pytest.MonkeyPatch, train: int = 12, test: int = 5) -> dict[str, bytes]:
    """Make st3 accept small files as the published ones, and return them gzipped."""
    packed = {name: gzip.compress(content) for name, content in fashion_files(train, test).items()}
    monkeypatch.setattr(fashion_mnist, "COUNTS", {"train": train, "t10k": test})
    monkeypatch.setattr(fashion_mnist, "HELD_OUT", 2)
    monkeypatch.setattr(fashion_mnist, "MD5", {name: md5(content) for name, content in packed.items()})
    return {f"{name}.gz": content for name, content in packed.items()}


def picture_folders(root: Path, classes: tuple[str, ...] = ("cat", "dog"), **counts: int) -> Path:
    """Write random pictures, 12 pixels wide and 10 high, into class folders.

    `counts` are pictures per class: train=4, val=2 unless given. `all` stands for class folders in `root` itself.
    """
    from PIL import Image

    seed = 0
    for part, count in (counts or {"train": 4, "val": 2}).items():
        for name in classes:
            folder = root / name if part == "all" else root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                seed += 1
                Image.fromarray(noise(10, 12, 3, seed=seed)).save(folder / f"{number}.png")
    return root


def make_cifar(layout: cifar.Layout) -> Maker:
    def make(directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        files = cifar_files(layout, per_file=8)
        expect(monkeypatch, layout, files)
        write(directory / layout.archive.folder, files)
        return {}

    return make


def make_fashion(directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    write(directory, expect_fashion(monkeypatch))
    return {}


def make_folder(directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    pytest.importorskip("PIL")
    picture_folders(directory, all=4)
    return {"side": 32}


def make_imagenet(directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    pytest.importorskip("PIL")
    picture_folders(directory)
    monkeypatch.setattr(imagenet_module, "CLASSES", 2)
    return {"side": 32, "validation": 0.25}


def make_text(directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    words = random.Random(0).choices(["and", "the", "hare", "was", "late", "é", "№"], k=400)
    (directory / "tale.txt").write_text(" ".join(words), encoding="utf-8")
    return {"directory": directory / "tale.txt", "context": 16}


# A data set that reads files gets its maker here; an embedded one needs none.
MAKERS: dict[str, Maker] = {
    "cifar10": make_cifar(cifar.CIFAR10),
    "cifar100": make_cifar(cifar.CIFAR100),
    "fashion_mnist": make_fashion,
    "folder": make_folder,
    "imagenet": make_imagenet,
    "text": make_text,
}


def read_tiny(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Splits:
    """Read the data set `name`: from tiny files written to `directory`, or without any if it is embedded."""
    if DATASETS.declaration(name).embedded:
        return DATASETS[name]()
    assert name in MAKERS, f"write a maker of tiny files for {name!r} in tests/data/tiny_files.py"
    options = MAKERS[name](directory, monkeypatch)
    return DATASETS[name](options.pop("directory", directory), **options)
