"""A report as a figure: the density of every layer, and its multiply-adds, dense and sparse."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .report import Report

__all__ = ["draw"]

DARK, LIGHT, ACCENT = "#1f4e79", "#b8c9dc", "#c8501e"  # distinct in greyscale and for colour-blind readers


def draw(report: "Report") -> "Figure":
    """Draw one row per layer, the first on top: density on the left, MACs on the right if they were counted."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing a report needs matplotlib: pip install 'st3[plot]'") from error

    has_macs = any(row.dense_macs for row in report.rows)
    # Not pyplot, which would keep the figure alive and may open a window.
    figure = Figure(
        figsize=(11 if has_macs else 7, 1.7 + 0.19 * max(len(report.rows), 4)), layout="constrained"
    )
    panels = figure.subplots(1, 2 if has_macs else 1, sharey=True, squeeze=False)[0]
    _draw_density(panels[0], report)
    if has_macs:
        _draw_macs(panels[1], report)
    panels[0].set_yticks(
        range(len(report.rows)), [row.name.removesuffix(".weight") for row in report.rows], fontsize=8
    )
    panels[0].set_ylim(len(report.rows) - 0.4, -0.6)  # the first layer on top
    return figure


def _draw_density(axes: "Axes", report: "Report") -> None:
    """Draw a bar per layer, or a remark if the layer has no active weight left."""
    densities = [100 * (1 - row.sparsity) for row in report.rows]
    goal = None if report.target is None else 100 * (1 - report.target)
    left = min([10.0, *(density for density in [*densities, goal] if density)]) / 2
    axes.set_xscale("log")
    axes.set_xlim(left, 130)
    axes.barh(range(len(densities)), [max(d - left, 0) for d in densities], left=left, height=0.7, color=DARK)
    for line, density in enumerate(densities):
        if density == 0:
            axes.text(left * 1.05, line, "no weight left", va="center", fontsize=7, color=ACCENT)
    if goal:
        axes.axvline(goal, color=ACCENT, linewidth=1.2, label=f"target {goal:.3g} %")
        _legend(axes)
    axes.set_xlabel("active weights of the layer (%)")
    axes.set_title(f"Density, {100 * (1 - report.sparsity):.3g} % overall", loc="left", fontsize=10)
    axes.xaxis.set_major_formatter("{x:g}")
    _tidy(axes)


def _draw_macs(axes: "Axes", report: "Report") -> None:
    """Draw a dot for the dense and one for the sparse MACs of each layer, and a line between them."""
    from matplotlib.ticker import EngFormatter

    shorten = EngFormatter(places=2)
    known = [
        (line, row.dense_macs, row.sparse_macs or 0) for line, row in enumerate(report.rows) if row.dense_macs
    ]
    left = min(macs for _, dense, sparse in known for macs in (dense, sparse) if macs) / 2
    axes.set_xscale("log")
    axes.set_xlim(left, 2 * max(dense for _, dense, _ in known))
    axes.hlines(
        [line for line, _, _ in known],
        [max(sparse, left) for _, _, sparse in known],
        [dense for _, dense, _ in known],
        color=LIGHT,
        linewidth=2,
        zorder=1,
    )
    for macs, total, label, fill in (
        ([(line, dense) for line, dense, _ in known], report.dense_macs, "dense", "white"),
        ([(line, sparse) for line, _, sparse in known if sparse], report.sparse_macs, "zeros skipped", DARK),
    ):
        label = f"{label}, {shorten(total or 0)} in total"
        axes.scatter(
            [x for _, x in macs], [y for y, _ in macs], s=18, color=fill, ec=DARK, label=label, zorder=2
        )
    _legend(axes)
    axes.set_xlabel("MACs of the layer (theoretical)")
    axes.set_title("MACs", loc="left", fontsize=10)
    axes.xaxis.set_major_formatter(EngFormatter())
    _tidy(axes)


def _legend(axes: "Axes") -> None:
    """Put the legend above the panel, to the right of the title, where it hides no layer."""
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=2,
        frameon=False,
        fontsize=9,
        borderaxespad=0.2,
        handletextpad=0.4,
        columnspacing=1.2,
    )


def _tidy(axes: "Axes") -> None:
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
