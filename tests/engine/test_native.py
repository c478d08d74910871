"""Loading and building the library, and the errors that say what is missing."""

import shutil
import subprocess

import pytest

from st3.engine import build as building
from st3.engine import native
from st3.engine.build import BuildError, build, compiler
from st3.engine.program import Conv, Program
from st3.engine.reference import interpret
from st3.engine.run import Runtime, TorchRuntime, make_runner


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ST3_KERNELS", str(tmp_path / "none.so"))
    with pytest.raises(native.NativeError) as fault:
        native.kernels()
    assert str(fault.value).startswith(
        f"the compiled kernels are missing: no file {tmp_path / 'none.so'}; install a C compiler"
    )


def assert_not_used(library, monkeypatch):
    monkeypatch.setenv("ST3_KERNELS", str(library))
    with pytest.raises(native.NativeError) as fault:
        native.kernels()
    assert str(fault.value) == (
        f"the compiled kernels in {library} are damaged or of another version of st3; "
        "run `python -m st3.engine.build`"
    )


@pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")
def test_a_library_built_from_other_sources_is_not_used(tmp_path, monkeypatch):
    library = shutil.copy(native.library_path(), tmp_path / "_kernels.so")
    sources = shutil.copytree(building.SOURCES, tmp_path / "c")
    with (sources / "rows.h").open("a", encoding="utf-8") as stream:
        stream.write("// the structures have the same sizes but may have another meaning\n")
    monkeypatch.setattr(building, "SOURCES", sources)
    assert_not_used(library, monkeypatch)


@pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")
@pytest.mark.parametrize("kept", [0.0, 0.001, 0.5, 0.99, 1.0])
def test_a_damaged_library_is_not_loaded(tmp_path, monkeypatch, kept):
    library, whole = tmp_path / "_kernels.so", native.library_path().read_bytes()
    cut = int(kept * (len(whole) - 1))
    library.write_bytes(whole[:cut])  # loading it would end the process
    assert_not_used(library, monkeypatch)
    native.load.cache_clear()
    library.write_bytes(whole[:cut] + bytes([whole[cut] ^ 1]) + whole[cut + 1 :])
    assert_not_used(library, monkeypatch)


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_a_library_without_a_seal_is_not_used(tmp_path, monkeypatch):
    source, library = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text("int st3_size(int which) { return which; }\n", encoding="utf-8")
    subprocess.run([*compiler(), "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    assert_not_used(library, monkeypatch)


def test_without_a_library_everything_runs_in_torch(tmp_path, monkeypatch):
    import numpy as np
    import torch

    monkeypatch.setenv("ST3_KERNELS", str(tmp_path / "none.so"))
    weight = np.eye(3, dtype=np.float32)[:, :, None, None]
    conv = Conv(name="conv", sources=("x",), target="conv", weight=weight, bias=None)
    program = Program(
        steps=(conv,), shapes={"x": (1, 3, 4, 4), "conv": (1, 3, 4, 4)}, inputs=("x",), outputs=("conv",)
    )
    monkeypatch.setattr("st3.engine.run._warn_once", lambda reason: None)
    runtime = make_runner(program, threads=1, tune=False)
    assert isinstance(runtime, TorchRuntime)
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
    assert str(fault.value).startswith("the build failed: false -dumpmachine")


@pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")
def test_an_unknown_instruction_set_is_named():
    with pytest.raises(native.NativeError) as fault:
        native.kernels("avx9")
    assert str(fault.value) == "no kernels for 'avx9': not compiled, or not supported by this processor"


def test_an_input_of_another_shape_is_named():
    import torch

    program = Program(steps=(), shapes={"x": (2, 3)}, inputs=("x",), outputs=("x",))
    with pytest.raises(ValueError) as fault:
        Runtime(program, tune=False).run(torch.zeros(3, 2))
    assert str(fault.value) == "input 'x' has shape (3, 2); the program was compiled for (2, 3)"
