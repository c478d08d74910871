"""`save_sparse`: a model as a small safetensors file, with only values and coded positions of its sparse tensors."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..atomic import write_file
from ..core.layers.find import unwrap
from .contents import Contents, dense_entry, sparse_entry
from .packing import DTYPES, NARROW, PARTS, Packed, narrow, pack
from .size import SparseSize, count_zeros
from .ties import find_ties
from .weights import WeightsError, encode, seal_metadata

__all__ = ["VALUES", "Values", "save_sparse", "sparse_size"]

Values = Literal["same", "float16", "bfloat16"]
VALUES = ("same", *NARROW)


def save_sparse(
    model: nn.Module | Mapping[str, Tensor],
    path: str | PathLike[str],
    *,
    values: Values = "same",
    metadata: Mapping[str, Any] | None = None,
) -> SparseSize:
    """Write a model or a state_dict as a sparse file and return its size. The model is not changed.

    A tensor is stored as values and positions if that takes fewer bytes, otherwise densely; tied weights are stored
    once. By default the file is lossless: every bit comes back, including negative zeros and NaN. With `values`
    "float16" or "bfloat16", tensors of two dimensions or more are rounded to 16 bits, and loaded in their old type.
    `metadata` is anything that JSON can hold. The file appears complete or not at all.
    """
    content, size = _encode(model, values, metadata)
    write_file(Path(path), lambda file: file.write(content))
    return size


def sparse_size(
    model: nn.Module | Mapping[str, Tensor],
    *,
    values: Values = "same",
    metadata: Mapping[str, Any] | None = None,
) -> SparseSize:
    """Return the size that the sparse file would have."""
    return _encode(model, values, metadata)[1]


def _encode(
    model: nn.Module | Mapping[str, Tensor], values: Values, metadata: Mapping[str, Any] | None
) -> tuple[bytes, SparseSize]:
    if values not in VALUES:
        raise ValueError(f"values must be 'same', 'float16' or 'bfloat16', got {values!r}")
    tensors = _list_tensors(model)
    tied = find_ties(tensors)
    weights = _separate({name: tensor for name, tensor in tensors.items() if name not in tied})
    stored: dict[str, Tensor] = {}
    entries: dict[str, dict[str, Any] | str] = {}
    sparse: list[Packed] = []
    for name, tensor in weights.items():
        rounded = narrow(tensor, values, name)
        # A tensor is stored densely if the name of one of its parts is the name of another tensor.
        is_taken = any(f"{name}{part}" in tensors for part in PARTS[1:])
        packed = None if is_taken else pack(rounded)
        if packed is None:
            stored[name] = rounded
            entries[name] = dense_entry(rounded, tensor.dtype)
        else:
            sparse.append(packed)
            stored |= {f"{name}{part}": content for part, content in packed.parts.items()}
            entries[name] = sparse_entry(packed, tensor.dtype)
    about = (
        {} if metadata is None else seal_metadata(metadata, {})
    )  # the contents have checksums of the tensors
    content = encode(stored, {**about, **Contents.to_metadata(entries, tied)})
    return content, _measure(weights, stored, sparse, len(content))


def _measure(
    weights: Mapping[str, Tensor], stored: Mapping[str, Tensor], sparse: list[Packed], file_bytes: int
) -> SparseSize:
    positions = sum(packed.position_bytes for packed in sparse)
    return SparseSize(
        dense_bytes=sum(tensor.nbytes for tensor in weights.values()),
        file_bytes=file_bytes,
        position_bytes=positions,
        position_bound=sum(packed.position_bound for packed in sparse),
        value_bytes=sum(tensor.nbytes for tensor in stored.values()) - positions,
        numbers=sum(tensor.numel() for tensor in weights.values()),
        zeros=sum(map(count_zeros, weights.values())),
        sign_bytes=sum(packed.signs.numel() for packed in sparse if packed.signs is not None),
    )


def _list_tensors(model: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors by name; the error names those that cannot be stored."""
    found: Mapping[str, Any] = unwrap(model).state_dict() if isinstance(model, nn.Module) else model
    if not isinstance(found, Mapping):
        raise WeightsError(f"save_sparse takes a model or a state_dict, got a {type(model).__name__}")
    faults = [f"{name} ({fault})" for name, tensor in found.items() if (fault := _find_fault(name, tensor))]
    if faults:
        more = f" and {len(faults) - 3:,} more" if len(faults) > 3 else ""
        raise WeightsError(f"a sparse file cannot hold {', '.join(faults[:3])}{more}")
    return {name: tensor.detach() for name, tensor in found.items()}


def _find_fault(name: Any, tensor: Any) -> str | None:
    if not isinstance(name, str):
        return "its name is not a string"
    if not isinstance(tensor, Tensor):
        return f"a {type(tensor).__name__}, not a tensor"
    if isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer) or tensor.is_meta:
        return "it has no data yet"
    if type(tensor).__name__ == "DTensor":
        return "sharded over processes: gather it first"
    if tensor.layout is not torch.strided:
        return f"its layout is {tensor.layout}: give tensor.to_dense()"
    if tensor.dtype not in DTYPES.values():
        return f"its type is {tensor.dtype}"
    return None


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors contiguous, on the CPU, and each in its own storage, as safetensors requires."""
    separate: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.cpu().resolve_conj().resolve_neg().contiguous()
        storage = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if storage in storages else plain
        storages.add(storage)
    return separate
