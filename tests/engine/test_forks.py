"""A compiled model works in a forked process, where it starts new threads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from st3.engine import native

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.skipif(not native.is_built(), reason="the kernels are not built"),
]


@pytest.mark.parametrize(
    "case",
    [
        "classifier 1 1",
        "pictures 1 2",
        "pictures 8 2",
        "classifier 1 2 busy",
        "pictures 8 2 busy",
    ],
)  # on the fast path, with threads, with a batch in parts, while another thread is in a call
def test_a_forked_process_can_call_the_model(case):
    script = str(Path(__file__).with_name("call_after_fork.py"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    result = subprocess.run(
        [sys.executable, script, *case.split()], env=environment, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, "the same output in both processes\n"), result.stderr
