"""A model as a small safetensors file: of sparse weights only the values and coded positions, all else as it is."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..core.layers.find import unwrap
from .contents import Contents, dense_entry, sparse_entry
from .packing import DTYPES, PARTS, Packed, narrowed, pack
from .size import SparseSize, count_zeros
from .weights import KEY, WeightsError, import_safetensors
from .whole import write_whole

__all__ = ["save_sparse", "sparse_size"]

Values = Literal["same", "fp16", "bf16"]


def save_sparse(
    model: nn.Module | Mapping[str, Tensor],
    path: str | PathLike[str],
    *,
    values: Values = "same",
    metadata: Mapping[str, Any] | None = None,
) -> SparseSize:
    """Write a model or its state_dict; return how large the file is. The model is not changed.

    A tensor is stored by its values and positions where that takes fewer bytes, else as it is. The default is
    lossless: every bit comes back, of negative zeros and NaN too. With `values` "fp16" or "bf16", weights (tensors of
    two dimensions or more) are rounded to 16 bits; they come back in their own type. The file appears complete, or not
    at all. `metadata` is anything that JSON can hold.
    """
    content, size = _content(model, values, metadata)
    write_whole(Path(path), lambda file: file.write(content))
    return size


def sparse_size(
    model: nn.Module | Mapping[str, Tensor],
    *,
    values: Values = "same",
    metadata: Mapping[str, Any] | None = None,
) -> SparseSize:
    """Return how large the file would be."""
    return _content(model, values, metadata)[1]


def _content(
    model: nn.Module | Mapping[str, Tensor], values: Values, metadata: Mapping[str, Any] | None
) -> tuple[bytes, SparseSize]:
    if values not in ("same", "fp16", "bf16"):
        raise ValueError(f"values must be 'same', 'fp16' or 'bf16', got {values!r}")
    save = import_safetensors().torch.save
    weights, tied = _untied(_tensors(model))
    taken = weights.keys() | tied.keys()
    stored: dict[str, Tensor] = {}
    entries: dict[str, dict[str, Any] | str] = {}
    sparse: list[Packed] = []
    for name, tensor in weights.items():
        plain = narrowed(tensor, values, name)
        # Should another tensor be called like a part of this one, which is unlikely, this one is stored dense.
        is_taken = any(f"{name}:{part}" in taken for part in PARTS)
        packed = None if is_taken else pack(plain)
        if packed is None:
            stored[name] = plain
            entries[name] = dense_entry(plain, tensor.dtype)
        else:
            sparse.append(packed)
            stored |= {f"{name}:{part}": content for part, content in packed.parts.items()}
            entries[name] = sparse_entry(packed, tensor.dtype)
    about = {} if metadata is None else {KEY: json.dumps(metadata)}
    content = save(stored, metadata={**about, **Contents.text(entries, tied)})
    return content, _size(weights, stored, sparse, len(content))


def _size(
    weights: Mapping[str, Tensor], stored: Mapping[str, Tensor], sparse: list[Packed], file_bytes: int
) -> SparseSize:
    positions = sum(packed.position_bytes for packed in sparse)
    return SparseSize(
        dense_bytes=sum(map(_bytes, weights.values())),
        file_bytes=file_bytes,
        position_bytes=positions,
        position_bound=sum(packed.position_bound for packed in sparse),
        value_bytes=sum(map(_bytes, stored.values())) - positions,
        numbers=sum(tensor.numel() for tensor in weights.values()),
        zeros=sum(map(count_zeros, weights.values())),
        sign_bytes=sum(packed.signs.numel() for packed in sparse if packed.signs is not None),
    )


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _tensors(model: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors by name; an error names all that cannot be stored."""
    found: Mapping[str, Any] = unwrap(model).state_dict() if isinstance(model, nn.Module) else model
    if not isinstance(found, Mapping):
        raise WeightsError(f"save_sparse takes a model or a state_dict, got a {type(model).__name__}")
    faults = [f"{name} ({fault})" for name, tensor in found.items() if (fault := _why_not(name, tensor))]
    if faults:
        more = f" and {len(faults) - 3:,} more" if len(faults) > 3 else ""
        raise WeightsError(f"a sparse file cannot hold {', '.join(faults[:3])}{more}")
    return {name: tensor.detach() for name, tensor in found.items()}


def _why_not(name: Any, tensor: Any) -> str | None:
    if not isinstance(name, str):
        return "its name is no text"
    if not isinstance(tensor, Tensor):
        return f"a {type(tensor).__name__}, no tensor"
    if isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer) or tensor.is_meta:
        return "it has no numbers yet"
    if type(tensor).__name__ == "DTensor":
        return "spread over processes: gather it first"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}: give tensor.to_dense()"
    if tensor.dtype not in DTYPES.values():
        return f"of type {tensor.dtype}"
    return None


def _untied(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return each tensor once, contiguous and on the CPU, and which names are further names of one."""
    first: dict[tuple[Any, ...], str] = {}
    weights: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        view = tensor.is_conj() or tensor.is_neg()
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), view)
        if tensor.numel() and place in first:
            tied[name] = first[place]
            continue
        first[place] = name
        plain = tensor.cpu().resolve_conj().resolve_neg().contiguous()
        storage = plain.untyped_storage().data_ptr()
        # safetensors refuses two tensors in one storage, such as a weight and a row of it.
        weights[name] = plain.clone() if storage in storages else plain
        storages.add(storage)
    return weights, tied
