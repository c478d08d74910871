"""The page of the paper is what its program writes today, and rests on pictures that are there."""

import importlib.util
from pathlib import Path

import pytest

from st3.experiments.conduct import draw_study
from st3.experiments.grid.budgets import BUDGETS
from st3.experiments.studies import STUDIES

ROOT = Path(__file__).parents[1]
DRAWN = sorted((ROOT / "results" / "studies").glob("*/*/points.csv"))


def test_the_page_is_what_the_program_writes():
    spec = importlib.util.spec_from_file_location("paper_page", ROOT / "docs" / "paper_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run: python docs/paper_page.py"


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: f"{path.parents[1].name}-{path.parent.name}")
def test_what_is_kept_of_a_study_is_what_its_csv_files_say(path, tmp_path):
    """Drawn again from the csv files alone, points and page are the same."""
    import shutil

    budget, study = path.parents[1].name, path.parent.name
    folder = tmp_path / budget / study
    shutil.copytree(path.parent, folder)
    draw_study(STUDIES[study](), BUDGETS[budget], tmp_path)
    for name in ("points.csv", "README.md"):
        assert (folder / name).read_text() == (path.parent / name).read_text()
