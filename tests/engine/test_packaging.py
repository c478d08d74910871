"""The wheel contains the C sources, and the library if a C compiler is found."""

import os
import platform
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from st3.engine import build

ROOT = Path(__file__).parents[2]


def test_the_build_hook_and_the_sources_are_part_of_the_distribution():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert "custom" in settings["wheel"]["hooks"]
    assert {"/src", "/hatch_build.py"} <= {*settings["sdist"]["include"]}
    assert (ROOT / "hatch_build.py").is_file()
    assert list((ROOT / "src" / "st3" / "engine" / "c").glob("*.c"))
    ignored = subprocess.run(
        ["git", "check-ignore", "src/st3/engine/_kernels.so"], cwd=ROOT, capture_output=True
    )
    assert ignored.returncode in (0, 128)  # 128: not a git repository, such as an unpacked sdist


def wheel(folder: Path, **changes: str) -> Path:
    """Build the wheel as pip does, and return its path."""
    if find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **changes})
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.slow
def test_with_a_compiler_the_wheel_contains_the_library_and_is_for_this_platform(tmp_path):
    made = wheel(tmp_path)
    assert made.name.startswith("st3-")
    assert "-py3-none-" in made.name
    assert not made.name.endswith("-any.whl")
    names = zipfile.ZipFile(made).namelist()
    assert "st3/engine/_kernels.so" in names
    assert "st3/engine/c/kernels.c" in names


@pytest.mark.slow
def test_without_a_compiler_the_wheel_is_for_every_platform_and_contains_the_sources(tmp_path):
    made = wheel(tmp_path, CC="no-such-compiler")
    assert made.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(made).namelist()
    assert not [name for name in names if name.endswith(".so")]
    assert "st3/engine/c/kernels.c" in names
    assert "st3/engine/build.py" in names


def test_building_by_hand_says_what_is_missing():
    command = [sys.executable, "-W", "error", "-m", "st3.engine.build"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "CC": "no-such-compiler"}
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: the build needs 'no-such-compiler', which could not be started: ")


def test_on_windows_the_build_says_what_to_do_instead(monkeypatch, tmp_path):
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    with pytest.raises(build.BuildError, match=f"^{re.escape(build.WINDOWS)}$"):
        build.build(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("machine", "names"),
    [
        ("x86_64", ["avx512", "avx2", "baseline"]),
        ("arm64", ["neon", "baseline"]),
        ("riscv64", ["baseline"]),
    ],
)
def test_every_machine_has_the_same_baseline(machine, names):
    found = build.instruction_sets(machine)
    assert [*found] == names
    assert found["baseline"] == (4, 14, ())  # plans for it run on every machine
