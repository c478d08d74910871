"""What a sparse file says about its tensors, as JSON in its metadata; read without trust.

    {"format": 1, "tensors": {NAME: ENTRY, ...}, "tied": {NAME: NAME of the tensor that it is, ...}}

A sparse tensor's entry is a table: coding ("rice"), shape, count (of values), block, checksum; dtype, if the values are
stored in a narrower one; negative_zeros and signs_block, if there are any. A dense tensor's is its checksum alone, or a
table with its dtype, too. It is kept short, since small networks have many small tensors.

A checksum is the BLAKE2b hash, 4 bytes in hexadecimal, of the entry and of the type, shape and bytes of each stored
part; another one, of 8 bytes, guards this text itself. They find damage. They do not stop somebody who computes new
ones: so all numbers are checked as well.
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
FORMAT = 1
MOST = 1 << 62  # bytes of one tensor: torch counts no further


@dataclass(frozen=True)
class Entry:
    """What is known of a tensor before its parts are read."""

    facts: dict[str, Any]  # all of it but the checksum
    checksum: str
    dtype: torch.dtype | None = None  # None: that of what is stored
    shape: tuple[int, ...] | None = None  # None: stored dense, and the file's own header has its shape
    count: int = 0
    block: int = BLOCKS[0]
    negative_zeros: int = 0
    signs_block: int = BLOCKS[0]

    @property
    def is_sparse(self) -> bool:
        return self.shape is not None

    @property
    def part_names(self) -> tuple[str, ...]:
        """What follows the tensor's name in the names of the stored parts; nothing for a dense one."""
        if not self.is_sparse:
            return ("",)
        return tuple(f":{part}" for part in (PARTS if self.negative_zeros else PARTS[:2]))

    def check(self, parts: list[Tensor]) -> None:
        """Raise ValueError if these are not the parts that were saved."""
        stored = parts[0].dtype
        if stored not in DTYPES.values() or (
            self.dtype and (stored not in NARROW.values() or self.dtype not in WIDE)
        ):
            raise ValueError(f"its values are of type {stored}, which cannot be")
        if checksum(self.facts, parts) != self.checksum:
            raise ValueError("its checksum is another one than when it was saved")

    def packed(self, parts: list[Tensor]) -> Packed:
        """Return the parts as a sparse tensor; ValueError if they are not what the entry says."""
        assert self.shape is not None
        values, positions, *signs = parts
        if values.dim() != 1 or values.numel() != self.count:
            raise ValueError(f"it has {values.numel():,} values, not {self.count:,}")
        if any(part.dtype != torch.uint8 or part.dim() != 1 for part in [positions, *signs]):
            raise ValueError("its positions are no bytes")
        return Packed(
            self.shape, values, positions, self.block, self.negative_zeros,
            signs[0] if signs else None, self.signs_block,
        )  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """The tensors of a file and the names that are other names of one of them."""

    tensors: dict[str, Entry]
    tied: dict[str, str]

    @staticmethod
    def text(tensors: Mapping[str, dict[str, Any] | str], tied: Mapping[str, str]) -> dict[str, str]:
        """Return the contents as a file's metadata."""
        text = json.dumps({"format": FORMAT, "tensors": tensors, "tied": tied}, separators=(",", ":"))
        return {CONTENTS: text, CHECKSUM: _hash([text.encode()], 8)}

    @classmethod
    def read(cls, metadata: Mapping[str, str]) -> "Contents":
        """Return the contents; ValueError says in a few words what is wrong with them."""
        text = metadata[CONTENTS]
        if metadata.get(CHECKSUM) != _hash([text.encode()], 8):
            raise ValueError("its list of tensors is damaged: the checksum is another one")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("its list of tensors is no JSON") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            version = found.get("format") if isinstance(found, dict) else None
            raise ValueError(
                f"it has format {version!r}, and this st3 reads format {FORMAT}: a newer one may read it"
            )
        tensors, tied = found.get("tensors"), found.get("tied")
        if not isinstance(tensors, dict) or not isinstance(tied, dict):
            raise ValueError("its list of tensors is incomplete")
        contents = cls({name: _entry(name, entry) for name, entry in tensors.items()}, tied)
        for name, other in tied.items():
            if name in tensors or not isinstance(other, str) or other not in tensors:
                raise ValueError(
                    f"{name} is said to be another name of {other}, which is no other tensor of it"
                )
        return contents


