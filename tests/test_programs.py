"""The programs beside the library start and do what they say."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = [p for p in sorted((ROOT / "benchmarks").glob("*.py")) if "def main(" in p.read_text()]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_benchmark_explains_itself(program):
    shown = subprocess.run(
        [sys.executable, str(program), "--help"], capture_output=True, text=True, check=True
    )
    assert "--rounds" in shown.stdout


def test_the_demo_trains_dense_and_sparse_and_reports_both(capsys, monkeypatch):
    spec = importlib.util.spec_from_file_location("own_loop", ROOT / "examples" / "own_loop.py")
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    monkeypatch.setattr(demo, "EPOCHS", 2)
    pictures = demo.pictures
    monkeypatch.setattr(demo, "pictures", lambda count, seed: pictures(count // 10, seed))
    demo.main()
    shown = capsys.readouterr().out
    assert "90.00 % of 23,808 weights" in shown
    assert "test accuracy on 400 pictures: dense" in shown
