"""Settings of the C library."""

import subprocess
import sys

import pytest

CODE = "from st3.training.cpu import keep_freed_memory; print(keep_freed_memory())"


def answer(**environment):
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is glibc's setting")
def test_freed_memory_is_kept_unless_the_user_has_said_something_else():
    assert answer() in ("True", "False")  # False where the C library is not glibc
    assert answer(MALLOC_ARENA_MAX="2") == "False"
    assert answer(LD_PRELOAD="") == "False"
