"""The command as tests call it, and a finished run that many of them read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from st3.cli.app import app


@pytest.fixture
def st3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Call the command in an empty folder; the answer has exit_code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ST3_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words], prog_name="st3")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run with a dense twin; tests must not change it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    answer = CliRunner().invoke(app, ["train", "--epochs", "2", "--run", str(folder), "--quiet"])
    assert answer.exit_code == 0, answer.output
    return folder
