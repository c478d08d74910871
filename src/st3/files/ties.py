"""Tied weights: one tensor under several names."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["fill_ties", "find_ties"]


def find_ties(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return each further name of a tensor with the first name of the same tensor.

    >>> weight = torch.ones(2, 3)
    >>> find_ties({"embed": weight, "bias": torch.ones(3), "head": weight})
    {'head': 'embed'}
    """
    first: dict[Any, str] = {}
    ties = {}
    for name, tensor in tensors.items():
        if not tensor.numel() or tensor.is_meta or tensor.layout is not torch.strided:
            continue  # no single piece of memory that another tensor could share
        is_view = tensor.is_conj() or tensor.is_neg()
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), is_view)
        if memory in first:
            ties[name] = first[memory]
        else:
            first[memory] = name
    return ties


def fill_ties(ties: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """Return each tied name that is not `known` with a known name of the same tensor.

    >>> fill_ties({"head": "embed"}, ["embed", "bias"]), fill_ties({"head": "embed"}, ["head"])
    ({'head': 'embed'}, {'embed': 'head'})
    """
    known = set(known)
    names: dict[str, list[str]] = {}
    for name, first in ties.items():
        names.setdefault(first, [first]).append(name)
    filled: dict[str, str] = {}
    for same in names.values():
        source = next((name for name in same if name in known), None)
        if source is not None:
            filled |= {name: source for name in same if name not in known}
    return filled
