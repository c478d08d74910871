"""A line chart as SVG: title, legend with values, axes, curves.

Colours and fonts are in chart.css. The legend shows the values of the last point. On the page, hover.js replaces them
by those under the pointer, which it reads from data-x and data-y.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from .scale import Scale, epochs
from .svg import group, tag, text, text_width

__all__ = ["WIDTH", "Chart", "Series", "canvas"]

WIDTH, HEIGHT = 400.0, 262.0
LEGEND, LEGEND_LINE = 33.0, 17.0  # the first line, and from line to line
FEW = 24  # points of a curve that are all marked


@dataclass(frozen=True)
class Series:
    """One curve; a value of None is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: Literal["a", "b", "band"] = "a"  # band: broad and pale, drawn under another curve
    is_dashed: bool = False

    def points(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if y is not None and is_number(y)]


@dataclass(frozen=True)
class Chart:
    """Curves over epochs, or over another axis."""

    name: str  # of the file, and of the element on the page
    title: str
    description: str
    series: tuple[Series, ...]
    scale: Callable[[list[float]], Scale]
    show: Callable[[float], str]  # formats a value for the legend
    ring: tuple[float, float, str] | None = None  # a point to mark, and why
    last_epoch: float = 1.0
    axis: Scale | None = None  # horizontal; None: epochs
    unit: str = "epoch"  # of the horizontal axis
    axis_title: str = "epoch"

    def svg(self) -> Markup:
        x = epochs(self.last_epoch) if self.axis is None else self.axis
        y = self.scale([value for series in self.series for _, value in series.points()])
        top = LEGEND + LEGEND_LINE * max(2, math.ceil(len(self.series) / 2))
        frame = Frame(x, y, 12 + max(text_width(label) for label in y.labels), WIDTH - 12, top, HEIGHT - 34)
        parts = [
            text(f"{self.unit} {x.high:g}", WIDTH - 4, 16, "at", text_anchor="end"),
            *self._legend(),
            *frame.axes(self.axis_title),
            *(self._curve(series, frame) for series in self.series),
        ]
        if self.ring:
            parts.append(
                tag(
                    "circle",
                    cx=frame.left_of(self.ring[0]),
                    cy=frame.top_of(self.ring[1]),
                    r=4.5,
                    class_="ring",
                )
            )
        parts.append(tag("line", y1=frame.top, y2=frame.bottom, x1=-9, x2=-9, class_="cursor"))
        place = f"{frame.left:g} {frame.right:g} {x.low:g} {x.high:g}"
        settings = {"data_place": place, "data_unit": self.unit, "tabindex": 0}
        return canvas(self.name, self.title, self.description, HEIGHT, parts, **settings)

    def _legend(self) -> list[Markup]:
        entries = []
        for number, series in enumerate(self.series):
            points = series.points()
            value = tag("tspan", self.show(points[-1][1]) if points else "–", class_="value")
            key = tag("path", d="M0 -4h18", class_=_classes(series))
            entries.append(_entry(number, [key, tag("text", f"{series.name} ", value, x=24)]))
        if self.ring:
            key = tag("circle", cx=9, cy=-4, r=4.5, class_="ring")
            entries.append(_entry(-1, [key, tag("text", self.ring[2], x=24)]))  # above, beside the title
        return entries

    def _curve(self, series: Series, frame: "Frame") -> Markup:
        points = series.points()
        parts = [tag("path", d=_path(series, frame), class_=_classes(series))]
        if len(points) <= FEW and series.colour != "band":
            dots = (tag("circle", cx=frame.left_of(x), cy=frame.top_of(y), r=2.2) for x, y in points)
            parts.append(group(list(dots), f"dots {series.colour}"))
        shown = {
            "data_x": " ".join(f"{x:g}" for x, _ in points),
            "data_y": "|".join(self.show(y) for _, y in points),
        }
        return group(parts, "series", **shown)


@dataclass(frozen=True)
class Frame:
    """The rectangle that holds the curves, in units of the drawing."""

    x: Scale
    y: Scale
    left: float
    right: float
    top: float
    bottom: float

    def left_of(self, x: float) -> float:
        return self.left + (self.right - self.left) * self.x.place(x)

    def top_of(self, y: float) -> float:
        return self.bottom - (self.bottom - self.top) * self.y.place(y)

    def axes(self, title: str) -> list[Markup]:
        parts = []
        for tick, label in zip(self.y.ticks, self.y.labels, strict=True):
            height = self.top_of(tick)
            parts.append(tag("path", d=f"M{self.left:.1f} {height:.1f}H{self.right:.1f}", class_="grid"))
            parts.append(text(label, self.left - 6, height + 4, "tick", text_anchor="end"))
        for tick, label in zip(self.x.ticks, self.x.labels, strict=True):
            parts.append(tag("path", d=f"M{self.left_of(tick):.1f} {self.bottom:.1f}v4", class_="axis"))
            parts.append(text(label, self.left_of(tick), self.bottom + 16, "tick", text_anchor="middle"))
        parts.append(tag("path", d=f"M{self.left:.1f} {self.bottom:.1f}H{self.right:.1f}", class_="axis"))
        parts.append(
            text(title, (self.left + self.right) / 2, self.bottom + 30, "tick", text_anchor="middle")
        )
        return parts


def canvas(
    name: str, title: str, description: str, height: float, parts: list[Markup], **attributes: object
) -> Markup:
    """Return the drawing with these `parts`, with a title and a description for readers who cannot see it."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        tag("rect", width=WIDTH, height=height, class_="paper"),
        text(title, 0, 16, "title"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        class_="chart",
        id=name,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        **attributes,
    )


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _entry(number: int, parts: list[Markup]) -> Markup:
    return group(
        parts, transform=f"translate({number % 2 * WIDTH / 2:g} {LEGEND + LEGEND_LINE * (number // 2):g})"
    )


def _classes(series: Series) -> str:
    return f"line {series.colour}{' dashed' if series.is_dashed else ''}"


def _path(series: Series, frame: Frame) -> str:
    """Return the curve as a path; points inside a flat stretch are left out, since they change nothing."""
    pieces: list[list[tuple[str, str]]] = [[]]
    for x, y in zip(series.x, series.y, strict=True):
        if not is_number(y) or y is None:
            pieces.append([])
            continue
        piece, place = pieces[-1], (f"{frame.left_of(x):.1f}", f"{frame.top_of(y):.1f}")
        if len(piece) >= 2 and piece[-1][1] == piece[-2][1] == place[1]:
            piece[-1] = place
        else:
            piece.append(place)
    return "".join("M" + "L".join(" ".join(place) for place in piece) for piece in pieces if piece)
