"""Settings of the C library."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# By its file: the function is about the process as it starts, and importing all of st3 takes seconds.
CODE = f"""
import runpy
print(runpy.run_path({str(ROOT / "src" / "st3" / "training" / "cpu.py")!r})["keep_freed_memory"]())
"""


def call_in_process(**environment):
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_freed_memory_is_kept_unless_the_user_has_configured_the_library():
    assert call_in_process() == "True"
    assert call_in_process(MALLOC_ARENA_MAX="2") == "False"
    assert call_in_process(LD_PRELOAD="") == "False"
