"""Functions that models write out in several operators, recognised in the graph.

A pattern is a tuple of operators and patterns of their arguments. A string stands for any argument, and for the same
one wherever it occurs; a number for a number; True for whatever is true.
"""

from typing import Any

import torch
from torch import fx

from .aten_call import COPIES, aten

__all__ = ["TANH_GELU", "UNCENTRED_NORM", "match"]

Found = dict[str, Any]

ADD, MUL = (aten.add.Tensor, aten.add.Scalar), (aten.mul.Tensor, aten.mul.Scalar)
POWER, MEAN = (aten.pow.Tensor_Scalar,), (aten.mean.dim,)

# x * rsqrt(mean(x ** 2) + eps): RMS norm without its weight.
UNCENTRED_NORM = (MUL, "x", ((aten.rsqrt.default,), (ADD, (MEAN, (POWER, "x", 2.0), "axes", True), "eps")))

# 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))
_INNER = (ADD, "x", (MUL, (POWER, "x", 3.0), 0.044715))
TANH_GELU = (MUL, (MUL, "x", 0.5), (ADD, ((aten.tanh.default,), (MUL, _INNER, 0.7978845608)), 1.0))


def match(node: Any, pattern: Any, found: Found | None = None) -> Found | None:
    """Return what the strings of a pattern stand for, if a node of the graph matches it."""
    found = {} if found is None else found
    match pattern:
        case True:
            return found if node is True else None
        case float():
            is_same = isinstance(node, int | float) and abs(node - pattern) <= 1e-6 * abs(pattern)
            return found if is_same else None
        case str():
            known = found.get(pattern, node)
            return {**found, pattern: known} if _origin(known) is _origin(node) else None
    operators, *arguments = pattern
    if not isinstance(node, fx.Node) or node.target not in operators or node.kwargs:
        return None
    if len(node.args) != len(arguments):
        return None
    orders = [arguments, arguments[::-1]] if operators in (ADD, MUL) else [arguments]
    for order in orders:
        made: Found | None = found
        for given, wanted in zip(node.args, order, strict=True):
            made = None if made is None else match(given, wanted, made)
        if made is not None:
            return made
    return None


def _origin(node: Any) -> Any:
    """Return the node behind copies that change nothing."""
    while isinstance(node, fx.Node) and node.target in COPIES:
        source = node.all_input_nodes[0]
        if source.meta["val"].dtype is not torch.float32 or node.meta["val"].dtype is not torch.float32:
            break
        node = source
    return node
