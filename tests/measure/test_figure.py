"""The figure of a report."""

import dataclasses
import sys

import pytest
from matplotlib.figure import Figure

from st3.measure import LayerRow, Report


def row(number: int, zeros: int, macs: int | None) -> LayerRow:
    return LayerRow(f"layer{number}.weight", (10, 10), 100, zeros, None, None, 0, 10, macs)


def report(rows: list[LayerRow], target: float | None = 0.9) -> Report:
    return Report(tuple(rows), target, None, 0, 0, (), (), None)


def test_density_and_macs_are_drawn_side_by_side_with_the_first_layer_on_top() -> None:
    figure = report([row(i, 90, 1000 * (i + 1)) for i in range(54)]).figure()
    assert isinstance(figure, Figure)
    density, macs = figure.axes
    assert len(density.patches) == 54
    assert [density.get_xscale(), macs.get_xscale()] == ["log", "log"]
    assert [label.get_text() for label in density.get_yticklabels()][:2] == ["layer0", "layer1"]
    assert density.yaxis_inverted()


def test_the_target_is_drawn_as_a_line() -> None:
    (density,) = report([row(0, 90, None)]).figure().axes
    (line,) = density.get_lines()
    assert list(line.get_xdata()) == pytest.approx([10, 10])
    (without,) = report([row(0, 90, None)], target=None).figure().axes
    assert without.get_lines() == []


def test_without_macs_there_is_one_panel() -> None:
    assert len(report([row(0, 90, None), row(1, 50, None)]).figure().axes) == 1


def test_a_layer_without_active_weights_says_so() -> None:
    figure = report([row(0, 100, 1000), row(1, 50, 1000), row(2, 50, None)]).figure()
    assert [text.get_text() for text in figure.axes[0].texts] == ["no weight left"]


@pytest.mark.parametrize(
    "extreme",
    [
        report([]),
        report([row(0, 100, 1000)], target=1.0),
        report([row(0, 0, 1000)], target=0.0),
        report([dataclasses.replace(row(0, 0, 0), numel=0)]),
    ],
    ids=["no layer", "nothing left", "dense", "empty weight"],
)
def test_extreme_reports_can_be_drawn(extreme: Report) -> None:
    extreme.figure().draw_without_rendering()


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"drawing a report needs matplotlib: pip install 'st3\[plot\]'"):
        report([row(0, 90, None)]).figure()
