"""The C core under the address and undefined-behaviour sanitizers, on random programs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from st3.engine.build import build, compiler

TESTS = Path(__file__).parent
SOURCE = Path(__file__).parents[2] / "src"


def runtime_library(name: str) -> str | None:
    """Return the path of a sanitizer's runtime, as the compiler knows it."""
    found = subprocess.run(
        [*compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=False
    )
    path = found.stdout.strip()
    return path if os.path.isabs(path) else None


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
    return build(tmp_path_factory.mktemp("sanitized") / "_kernels.so", flags)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize("isa", ["avx512", "avx2", "baseline"])
def test_random_programs_read_and_write_only_what_is_theirs(sanitized, isa):
    preload = runtime_library("libasan.so")
    if preload is None:
        pytest.skip("the compiler has no address sanitizer")
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "ST3_KERNELS": str(sanitized),
        "ST3_TUNING": "off",
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
    }
    result = subprocess.run(
        [sys.executable, str(TESTS / "random_programs.py"), isa, "150"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    assert "150 programs" in result.stdout or "not here" in result.stdout
