"""Charts with one line per layer, the first on top: sparsity over time, density, multiply-adds.

All have the same height, and each layer is at the same place, so that they can be read side by side.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from .chart import WIDTH, canvas
from .formats import count, percent, real, short
from .scale import Scale, logarithmic, nice_step
from .svg import fit, group, tag, text, text_width

__all__ = ["density_chart", "heat_map", "macs_chart"]

TOP, RIGHT = 62.0, WIDTH - 14
NAME_SIZE, LONGEST = 10.5, 22
# Sparsities at which the colour changes; each step about halves the active weights.
SHADES = (0.0, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.998)
EMPTY = len(SHADES)  # the shade of a layer without an active weight


class Lines:
    """The position of each layer's line."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [name.removesuffix(".weight") for name in names]
        self.each = min(22.0, max(14.0, 110 / len(names)))
        self.left = 8 + max(text_width(fit(name, LONGEST), NAME_SIZE) for name in self.names)
        self.bottom = TOP + self.each * len(names)
        self.height = self.bottom + 50

    def middle(self, number: int) -> float:
        return TOP + self.each * (number + 0.5)

    def labels(self) -> list[Markup]:
        return [
            text(fit(name, LONGEST), self.left - 6, self.middle(number) + 3.5, "name", text_anchor="end")
            for number, name in enumerate(self.names)
        ]


def heat_map(records: Sequence[dict[str, Any]]) -> Markup:
    """Draw the sparsity of each layer after each epoch."""
    names = list(records[-1]["layers"])
    lines = Lines(names)
    numbers = [record["epoch"] for record in records]
    rows = [[_sparsity(record["layers"].get(name)) for record in records] for name in names]
    wide = RIGHT - lines.left
    cells = tag(
        "svg",
        *_cells(rows),
        x=lines.left,
        y=TOP,
        width=wide,
        height=lines.bottom - TOP,
        viewBox=f"0 0 {len(numbers)} {len(rows)}",
        preserveAspectRatio="none",
        class_="cells",
    )
    # Per mille, rounded down near the top, so that only a layer without active weights has 1000.
    data = [
        tag(
            "g",
            data_name=name,
            data_values=" ".join(
                "" if s is None else f"{1000 * s:.0f}" if s < 0.9995 else f"{math.floor(1000 * s)}"
                for s in row
            ),
        )
        for name, row in zip(names, rows, strict=True)
    ]
    parts = [
        text("point at a cell to read it", 0, 36, "at"),
        *lines.labels(),
        cells,
        *_epoch_ticks(numbers, lines, wide),
        *_shade_key(lines),
        *data,
    ]
    place = f"{lines.left:g} {RIGHT:g} {TOP:g} {lines.bottom:g}"
    description = (
        f"Sparsity of {len(names)} layers after {len(numbers)} epochs; the table below holds the numbers."
    )
    return canvas(
        "layer-sparsity",
        "Sparsity of each layer after each epoch",
        description,
        lines.height + 12,
        parts,
        data_cells=place,
        data_epochs=" ".join(map(str, numbers)),
    )


def _cells(rows: list[list[float | None]]) -> list[Markup]:
    """Return one path per shade; neighbours of the same shade are one stroke, which keeps the page small."""
    paths: dict[int, list[str]] = {}
    for line, row in enumerate(rows):
        start = 0
        shades = [None if s is None else _shade(s) for s in row]
        for column in range(1, len(shades) + 1):
            if column == len(shades) or shades[column] != shades[start]:
                shade = shades[start]
                if shade is not None:
                    paths.setdefault(shade, []).append(f"M{start} {line + 0.5}h{column - start}")
                start = column
    return [tag("path", d="".join(paths[shade]), class_=f"h{shade}") for shade in sorted(paths)]


def _shade(sparsity: float) -> int:
    return EMPTY if sparsity == 1 else bisect_right(SHADES, sparsity) - 1


def _shade_key(lines: Lines) -> list[Markup]:
    """Return the colours and the sparsity at which each begins; "all" is a layer without active weights."""
    labels = [f"{100 * shade:g}" for shade in SHADES] + ["all"]
    wide, top = 30.0, lines.bottom + 34
    left = RIGHT - wide * len(labels)
    parts = [text("sparsity (%) from", left - 6, top + 9, "tick", text_anchor="end")]
    for number, label in enumerate(labels):
        place = left + wide * number
        parts.append(tag("path", d=f"M{place:g} {top + 5:g}h{wide:g}", class_=f"key h{number}"))
        parts.append(text(label, place + 2, top + 22, "tick"))
    return parts


def _epoch_ticks(numbers: list[int], lines: Lines, wide: float) -> list[Markup]:
    step = max(1, round(nice_step(max(len(numbers), 2), 8)))
    parts = [text("epoch", lines.left - 6, lines.bottom + 16, "tick", text_anchor="end")]
    for column, number in enumerate(numbers):
        if number % step == 0 or len(numbers) == 1:
            x = lines.left + wide * (column + 0.5) / len(numbers)
            parts.append(tag("path", d=f"M{x:.1f} {lines.bottom:.1f}v4", class_="axis"))
            parts.append(text(str(number), x, lines.bottom + 16, "tick", text_anchor="middle"))
    return parts


