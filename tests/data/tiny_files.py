"""Tiny data sets in the layouts of the real ones, so that tests need neither a network nor a gigabyte."""

import dataclasses
import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from st3.data import cifar, fashion_mnist

Maker = Callable[[Path, pytest.MonkeyPatch], tuple[Path | None, dict[str, Any]]]  # -> directory and options


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def noise(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def python2_pickle(pixels: np.ndarray, labels: list[int], key: bytes = b"labels") -> bytes:
    """Write {"data": array, key: list} with the instructions that Python 2 and old numpy used for CIFAR."""

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
    """Return a few pictures per file: every pixel random, labels 0, 1, 2, ... over all files."""
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
    """Let st3 take these files for the published ones, with the last 2 training pictures for validation."""
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
    """Let st3 take small files for the published ones, and return these, gzipped."""
    packed = {name: gzip.compress(content) for name, content in fashion_files(train, test).items()}
    monkeypatch.setattr(fashion_mnist, "COUNTS", {"train": train, "t10k": test})
    monkeypatch.setattr(fashion_mnist, "HELD_OUT", 2)
    monkeypatch.setattr(fashion_mnist, "MD5", {name: md5(content) for name, content in packed.items()})
    return {f"{name}.gz": content for name, content in packed.items()}


def picture_folders(
    root: Path, train: int = 4, val: int = 2, classes: tuple[str, ...] = ("cat", "dog")
) -> Path:
    """Write random pictures of 12×10 pixels (width × height) into class folders."""
    from PIL import Image

    seed = 0
    for part, count in (("train", train), ("val", val)):
        for name in classes:
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                seed += 1
                Image.fromarray(noise(10, 12, 3, seed=seed)).save(folder / f"{number}.png")
    return root


def make_cifar(layout: cifar.Layout) -> Maker:
    def make(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, Any]]:
        files = cifar_files(layout, per_file=8)
        expect(monkeypatch, layout, files)
        write(directory / layout.archive.folder, files)
        return directory, {}

    return make


def make_fashion(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, Any]]:
    return write(directory, expect_fashion(monkeypatch)), {}


def make_imagenet(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, Any]]:
    pytest.importorskip("PIL")
    return picture_folders(directory), {"side": 6, "resize": 8, "validation": 2}


# A new data set gets its maker here; the contract suite asks for it.
MAKERS: dict[str, Maker] = {
    "cifar10": make_cifar(cifar.CIFAR10),
    "cifar100": make_cifar(cifar.CIFAR100),
    "digits": lambda directory, monkeypatch: (None, {}),
    "fashion_mnist": make_fashion,
    "imagenet": make_imagenet,
}
