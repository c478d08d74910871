"""The table of contents of a sparse file: JSON in its metadata. It is read without trusting the file.

    {"format": 2, "tensors": {NAME: ENTRY, ...}, "tied": {NAME: NAME of the tensor it shares, ...}}

The entry of a sparse tensor is a table: coding ("rice"), shape, count (of values), block, checksum; dtype, if its
values are stored in a narrower type; negative_zeros and signs_block, if it has negative zeros. The entry of a dense
tensor is its checksum alone, or a table with checksum and dtype. Entries are short because small networks have many
small tensors.

The values of a sparse tensor are stored under the tensor's own name, as a one-dimensional tensor that is always shorter
than the tensor itself. A program that takes the file for plain weights therefore finds a wrong shape and fails.

A checksum is the BLAKE2b hash (4 bytes, hexadecimal) of the entry and of the type, shape and bytes of each stored part:
of the entry without its checksum, as Python's json writes it with sorted keys, then for each part, in the order values,
positions, signs, of a text such as "torch.float32(90,);" and of its bytes. A hash of 8 bytes, under the key
st3.sparse.checksum, guards the text of the contents itself. Checksums detect damage. They do not stop somebody who
computes new ones, so all numbers are checked as well.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from .packing import DTYPES, NARROW, PARTS, WIDE, Packed
from .positions import BLOCKS

__all__ = ["CHECKSUM", "CONTENTS", "FORMAT", "Contents", "Entry", "checksum", "dense_entry", "sparse_entry"]

CONTENTS, CHECKSUM = "st3.sparse", "st3.sparse.checksum"  # keys of the file's metadata
FORMAT = 2
MOST_BYTES = 1 << 62  # of one tensor: torch cannot count further


@dataclass(frozen=True)
class Entry:
    """What the contents say about one tensor."""

    facts: dict[str, Any]  # the whole entry without its checksum
    checksum: str
    dtype: torch.dtype | None = None  # None: the type of the stored values
    shape: tuple[int, ...] | None = None  # None: stored dense, and the safetensors header has its shape
    count: int = 0
    block: int = BLOCKS[0]
    negative_zeros: int = 0
    signs_block: int = BLOCKS[0]

    @property
    def is_sparse(self) -> bool:
        return self.shape is not None

    @property
    def parts(self) -> tuple[str, ...]:
        """The suffixes that turn the tensor's name into the names of its stored parts."""
        return PARTS[: (3 if self.negative_zeros else 2) if self.is_sparse else 1]

    def check(self, parts: list[Tensor]) -> None:
        """Raise ValueError unless these are the parts that were saved."""
        stored = parts[0].dtype
        if stored not in DTYPES.values() or (
            self.dtype and (stored not in NARROW.values() or self.dtype not in WIDE)
        ):
            raise ValueError(f"its values cannot be of type {stored}")
        if checksum(self.facts, parts) != self.checksum:
            raise ValueError("its checksum does not match")

    def to_packed(self, parts: list[Tensor]) -> Packed:
        """Return the parts as a packed tensor; ValueError if they contradict the entry."""
        assert self.shape is not None
        values, positions, *signs = parts
        if values.dim() != 1 or values.numel() != self.count:
            raise ValueError(f"it has {values.numel():,} values, not {self.count:,}")
        if any(part.dtype != torch.uint8 or part.dim() != 1 for part in [positions, *signs]):
            raise ValueError("its positions are not bytes")
        return Packed(
            self.shape, values, positions, self.block, self.negative_zeros,
            signs[0] if signs else None, self.signs_block,
        )  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """The tensors of a file, and further names of tied ones."""

    tensors: dict[str, Entry]
    tied: dict[str, str]

    @staticmethod
    def to_metadata(tensors: Mapping[str, dict[str, Any] | str], tied: Mapping[str, str]) -> dict[str, str]:
        """Return the contents as metadata of a safetensors file."""
        text = json.dumps({"format": FORMAT, "tensors": tensors, "tied": tied}, separators=(",", ":"))
        return {CONTENTS: text, CHECKSUM: _hash([text.encode()], 8)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> "Contents":
        """Return the contents; ValueError says in a few words what is wrong with them."""
        text = metadata[CONTENTS]
        if metadata.get(CHECKSUM) != _hash([text.encode()], 8):
            raise ValueError("the checksum of its table of contents does not match")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("its table of contents is not JSON") from None
        _check_format(found.get("format") if isinstance(found, dict) else None)
        tensors, tied = found.get("tensors"), found.get("tied")
        if not isinstance(tensors, dict) or not isinstance(tied, dict):
            raise ValueError("its table of contents is incomplete")
        contents = cls({name: _read_entry(name, entry) for name, entry in tensors.items()}, tied)
        for name, other in tied.items():
            if name in tensors or not isinstance(other, str) or other not in tensors:
                raise ValueError(f"{name} is listed as tied to {other}, which is not another of its tensors")
        return contents


def checksum(facts: Any, parts: Iterable[Tensor], size: int = 4) -> str:
    """Return the hash, of `size` bytes, of an entry and its stored parts, which must be contiguous and on the CPU."""
    pieces: list[Any] = [json.dumps(facts, sort_keys=True).encode()]
    for part in parts:
        pieces += [f"{part.dtype}{tuple(part.shape)};".encode(), part.reshape(-1).view(torch.uint8).numpy()]
    return _hash(pieces, size)


def dense_entry(stored: Tensor, dtype: torch.dtype) -> dict[str, Any] | str:
    """Return the entry of a dense tensor that is loaded as `dtype`."""
    facts = _dtype_facts(stored, dtype)
    found = checksum(facts, [stored])
    return {**facts, "checksum": found} if facts else found


def sparse_entry(packed: Packed, dtype: torch.dtype) -> dict[str, Any]:
    """Return the entry of a sparse tensor that is loaded as `dtype`."""
    signs = {"negative_zeros": packed.negative_zeros, "signs_block": packed.signs_block}
    facts = {
        "coding": "rice",
        "shape": list(packed.shape),
        **_dtype_facts(packed.values, dtype),
        "count": packed.values.numel(),
        "block": packed.block,
        **(signs if packed.signs is not None else {}),
    }
    return {**facts, "checksum": checksum(facts, packed.parts.values())}


def _hash(pieces: Iterable[Any], size: int) -> str:
    digest = hashlib.blake2b(digest_size=size)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _dtype_facts(stored: Tensor, dtype: torch.dtype) -> dict[str, str]:
    return {} if stored.dtype == dtype else {"dtype": str(dtype).removeprefix("torch.")}


def _check_format(version: Any) -> None:
    if version == FORMAT:
        return
    remedy = "a newer st3 may read it"
    if isinstance(version, int) and version < FORMAT:
        remedy = "it is older, so save the model again"
    raise ValueError(f"it has format {version!r}, and this st3 reads format {FORMAT}: {remedy}")


def _read_entry(name: str, found: Any) -> Entry:
    if isinstance(found, str):
        found = {"checksum": found}
    if not isinstance(found, dict) or not isinstance(found.get("checksum"), str):
        raise ValueError(f"{name} has no checksum")
    facts = {key: value for key, value in found.items() if key != "checksum"}
    coding, dtype = found.get("coding", "dense"), DTYPES.get(str(found.get("dtype")))
    if coding not in ("dense", "rice"):
        raise ValueError(f"{name}: unknown coding {coding!r}")
    if dtype is None and "dtype" in found:
        raise ValueError(f"{name}: unknown type {found['dtype']!r}")
    if coding == "dense":
        return Entry(facts, found["checksum"], dtype)
    shape = found.get("shape")
    if not isinstance(shape, list) or not all(map(_is_count, shape)) or not _is_countable(shape):
        raise ValueError(f"{name}: {shape!r} is not a valid shape")
    usual = {"count": None, "block": None, "negative_zeros": 0, "signs_block": BLOCKS[0]}
    numbers: dict[str, Any] = {key: found.get(key, number) for key, number in usual.items()}
    for key, number in numbers.items():
        if not _is_count(number):
            raise ValueError(f"{name}: {key} must be a non-negative integer, got {number!r}")
    count, size = numbers["count"] + numbers["negative_zeros"], prod(shape)
    if count > size:
        raise ValueError(f"{name}: {count:,} values and negative zeros do not fit in {size:,} places")
    return Entry(facts, found["checksum"], dtype, tuple(shape), **numbers)


def _is_countable(shape: list[int]) -> bool:
    """Whether torch can count the bytes of this shape. A dimension of 0 must not hide an overflow in the others."""
    total = 8  # bytes of the widest number
    for size in shape:
        total *= max(1, size)
        if total > MOST_BYTES:  # return early: the product of thousands of long integers takes long
            return False
    return True


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
