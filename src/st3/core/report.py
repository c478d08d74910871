"""From layers to a report: the counts of this model, now, and its multiply-adds for an example input."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from ..measure import LayerRow, Report, count_macs
from .counting import count_all
from .layers.find import find_layers, named_weights
from .layers.layer import Layers
from .layers.patterns import Patterns

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
    return build_report(model, layers, example_input)


def build_report(
    model: nn.Module,
    layers: Layers,
    example_input: Any,
    *,
    target: float | None = None,
    step: int | None = None,
    thresholds: Mapping[str, float | None] = MappingProxyType({}),
    layer_targets: Mapping[str, float | None] = MappingProxyType({}),
) -> Report:
    """Return the report of `layers`, with what a sparsifier knows about them."""
    macs = None if example_input is None else count_macs(model, example_input)
    rows, counts = [], count_all(list(layers))
    for layer in layers:
        found = counts[layer.name]
        rows.append(
            LayerRow(
                name=layer.name,
                shape=layer.shape,
                numel=layer.numel,
                zeros=found.zeros,
                target=layer_targets.get(layer.name, layer.sparsity),
                in_budget=layer.sparsity is None,
                threshold=thresholds.get(layer.name),
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
