"""The page of the paper and README's verdicts are what their program writes today, and rest on what is there."""

import importlib
import shutil
from pathlib import Path

import pytest

from st3.experiments.conduct import draw_study
from st3.experiments.grid.budgets import budget_named
from st3.experiments.studies import STUDIES

ROOT = Path(__file__).parents[1]
DRAWN = sorted((ROOT / "results" / "studies").glob("*/*/points.csv"))


def test_the_page_and_the_table_are_what_the_program_writes(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    program, generated = importlib.import_module("paper_page"), importlib.import_module("generated")
    assert program.PAGE.read_text(encoding="utf-8") == program.page(), "run: python docs/paper_page.py"
    text = program.README.read_text(encoding="utf-8")
    table = {"verdicts": program.short_table()}
    assert generated.filled(text, table, program.PROGRAM) == text, "run: python docs/paper_page.py"


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: f"{path.parents[1].name}-{path.parent.name}")
def test_what_is_kept_of_a_study_is_what_its_csv_files_say(path, tmp_path):
    """Drawn again from the csv files alone, points and page are the same."""
    budget, study = path.parents[1].name, path.parent.name
    folder = tmp_path / budget / study
    shutil.copytree(path.parent, folder)
    draw_study(STUDIES[study](), budget_named(budget), tmp_path)
    for name in ("points.csv", "README.md"):
        assert (folder / name).read_text() == (path.parent / name).read_text()
