"""The command as a process: how it starts, and its message if a package is missing."""

import subprocess
import sys

import pytest

import st3


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)


def test_it_runs_as_a_module():
    found = run("-m", "st3", "--version")
    assert (found.returncode, found.stdout) == (0, f"st3 {st3.__version__}\n")


@pytest.mark.parametrize("package", ["typer", "pydantic", "rich", "safetensors", "jinja2"])
def test_it_names_the_package_that_is_missing(package):
    code = f"import sys; sys.modules[{package!r}] = None; from st3.__main__ import main; main()"
    found = run("-c", code)
    assert found.stderr == f"the st3 command needs {package}: pip install 'st3[train]'\n"
    assert (found.returncode, found.stdout) == (1, "")


def test_a_stop_while_the_command_is_loaded_is_one_line():
    code = """
import sys, st3
class Stop:
    def find_spec(self, name, *rest):
        if name == "st3.cli.train":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
from st3.__main__ import main
main()
"""
    found = run("-c", code)
    assert (found.returncode, found.stdout) == (130, "")
    assert found.stderr == "stopped before the command began\n"


def test_help_loads_neither_data_sets_nor_the_training_loop():
    code = "import sys; from st3.cli.app import app; print([m for m in sys.modules if m.startswith('st3.')])"
    loaded = run("-c", code).stdout
    assert "st3.cli.train" in loaded
    assert "st3.data" not in loaded
    assert "st3.experiments" not in loaded
    assert "st3.training" not in loaded
