"""Compile the C kernels: one object file per instruction set, linked into one library.

Needs the standard library and a C compiler only: the installer loads this file without the package.
"""

import argparse
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent / "c"
LIBRARY = "_kernels.so"
SEAL = 32  # bytes at the end of the library's file that the loader does not read
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-ffp-contract=fast", "-fvisibility=hidden", "-Wall", "-Wextra")


class InstructionSet(NamedTuple):
    """What the kernels are compiled for: floats per vector, vectors of sums in registers, compiler flags."""

    lanes: int
    accumulators: int
    flags: tuple[str, ...] = ()


# Without -mprfchw, lines that will be written would be fetched for reading: twice, if another core has them too.
AVX2 = ("-mavx2", "-mfma", "-mprfchw")
AVX512 = (*AVX2, "-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mprefer-vector-width=512")
BASELINE = InstructionSet(4, 14)  # on every architecture, so that one plan serves all of them
X86 = {
    "avx512": InstructionSet(16, 28, AVX512),
    "avx2": InstructionSet(8, 14, AVX2),
    "baseline": BASELINE,
}
# Of 32 registers 26 hold sums. gcc would load inputs far ahead and run out of registers; clang ignores the flag.
AARCH64 = {"neon": InstructionSet(4, 26, ("-fno-schedule-insns",)), "baseline": BASELINE}
WINDOWS = (
    "the compiled kernels do not exist for Windows: they need POSIX threads and gcc or clang. st3 works without "
    "them, at the speed of torch; in the Windows Subsystem for Linux (WSL) it can use them"
)


class BuildError(RuntimeError):
    """The kernels could not be compiled."""


def build(target: Path, extra: tuple[str, ...] = ()) -> Path:
    """Compile the kernels into the folder or file `target` and return the library's path.

    `extra` flags are passed to every compiler call.
    """
    library = target / LIBRARY if target.is_dir() else target
    with tempfile.TemporaryDirectory() as folder:
        linked = link(compile_objects(Path(folder), extra), extra)
        content = linked.read_bytes()
        linked.write_bytes(content + seal(content))
        put(linked, library)
    return library


def compile_objects(folder: Path, extra: tuple[str, ...]) -> list[Path]:
    """Compile every source into the folder, the kernels once per instruction set, and return the object files."""
    if platform.system() == "Windows":
        raise BuildError(WINDOWS)
    command = compiler()
    jobs: list[tuple[str, str, tuple[str, ...]]] = []
    for name, isa in instruction_sets(target_machine(command)).items():
        defined = (f"-DISA={name}", f"-DLANES={isa.lanes}", f"-DACCUMULATORS={isa.accumulators}")
        jobs.append(("kernels.c", f"{name}.o", (*defined, *isa.flags)))
    others = sorted(each for each in SOURCES.glob("*.c") if each.name != "kernels.c")
    jobs += [(each.name, f"{each.stem}.o", ()) for each in others]
    calls = [
        [*command, *FLAGS, *flags, *extra, "-c", str(SOURCES / source), "-o", str(folder / name)]
        for source, name, flags in jobs
    ]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        list(workers.map(call, calls))
    return [folder / name for _, name, _ in jobs]


def link(objects: list[Path], extra: tuple[str, ...]) -> Path:
    """Link a shared library beside the object files."""
    library = objects[0].with_name(LIBRARY)
    call([*compiler(), "-shared", *extra, "-o", str(library), *map(str, objects), "-lpthread", "-lm"])
    return library


def put(file: Path, target: Path) -> None:
    """Copy a file in one step: another process may have the old one open."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy(file, temporary)
    os.replace(temporary, target)


def seal(content: bytes) -> bytes:
    """Return a hash of the C sources and of the library linked from them; it is the end of the library's file.

    Sizes of structures alone would not detect a field whose meaning has changed; half a library would end the process.
    """
    whole = hashlib.sha256()
    for source in sorted(SOURCES.glob("*.[ch]")):
        whole.update(f"{source.name}\n".encode() + source.read_bytes())
    whole.update(content)
    return whole.digest()


def is_sealed(file: bytes) -> bool:
    """Return whether a library's file is complete, unchanged and built from these sources."""
    return file[-SEAL:] == seal(file[:-SEAL])


def instruction_sets(machine: str = "") -> dict[str, InstructionSet]:
    """Return the instruction sets that are built for a machine, by default this one; the best first."""
    machine = (machine or platform.machine()).lower()
    if machine in ("x86_64", "amd64"):
        return X86
    return AARCH64 if machine in ("aarch64", "arm64") else {"baseline": BASELINE}


def target_machine(command: list[str]) -> str:
    """Return the machine that the compiler compiles for, such as x86_64; it may be another than this one."""
    return call([*command, "-dumpmachine"]).split("-")[0]


def compiler() -> list[str]:
    """Return the command of the C compiler: $CC, else cc, gcc or clang."""
    asked = os.environ.get("CC")
    if asked:
        return shlex.split(asked)
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise BuildError(
        "no C compiler found (looked for cc, gcc, clang); install one or set CC, then build again"
    )


def call(command: list[str]) -> str:
    """Run the compiler, or ar, and return what it prints."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"the build needs {command[0]!r}, which could not be started: {error}") from error
    if result.returncode:
        raise BuildError(f"the build failed: {shlex.join(command)}\n{result.stderr.strip()}")
    return result.stdout


def write_c_library(folder: Path, extra: tuple[str, ...] = ()) -> list[Path]:
    """Compile libst3.so and libst3.a for C programs, and write them and st3.h into a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        objects = compile_objects(Path(scratch), extra)
        archive = Path(scratch) / "libst3.a"
        call([*shlex.split(os.environ.get("AR", "ar")), "rcs", str(archive), *map(str, objects)])
        files = {"libst3.so": link(objects, extra), "libst3.a": archive, "st3.h": SOURCES / "st3.h"}
        for name, file in files.items():
            put(file, folder / name)
    return [folder / name for name in files]


def main() -> None:
    """Build the library inside the package, or for C programs in a folder."""
    parser = argparse.ArgumentParser(prog="python -m st3.engine.build", description=main.__doc__)
    parser.add_argument(
        "--library",
        type=Path,
        metavar="FOLDER",
        help="write libst3.so, libst3.a and st3.h there, for C programs",
    )
    folder = parser.parse_args().library
    try:
        written = write_c_library(folder) if folder else [build(Path(__file__).parent)]
        print("\n".join(map(str, written)))
    except (BuildError, OSError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
