"""Tables 2 and 3: every published row, the multiply-adds that its allocation has by our counter, and our runs."""

from collections.abc import Sequence
from functools import cache
from statistics import fmean
from typing import ClassVar, final

import torch

from ...core.budget.allocation import ALLOCATIONS, Pool
from ...core.layers.find import find_layers
from ...core.layers.patterns import FIRST, Patterns, is_depthwise
from ...core.report import report
from ...core.selection.select import quota
from ...models import MODELS
from ..evidence.points import Point
from ..evidence.published import published_points
from .series import PUBLISHED_LABELS, SIGMA, ST3
from .study import STUDIES, Panel, Study

__all__ = ["TableMobileNet", "TableResNet50", "allocated_macs"]

LABELS = {**PUBLISHED_LABELS, ST3.name: ST3.label, SIGMA.name: SIGMA.label, "dense": "dense"}


class _Table(Study):
    """A table of the paper on one network."""

    network: ClassVar[str]
    # Allocations that do not depend on trained weights: (name, layers left dense), by method.
    allocations: ClassVar[dict[str, tuple[str, tuple[object, ...]]]]
    # Where the published sparsity is that of the whole network: the sparsity of the layers that are not dense.
    nominal: ClassVar[dict[float, float]] = {}

    def panels(self) -> Sequence[Panel]:
        return [Panel(self.title, (ST3, SIGMA), self.network, "macs", with_published=True)]

    def table(self, points: Sequence[Point]) -> list[str]:
        lines = [
            "| method | sparsity | accuracy, paper | MMACs, paper | MMACs, counted | accuracy, ours | MMACs, ours |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        published = [p for p in published_points() if p.network == self.network]
        for row in sorted(published, key=lambda p: (p.sparsity, p.method)):
            own = [p for p in points if p.is_ours and (p.method, p.sparsity) == (row.method, row.sparsity)]
            printed = "" if row.macs is None else f"{row.macs / 1e6:.0f}"
            accuracy = f"{100 * fmean(p.score for p in own):.2f}" if own else ""
            macs = f"{fmean(p.macs or 0 for p in own) / 1e6:.0f}" if own else ""
            lines.append(
                f"| {LABELS[row.method]} | {100 * row.sparsity:g} % | {100 * row.score:.2f} | "
                f"{printed} | {self._counted(row)} | {accuracy} | {macs} |"
            )
        return lines

    def _counted(self, row: Point) -> str:
        if row.method == "dense":
            return f"{_dense(self.network)[1] / 1e6:.1f}"
        if row.method not in self.allocations:
            return ""  # it depends on the trained weights
        name, dense = self.allocations[row.method]
        return f"{allocated_macs(self.network, self.nominal.get(row.sparsity, row.sparsity), name, dense) / 1e6:.1f}"


@final
@STUDIES.register("table-resnet50")
class TableResNet50(_Table):
    """Every row of the table on ResNet-50."""

    name = "table-resnet50"
    title = "ResNet-50 on ImageNet, in numbers"
    shown_in = "table 3"
    network = "resnet50"
    allocations: ClassVar = {
        "gmp": ("uniform", ()),
        "dnw": ("uniform", ()),
        "rigl": ("uniform", (FIRST,)),
        "rigl-erk": ("erk", ()),
    }
    differences = (
        "the paper copies the multiply-adds of RigL from its authors, who print two digits of their share of the dense "
        "count; those at 96.5 % fit no allocation."
    )


@final
@STUDIES.register("table-mobilenet")
class TableMobileNet(_Table):
    """Every row of the table on MobileNetV1."""

    name = "table-mobilenet"
    title = "MobileNetV1 on ImageNet, in numbers"
    shown_in = "table 2"
    network = "mobilenet_v1"
    allocations: ClassVar = {"gmp": ("uniform", (FIRST, is_depthwise)), "rigl-erk": ("erk", ())}
    nominal: ClassVar = {0.7411: 0.75, 0.8903: 0.9}
    differences = (
        "the multiply-adds of RigL + ERK are copied from its authors, who count depthwise layers as dense at 75 and "
        "95 % (296 and 103) and as pruned at 90 % (154); ours are with all layers pruned."
    )


@cache
def allocated_macs(network: str, sparsity: float, allocation: str, dense: tuple[object, ...]) -> float:
    """Return the multiply-adds of a network whose layers share a sparsity by an allocation, without training.

    >>> round(allocated_macs("mobilenet_v1", 0.9, "uniform", ()) / 1e6, 1)
    56.9
    """
    model, total, macs = _dense(network)
    patterns: Patterns = dense  # type: ignore[assignment]
    layers = find_layers(model, exclude=patterns, trained_only=False)
    pool = Pool([*layers], [layer.parameter.detach() for layer in layers])
    saved = 0.0
    for layer, cut in zip(
        layers, ALLOCATIONS[allocation]().cut(pool, quota(pool.numel, sparsity)), strict=True
    ):
        if cut is not None:
            zeros = int((layer.parameter.abs() <= cut.threshold).sum())
            saved += macs[layer.name] * zeros / layer.parameter.numel()
    return total - saved


@cache
def _dense(network: str) -> tuple[torch.nn.Module, int, dict[str, int]]:
    """Return a network, its multiply-adds, and those of its layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MODELS[network]()
    found = report(model, torch.zeros(1, *MODELS.shape(network)))
    assert found.dense_macs is not None
    return model, found.dense_macs, {row.name: row.dense_macs or 0 for row in found.rows}
