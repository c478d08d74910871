"""From layers to a report: the counts of this model, now, and its multiply-adds for an example input."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..measure import LayerRow, Report, count_macs
from .allocations import Cut
from .inspection import count_all
from .layers import Layer, Layers, find_layers, named_weights
from .patterns import Patterns

__all__ = ["build_report", "report"]


def report(
    model: nn.Module, example_input: Any = None, *, include: Patterns | None = None, exclude: Patterns = ()
) -> Report:
    """Report on any model, with or without a sparsifier: zeros per layer and, with an example input, multiply-adds.

    >>> from torch import nn
    >>> report(nn.Linear(4, 2)).zeros
    0
    """
    layers = find_layers(model, include=include, exclude=exclude, trained_only=False)
    return build_report(model, layers, {}, None, None, example_input)


def build_report(
    model: nn.Module,
    layers: Layers,
    cuts: Mapping[str, Cut | None],
    target: float | None,
    step: int | None,
    example_input: Any,
    *,
    is_final: bool = True,
) -> Report:
    """Return the report of `layers`, with the thresholds of `cuts`; `is_final` if those stand at the target."""
    macs = None if example_input is None else count_macs(model, example_input)
    rows, counts = [], count_all(list(layers))
    for layer in layers:
        found, cut = counts[layer.name], cuts.get(layer.name)
        rows.append(
            LayerRow(
                name=layer.name,
                shape=layer.shape,
                numel=layer.weights,
                zeros=found.zeros,
                target=_target(layer, cut) if is_final else layer.sparsity,
                in_budget=layer.sparsity is None,
                threshold=None if cut is None or cut.in_groups else float(cut.threshold),
                empty_filters=found.empty_filters,
                filters=found.filters,
                dense_macs=None if macs is None else macs.of(layer.parameter),
            )
        )
    return Report(
        rows=tuple(rows),
        target=target,
        step=step,
        other_parameters=sum(p.numel() for _, p in named_weights(model)) - sum(row.numel for row in rows),
        other_macs=0 if macs is None else macs.total - sum(row.dense_macs or 0 for row in rows),
        uncounted=() if macs is None else macs.uncounted,
        skipped=tuple((s.name, s.reason) for s in layers.skipped),
        input_shape=None if macs is None else macs.input_shape,
    )


def _target(layer: Layer, cut: Cut | None) -> float | None:
    """Return the sparsity that the allocation, or the user, gave this layer for itself."""
    if layer.sparsity is not None or cut is None or cut.zeros is None:
        return layer.sparsity
    return cut.zeros / layer.weights
