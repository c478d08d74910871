"""Every kernel of every instruction set against plain loops in C; those of AArch64 in an emulator."""

import shutil
import subprocess
from pathlib import Path

import pytest

from st3.engine import native
from st3.engine.build import AARCH64, SOURCES, build, compiler, instruction_sets, target_machine

PROGRAM = Path(__file__).with_name("every_kernel.c")
CROSS = "aarch64-linux-gnu-gcc"
EMULATOR = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]


def link(command: list[str], library: Path, folder: Path) -> Path:
    """Compile the program against a library and return its path."""
    made = folder / "every_kernel"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Werror", f"-I{SOURCES}", f"-Wl,-rpath,{library.parent}"]
    subprocess.run(
        [*command, *flags, str(PROGRAM), str(library), "-lm", "-o", str(made)],
        check=True,
        capture_output=True,
        text=True,
    )
    return made


def run(command: list[str], isa: str) -> str:
    done = subprocess.run([*command, isa], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return done.stdout


@pytest.mark.skipif(
    not native.is_built() or not shutil.which("cc"), reason="needs the library and a C compiler"
)
@pytest.mark.parametrize("isa", instruction_sets())
def test_every_kernel_agrees_with_plain_loops(isa, tmp_path):
    said = run([str(link(compiler(), native.library_path(), tmp_path))], isa)
    assert said == "not available\n" or said.endswith(" 0 failures\n")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not shutil.which(CROSS) or not shutil.which(EMULATOR[0]), reason=f"needs {CROSS} and {EMULATOR[0]}"
)
def test_every_kernel_of_aarch64_agrees_with_plain_loops(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", CROSS)
    assert target_machine(compiler()) == "aarch64"
    program = link(compiler(), build(tmp_path / native.LIBRARY), tmp_path)
    for isa in AARCH64:
        said = run([*EMULATOR, str(program)], isa)
        assert said.endswith(" 0 failures\n")
    assert run([*EMULATOR, str(program)], "avx2") == "not available\n"