def density_chart(rows: Sequence[dict[str, Any]], target: float | None) -> Markup:
    """Draw the active weights of each layer in per cent; the target as a line."""
    lines = Lines([row["name"] for row in rows])
    densities = [100 * (1 - _or_zero(_sparsity(row))) for row in rows]
    goal = 100 * (1 - target) if target else None
    scale = logarithmic([100.0, *(d for d in densities if d), *([goal] if goal else [])])
    parts = _axis(scale, lines, "active weights of the layer (%)")
    goal_x = lines.left + (RIGHT - lines.left) * scale.place(goal) if goal else RIGHT
    words_x = lines.left + 4 if goal_x > lines.left + 80 else goal_x + 5  # away from the line of the target
    for number, (row, density) in enumerate(zip(rows, densities, strict=True)):
        middle, note = lines.middle(number), tag("title", _density_note(row))
        if density:
            wide = (RIGHT - lines.left) * scale.place(density)
            bar = tag("rect", note, x=lines.left, y=middle - 4, width=max(wide, 1.0), height=8, class_="bar")
            parts.append(bar)
        else:
            parts.append(text("no weight left", words_x, middle + 3.5, "warning"))
    if goal:
        parts.append(tag("path", d=f"M{goal_x:.1f} {TOP - 4:g}V{lines.bottom:.1f}", class_="goal"))
        parts.append(tag("path", d="M4 36h12", class_="goal"))
        parts.append(text(f"target of the whole model, {goal:.3g} %", 24, 40))
    return canvas(
        "layer-density",
        "Density of each layer",
        f"Active weights of {len(rows)} layers in per cent, on a logarithmic axis; the table below holds the numbers.",
        lines.height,
        parts + lines.labels(),
    )


def macs_chart(rows: Sequence[dict[str, Any]]) -> Markup:
    """Draw the multiply-adds of each layer: a ring for dense ones, a disc with zeros skipped."""
    lines = Lines([row["name"] for row in rows])
    pairs = [(row.get("dense_macs"), row.get("sparse_macs")) for row in rows]
    scale = logarithmic([macs for pair in pairs for macs in pair if macs])
    parts = _axis(scale, lines, "MACs of the layer (theoretical)")
    for number, (row, (dense, sparse)) in enumerate(zip(rows, pairs, strict=True)):
        if not dense:
            continue
        y = lines.middle(number)
        far, near = (lines.left + (RIGHT - lines.left) * scale.place(n or 0) for n in (dense, sparse))
        note = f"{row['name']}: {short(dense)} MACs dense, {short(sparse)} with zeros skipped"
        marks = [tag("title", note), tag("path", d=f"M{near:.1f} {y:.1f}H{far:.1f}", class_="span")]
        marks.append(tag("circle", cx=far, cy=y, r=3.2, class_="dense"))
        if sparse:
            marks.append(tag("circle", cx=near, cy=y, r=3.2, class_="sparse"))
        parts.append(group(marks))
    parts += [tag("circle", cx=9, cy=36, r=3.2, class_="dense"), text("dense", 20, 40)]
    parts += [tag("circle", cx=79, cy=36, r=3.2, class_="sparse"), text("zeros skipped", 90, 40)]
    return canvas(
        "layer-macs",
        "Multiply-adds of each layer",
        f"Multiply-adds of {len(rows)} layers, dense and with zeros skipped, on a logarithmic axis; "
        "the table below holds the numbers.",
        lines.height,
        parts + lines.labels(),
    )


def _axis(scale: Scale, lines: Lines, label: str) -> list[Markup]:
    parts = []
    for tick, words in zip(scale.ticks, scale.labels, strict=True):
        x = lines.left + (RIGHT - lines.left) * scale.place(tick)
        parts.append(tag("path", d=f"M{x:.1f} {TOP:g}V{lines.bottom:.1f}", class_="grid"))
        parts.append(text(words, x, lines.bottom + 16, "tick", text_anchor="middle"))
    parts.append(text(label, (lines.left + RIGHT) / 2, lines.bottom + 32, "tick", text_anchor="middle"))
    return parts


def _density_note(row: dict[str, Any]) -> str:
    active, threshold = row["weights"] - row["zeros"], real(row.get("threshold"))
    amount = f"{count(active)} of {count(row['weights'])} weights"
    return f"{row['name']}: {amount}, sparsity {percent(_sparsity(row))}, threshold {threshold}"


def _sparsity(row: dict[str, Any] | None) -> float | None:
    return row["zeros"] / row["weights"] if row and row["weights"] else None


def _or_zero(sparsity: float | None) -> float:
    return sparsity or 0.0
