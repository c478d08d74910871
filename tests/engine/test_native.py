"""The library: found, built, or an error that says what is missing."""

import pytest

from st3.engine import native
from st3.engine.build import BuildError, build
from st3.engine.program import Conv, Program
from st3.engine.reference import interpret
from st3.engine.runtime import Runtime


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ST3_KERNELS", str(tmp_path / "none.so"))
    with pytest.raises(native.NativeError) as fault:
        native.kernels()
    assert str(fault.value).startswith(
        f"the compiled kernels are missing: no file {tmp_path / 'none.so'}; install st3"
    )


def test_without_a_library_everything_runs_in_torch(tmp_path, monkeypatch):
    import numpy as np
    import torch

    monkeypatch.setenv("ST3_KERNELS", str(tmp_path / "none.so"))
    weight = np.eye(3, dtype=np.float32)[:, :, None, None]
    conv = Conv(name="conv", sources=("x",), target="conv", weight=weight, bias=None)
    program = Program(
        steps=(conv,), shapes={"x": (1, 3, 4, 4), "conv": (1, 3, 4, 4)}, inputs=("x",), outputs=("conv",)
    )
    runtime = Runtime(program)
    x = torch.randn(1, 3, 4, 4)
    assert torch.equal(runtime.run(x)[0], interpret(program, x)[0])
    assert [choice.kernel for choice in runtime.choices()] == ["torch"]


def test_a_missing_compiler_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError) as fault:
        build(tmp_path)
    assert str(fault.value) == (
        "no C compiler found (looked for cc, gcc, clang); install one or set CC, then build again"
    )


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(BuildError) as fault:
        build(tmp_path)
    assert str(fault.value).startswith("the C compiler failed: false -std=gnu11")


@pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")
def test_an_unknown_instruction_set_is_named():
    with pytest.raises(native.NativeError) as fault:
        native.kernels("avx9")
    assert str(fault.value) == "no kernels for 'avx9' here: not compiled, or this processor has not got it"


def test_an_input_of_another_shape_is_named():
    import torch

    program = Program(steps=(), shapes={"x": (2, 3)}, inputs=("x",), outputs=("x",))
    with pytest.raises(ValueError) as fault:
        Runtime(program).run(torch.zeros(3, 2))
    assert str(fault.value) == "input 'x' has shape (3, 2), the program was made for (2, 3)"
