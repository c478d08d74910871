"""The report lists every step with its times, and what runs in torch."""

import re
import subprocess
import sys

import pytest
import torch
from tests.engine.odd_models import Arithmetic, Attention
from tests.engine.outputs import assert_close
from tests.tiny import TinyNet

import st3
from st3.engine import compiled, native, run
from st3.engine.run import NoKernelsWarning


def test_the_report_shows_every_layer_with_its_zeros_and_times(monkeypatch):
    monkeypatch.setattr(compiled, "_race", lambda *calls: [1.0, 2.0])  # torch may win on so small a network
    model = TinyNet().eval()
    with torch.no_grad():
        model.deep.weight[:, ::2] = 0
    fast = st3.engine.compile(model, torch.randn(2, 2, 4, 4), threads=1)
    lines = fast.report().splitlines()
    assert re.fullmatch(r"TinyNet for an input of 2x2x4x4: 1 thread, \w+ kernels", lines[0])
    assert lines[2].split() == ["step", "kind", "weights", "zeros", "%", "kernel", "ms", "dense", "ms"]
    cells = {line.split()[0]: line.split() for line in lines[3:]}
    assert list(cells) == ["conv", "deep", "mean", "head", "all"]
    assert cells["deep"][1:4] == [
        "Conv",
        "576",
        "0.0",
    ]  # the half of its inputs that it did not read is removed
    assert all(float(cells[name][-1]) > 0 for name in ("conv", "deep", "head", "all"))


def test_the_report_says_what_runs_in_torch_and_why():
    fast = st3.engine.compile(Arithmetic().eval(), torch.randn(1, 3, 8, 8), tune=False)
    assert fast.report().splitlines()[-2:] == [
        "In torch (1 of 6 steps):",
        "  add (2): add; its alpha is not 1",
    ]
    shown = st3.engine.compile(Attention().eval(), torch.randn(1, 3, 8, 8), tune=False).report()
    assert "  select: select; the engine has no step for it" in shown


def test_without_the_library_everything_works_with_one_warning(monkeypatch, tmp_path):
    monkeypatch.setenv(native.ENV_VAR, str(tmp_path / "nothing.so"))
    run._warn_once.cache_clear()
    model, x = TinyNet().eval(), torch.randn(2, 2, 4, 4)
    with pytest.warns(NoKernelsWarning) as caught:
        fast = st3.engine.compile(model, x)
    assert_close(fast(x), model(x))
    assert len(caught) == 1
    assert str(caught[0].message) == (
        "st3.engine runs in plain torch, which gains nothing from zeros: the compiled kernels are missing: no file "
        f"{tmp_path / 'nothing.so'}; install a C compiler and run `python -m st3.engine.build`"
    )
    assert caught[0].filename == __file__
    fast(torch.randn(1, 2, 4, 4))  # a new shape is compiled: a second warning would be an error
    assert "in plain torch, since the compiled kernels are missing" in fast.report().splitlines()[0]


def test_importing_st3_does_not_load_the_engine_until_it_is_used():
    code = (
        "import sys, st3; before = 'st3.engine' in sys.modules; made = st3.engine.compile; "
        "print(before, made.__name__, 'engine' in dir(st3))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "compile", "True"]
