"""Settings of the C library."""

import platform
import subprocess
import sys

import pytest

CODE = "from st3.training.cpu import keep_freed_memory; print(keep_freed_memory())"


def call_in_process(**environment):
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_freed_memory_is_kept_unless_the_user_has_configured_the_library():
    assert call_in_process(PYTHONPATH=":".join(sys.path)) == "True"
    assert call_in_process(PYTHONPATH=":".join(sys.path), MALLOC_ARENA_MAX="2") == "False"
    assert call_in_process(PYTHONPATH=":".join(sys.path), LD_PRELOAD="") == "False"