def checksum(facts: Mapping[str, Any], parts: Iterable[Tensor]) -> str:
    """Return the hash of an entry and of its tensors, which must be contiguous and on the CPU."""
    pieces: list[Any] = [json.dumps(facts, sort_keys=True).encode()]
    for part in parts:
        pieces += [f"{part.dtype}{tuple(part.shape)};".encode(), part.reshape(-1).view(torch.uint8).numpy()]
    return _hash(pieces, 4)


def dense_entry(stored: Tensor, dtype: torch.dtype) -> dict[str, Any] | str:
    """Return the entry of a dense tensor that has this type when it is loaded."""
    facts = _narrowed(stored, dtype)
    found = checksum(facts, [stored])
    return {**facts, "checksum": found} if facts else found


def sparse_entry(packed: Packed, dtype: torch.dtype) -> dict[str, Any]:
    """Return the entry of a sparse tensor that has this type when it is loaded."""
    signs = {"negative_zeros": packed.negative_zeros, "signs_block": packed.signs_block}
    facts = {
        "coding": "rice",
        "shape": list(packed.shape),
        **_narrowed(packed.values, dtype),
        "count": packed.values.numel(),
        "block": packed.block,
        **(signs if packed.signs is not None else {}),
    }
    return {**facts, "checksum": checksum(facts, packed.parts.values())}


def _hash(pieces: Iterable[Any], size: int) -> str:
    made = hashlib.blake2b(digest_size=size)
    for piece in pieces:
        made.update(piece)
    return made.hexdigest()


def _narrowed(stored: Tensor, dtype: torch.dtype) -> dict[str, str]:
    return {} if stored.dtype == dtype else {"dtype": str(dtype).removeprefix("torch.")}


def _entry(name: str, found: Any) -> Entry:
    if isinstance(found, str):
        found = {"checksum": found}
    if not isinstance(found, dict) or not isinstance(found.get("checksum"), str):
        raise ValueError(f"{name} has no checksum")
    facts = {key: value for key, value in found.items() if key != "checksum"}
    coding, dtype = found.get("coding", "dense"), DTYPES.get(str(found.get("dtype")))
    if coding not in ("dense", "rice") or (dtype is None and "dtype" in found):
        raise ValueError(
            f"{name} has coding {coding!r} and type {found.get('dtype', 'its own')!r}: not known here"
        )
    if coding == "dense":
        return Entry(facts, found["checksum"], dtype)
    shape = found.get("shape")
    if not isinstance(shape, list) or not all(map(_is_count, shape)) or not _fits(shape):
        raise ValueError(f"{name} has the shape {shape}, which is none")
    usual = {"count": None, "block": None, "negative_zeros": 0, "signs_block": BLOCKS[0]}
    numbers: dict[str, Any] = {key: found.get(key, number) for key, number in usual.items()}
    if not all(map(_is_count, numbers.values())) or numbers["count"] + numbers["negative_zeros"] > prod(
        shape
    ):
        raise ValueError(f"{name} has {numbers['count']} values of {prod(shape):,}, which cannot be")
    return Entry(facts, found["checksum"], dtype, tuple(shape), **numbers)


def _fits(shape: list[int]) -> bool:
    """Tell whether torch can count the numbers of that shape; a size of 0 excuses none of the others."""
    total = 8  # bytes of the widest number
    for size in shape:
        total *= max(1, size)
        if total > MOST:  # at once: the product of thousands of long numbers would take its time
            return False
    return True


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
