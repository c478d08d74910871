"""Put the page and the figures together and write them."""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...atomic import write_text
from ..results import Run
from .content import headline, key_figures, spec_rows, standing, version_rows
from .curves import curves
from .cycle_figures import cycle_chart, cycle_table
from .layer_charts import density_chart, heat_map, macs_chart
from .loading import commands, load_code, model_file
from .tables import epoch_table, layer_rows, layer_table, time_table

__all__ = ["write_figures", "write_page"]

HERE = Path(__file__).parent


def write_page(run_folder: str | os.PathLike[str], destination: str | os.PathLike[str] | None = None) -> Path:
    """Write a run as one HTML page that needs nothing else, by default RUN/report.html; return its path.

    A run that is not finished gives the page so far.
    """
    run = Run.open(run_folder)
    path = run.path / "report.html" if destination is None else Path(destination)
    content = _page(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, content)
    return path


def write_figures(run_folder: str | os.PathLike[str]) -> list[Path]:
    """Write each chart of the page as RUN/figures/NAME.svg; return their paths."""
    run = Run.open(run_folder)
    style = Markup("<style>{}</style></svg>").format(Markup(_file("chart.css")))
    paths = []
    for name, chart in {**_cycle_charts(run), **_curve_charts(run), **_layer_charts(run)}.items():
        path = run.path / "figures" / f"{name}.svg"
        path.parent.mkdir(exist_ok=True)
        content = f'<?xml version="1.0" encoding="UTF-8"?>\n{chart.removesuffix("</svg>")}{style}\n'
        write_text(path, content)
        paths.append(path)
    return paths


def _page(run: Run) -> str:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = _file("chart.css") + _file("page.css"), _file("hover.js")
    weights = model_file(run)
    return environment.get_template("template.html").render(
        run=run,
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        headline=headline(run),
        standing=standing(run),
        figures=key_figures(run),
        cycle_charts=_cycle_charts(run),
        cycles=cycle_table(run),
        curves=_curve_charts(run),
        layer_charts=_layer_charts(run),
        epochs=epoch_table(run),
        layers=layer_table(run),
        times=time_table(run),
        spec=spec_rows(run),
        versions=version_rows(run),
        weights=weights,
        code=load_code(run, weights) if weights else None,
        commands=commands(run),
    )


def _cycle_charts(run: Run) -> dict[str, Markup]:
    chart = cycle_chart(run)
    return {} if chart is None else {chart.name: chart.svg()}


def _curve_charts(run: Run) -> dict[str, Markup]:
    return {chart.name: chart.svg() for chart in curves(run)}


def _layer_charts(run: Run) -> dict[str, Markup]:
    """A dense run has no zeros to show; its layers are in the table only."""
    rows, charts = layer_rows(run), {}
    if run.layers and run.layers[-1]["layers"]:
        charts["layer-sparsity"] = heat_map(run.layers)
    if run.method is not None and rows:
        charts["layer-density"] = density_chart(rows, run.target)
    if run.method is not None and any(row.get("dense_macs") for row in rows):
        charts["layer-macs"] = macs_chart(rows)
    return charts


def _policy(style: str, script: str) -> str:
    """Allow this style and this script, by their hashes, and nothing else: no request, no frame, no form."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> Any:
    return (HERE / name).read_text(encoding="utf-8")
