"""Python ends in silence although a compiled model is still there."""

import subprocess
import sys

# Something in another library keeps the script's module, so that its names go last, after those of st3's modules.
SCRIPT = """
import ctypes, sys
import torch
import st3

x = torch.randn(1, 8)
fast = st3.engine.compile(torch.nn.Linear(8, 4).eval(), x, threads=2, tune=False)
fast(x)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules["__main__"]))
"""


def test_a_global_compiled_model_leaves_no_traceback():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
