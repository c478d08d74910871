"""The command as a process: how it starts, and its message if a package is missing."""

import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from tests.processes import run_python

import st3
from st3.engine import native

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def version() -> subprocess.CompletedProcess[str]:
    """Ask for the version; Python lists every module that it loads on the standard error."""
    return run("-X", "importtime", "-m", "st3", "--version")


def test_it_runs_as_a_module_and_tells_all_versions(version):
    assert version.returncode == 0
    *versions, engine = version.stdout.splitlines()
    assert versions == [
        f"st3 {st3.__version__}", f"torch {torch.__version__}", f"Python {platform.python_version()}"
    ]  # fmt: skip
    assert engine == f"engine: {native.describe_library()}"


def test_the_version_tells_the_instruction_sets_of_the_engine(monkeypatch, tmp_path):
    if native.is_built():
        assert re.fullmatch(r"built for (\w+, )*\w+; uses \w+ here", native.describe_library())
    monkeypatch.setenv(native.ENV_VAR, str(tmp_path / "none.so"))
    assert native.describe_library() == (
        f"not in use; the compiled kernels are missing: no file {tmp_path}/none.so; install a C compiler and run "
        "`python -m st3.engine.build`"
    )


@pytest.mark.parametrize("package", ["typer", "pydantic", "rich", "safetensors", "jinja2"])
def test_it_names_the_package_that_is_missing(package):
    code = f"import sys; sys.modules[{package!r}] = None; from st3_command import main; main()"
    found = run("-c", code)
    assert found.stderr == f"the st3 command needs {package}: pip install 'st3[train]'\n"
    assert (found.returncode, found.stdout) == (1, "")


@pytest.mark.parametrize("module", ["torch", "st3.cli.train"])
def test_a_stop_while_modules_are_loaded_is_one_line(module):
    """Also inside an import that catches whatever is raised in it, as some do."""
    code = f"""
import contextlib, os, signal, sys
class Stop:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            with contextlib.suppress(BaseException):
                os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Stop())
from st3_command import main
main()
"""
    # With torch loaded already, unless it is torch that is being loaded
    found = run("-c", code) if module == "torch" else run_python(code)
    assert (found.returncode, found.stdout) == (130, "")
    assert found.stderr == "stopped before the command began\n"


def test_the_script_is_the_module_that_loads_nothing_by_itself():
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["st3"]
    assert ours == "st3_command:main"
    code = (
        "import sys, st3_command; print([m for m in ('torch', 'numpy', 'st3', 'typer') if m in sys.modules])"
    )
    assert run("-c", code).stdout == "[]\n"


def test_after_loading_ctrl_c_is_pythons_own_again_and_stays_ignored_where_it_was():
    code = """
import signal, sys, st3_command, st3.cli.app
st3.cli.app.app = lambda **_: print(signal.getsignal(signal.SIGINT) is before)
for before in (signal.default_int_handler, signal.SIG_IGN):
    signal.signal(signal.SIGINT, before)
    st3_command.main()
"""
    assert run_python(code).stdout == "True\nTrue\n"


def test_a_command_that_only_tells_loads_neither_data_sets_nor_the_training_loop(version):
    loaded = version.stderr
    assert "st3.cli.train" in loaded
    assert "st3.data" not in loaded
    assert "st3.experiments" not in loaded
    assert "st3.training" not in loaded
