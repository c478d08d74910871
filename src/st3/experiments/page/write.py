"""Write the page of a run and its charts."""

import base64
import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from ...atomic import write_text
from ...training.paths import FIGURES, REPORT
from ..results import Run
from .content import headline, key_numbers, result_text, spec_rows, version_rows
from .curves import curves
from .layer_charts import density_chart, heat_map, macs_chart
from .loading import commands, load_code, model_file
from .part_charts import part_chart, part_table
from .tables import epoch_table, layer_rows, layer_table, time_table

__all__ = ["write_figures", "write_page"]

HERE = Path(__file__).parent


def write_page(run_folder: str | os.PathLike[str], destination: str | os.PathLike[str] | None = None) -> Path:
    """Write a self-contained HTML page of a run, by default RUN/report.html, and return its path.

    The page of an unfinished run shows how far it has come.
    """
    run = Run.open(run_folder)
    path = run.path / REPORT if destination is None else Path(destination)
    content = _page(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, content)
    return path


def write_figures(run_folder: str | os.PathLike[str], *, only_missing: bool = False) -> list[Path]:
    """Write each chart of the page as RUN/figures/NAME.svg; return their paths. Those that exist may be left."""
    run = Run.open(run_folder)
    style = Markup("<style>{}</style></svg>").format(Markup(_file("chart.css")))
    paths = []
    for name, chart in {**_part_charts(run), **_curve_charts(run), **_layer_charts(run)}.items():
        path = run.path / FIGURES / f"{name}.svg"
        path.parent.mkdir(exist_ok=True)
        content = f'<?xml version="1.0" encoding="UTF-8"?>\n{chart.removesuffix("</svg>")}{style}\n'
        if not (only_missing and path.exists()):
            write_text(path, content)
        paths.append(path)
    return paths


def _page(run: Run) -> str:
    style, script = _file("chart.css") + _file("page.css"), _file("hover.js")
    weights = model_file(run)
    return _template().render(
        run=run,
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        headline=headline(run),
        result=result_text(run),
        numbers=key_numbers(run),
        part_charts=_part_charts(run),
        parts=part_table(run),
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


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html")


def _part_charts(run: Run) -> dict[str, Markup]:
    chart = part_chart(run)
    return {} if chart is None else {chart.name: chart.svg()}


def _curve_charts(run: Run) -> dict[str, Markup]:
    return {chart.name: chart.svg() for chart in curves(run)}


def _layer_charts(run: Run) -> dict[str, Markup]:
    """Return the charts with one line per layer; none for a dense run, which has no zeros."""
    rows, charts = layer_rows(run), {}
    if run.layers and run.layers[-1]["layers"]:
        charts["layer-sparsity"] = heat_map(run.layers)
    if run.method is not None and rows:
        charts["layer-density"] = density_chart(rows, run.target)
    if run.method is not None and any(row.get("dense_macs") for row in rows):
        charts["layer-macs"] = macs_chart(rows)
    return charts


def _policy(style: str, script: str) -> str:
    """Return a content policy that allows this style and script, by their hashes, and nothing else."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> Any:
    return (HERE / name).read_text(encoding="utf-8")
