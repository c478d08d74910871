"""The C kernels under the address, undefined-behaviour and thread sanitizers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from st3.engine.build import build, compiler

ROOT = Path(__file__).parents[2]
TESTS = Path(__file__).parent
ISAS = ["avx512", "avx2", "baseline"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler"),
]


def runtime_library(name: str) -> str:
    """Return the path of a sanitizer's runtime library."""
    found = subprocess.run(
        [*compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=False
    )
    path = found.stdout.strip()
    if not os.path.isabs(path):
        pytest.skip(f"the compiler has no {name}")
    return path


def run(library: Path, preload: list[str], *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the library and a sanitizer."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "ST3_KERNELS": str(library),
        "ST3_TUNING": "off",
        "LD_PRELOAD": " ".join(runtime_library(name) for name in preload),
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
        "TSAN_OPTIONS": "exitcode=66",
    }
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )


# With the C++ library, since torch throws exceptions: the sanitizer looks up the throwing function at startup.
ADDRESSES = ["libasan.so", "libstdc++.so"]


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-DBLOCK=64")
    return build(tmp_path_factory.mktemp("sanitized") / "_kernels.so", flags)


@pytest.mark.parametrize("isa", ISAS)
def test_random_programs_stay_within_their_buffers(sanitized, isa):
    result = run(sanitized, ADDRESSES, str(TESTS / "random_programs.py"), isa, "400")
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    assert "400 programs" in result.stdout or "not available" in result.stdout


@pytest.mark.parametrize(
    "name", sorted({each.name for each in TESTS.glob("test_*.py")} - {Path(__file__).name})
)
def test_every_test_of_the_engine_passes_under_the_sanitizers(sanitized, name):
    which = "slow" if name == "test_transformers.py" else "not slow"  # all tests in it are marked slow
    result = run(
        sanitized, ADDRESSES, "-m", "pytest", "-q", "-p", "tests.engine.exact_blocks", "-p", "no:cacheprovider",
        "-m", which, str(TESTS / name),
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("watched") / "_kernels.so", ("-fsanitize=thread", "-g", "-O1"))


@pytest.mark.parametrize("isa", ISAS)
def test_threads_have_no_data_races(watched, isa):
    result = run(watched, ["libtsan.so"], str(TESTS / "random_programs.py"), isa, "60", "4")
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    assert "60 programs" in result.stdout or "not available" in result.stdout
