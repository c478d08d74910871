"""The multiply-adds of every torch operation that is a matrix product.

The table is keyed by name, because not every version of torch has every operator. Shapes include the batch, so the
batch is counted.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

__all__ = ["PRODUCTS", "Product"]


class Product(NamedTuple):
    """The multiply-adds of one product, and its factors: the first that comes from a parameter is its weight."""

    macs: int
    factors: tuple[Tensor, ...]


Formula = Callable[[Sequence[Any], Any], Product]  # (arguments, result) -> product


def _matrices(first: int) -> Formula:
    """Return the formula for (.., n, k) times (.., k, m); argument number `first` is the left factor."""

    def formula(arguments: Sequence[Any], result: Any) -> Product:
        left, right = arguments[first : first + 2]
        return Product(left.numel() * right.shape[-1], (right, left))

    return formula


def _matrix_and_vector(first: int) -> Formula:
    """Return the formula for (n, k) times (k), or (k) times (k); argument number `first` is the left factor."""

    def formula(arguments: Sequence[Any], result: Any) -> Product:
        left, right = arguments[first : first + 2]
        return Product(left.numel(), (right, left))

    return formula


def _linear(arguments: Sequence[Any], result: Any) -> Product:
    """Count (.., k) times the transpose of (m, k)."""
    x, weight = arguments[:2]
    return Product(x.numel() * weight.shape[0], (weight, x))


def _grouped(arguments: Sequence[Any], result: Any) -> Product:
    """Count a product whose rows, columns or inner axis are split into groups, with a matrix for each (experts)."""
    left, right = arguments[:2]
    rows = left.shape[-2] * left.shape[-1] if right.dim() == 2 and left.dim() == 3 else left.numel()
    return Product(rows * right.shape[-1], (right, left))


def _convolution(arguments: Sequence[Any], result: Any) -> Product:
    """Count each weight once per position of the output, or of the input if the convolution is transposed.

    Groups need no extra factor: the weight of a grouped convolution is smaller by the number of groups.
    """
    x, weight = arguments[:2]
    is_transposed = len(arguments) > 6 and arguments[6] is True
    scanned = x if is_transposed else result
    positions = scanned.shape[0] * scanned.shape[2:].numel()
    return Product(weight.numel() * positions, (weight,))


def _attention(arguments: Sequence[Any], result: Any) -> Product:
    """Count Q·Kᵀ and the product with V for every head and query, masked positions included."""
    query, key, value = arguments[:3]
    pairs = query.shape[:-1].numel() * key.shape[-2]
    return Product(pairs * (query.shape[-1] + value.shape[-1]), ())


PRODUCTS: dict[str, Formula] = {
    "aten.mm": _matrices(0),
    "aten.bmm": _matrices(0),
    "aten._int_mm": _matrices(0),
    "aten._scaled_mm": _matrices(0),
    "aten.addmm": _matrices(1),
    "aten._addmm_activation": _matrices(1),
    "aten.baddbmm": _matrices(1),
    "aten.addbmm": _matrices(1),
    "aten._grouped_mm": _grouped,
    "aten._scaled_grouped_mm": _grouped,
    "aten.mv": _matrix_and_vector(0),
    "aten.dot": _matrix_and_vector(0),
    "aten.vdot": _matrix_and_vector(0),
    "aten.addmv": _matrix_and_vector(1),
    "aten.linear": _linear,
    "aten.mkldnn_linear": _linear,
    "mkldnn._linear_pointwise": _linear,
    "aten.convolution": _convolution,
    "aten._convolution": _convolution,
    "aten.convolution_overrideable": _convolution,
    "aten.mkldnn_convolution": _convolution,
    "aten.cudnn_convolution": _convolution,
    "mkldnn._convolution_pointwise": _convolution,
    "aten.scaled_dot_product_attention": _attention,
    "aten._scaled_dot_product_attention_math": _attention,
    "aten._scaled_dot_product_attention_math_for_mps": _attention,
    "aten._scaled_dot_product_flash_attention": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten._scaled_dot_product_efficient_attention": _attention,
    "aten._scaled_dot_product_cudnn_attention": _attention,
    "aten._scaled_dot_product_fused_attention_overrideable": _attention,
}
