"""A compiled model works in a forked process, where it starts new threads."""

import os
from pathlib import Path

import pytest
from tests.processes import run_python

from st3.engine import native

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.skipif(not native.is_built(), reason="the kernels are not built"),
]


# on the fast path, with threads, with a batch in parts, while another thread is in a call
CASES = ["classifier 1 1", "pictures 1 2", "pictures 8 2", "classifier 1 2 busy", "pictures 8 2 busy"]


def test_a_forked_process_can_call_the_model():
    script = Path(__file__).with_name("call_after_fork.py")
    result = run_python(script.read_text(), *CASES, name=str(script))
    lines = [f"{case}: the same output in both processes" for case in CASES]
    assert (result.returncode, result.stdout.splitlines()) == (0, lines), result.stderr
