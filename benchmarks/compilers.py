"""Time networks with the engine's C library as built by two compilers, or with two libraries.

    python benchmarks/compilers.py                          gcc and clang
    python benchmarks/compilers.py gcc=OLD.so clang=NEW.so  libraries that are already built

Each library is loaded by a process of its own (ST3_KERNELS); the processes take turns, one call each, so that changes
of the clock affect both. Times are processor time of one thread, which other processes disturb little. The networks
have untrained weights, uniform masks and one image; kernels are chosen by estimates, so that libraries of the same
sources run the same plan. A ratio is the first contestant's time over the second's.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from timing import ratio, record

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "benchmarks" / "compilers.json"
NETWORKS = (
    "resnet50:0",
    "resnet50:0.9",
    "resnet50:0.98",
    "mobilenet_v1:0",
    "mobilenet_v1:0.9",
    "resnet20:0.95",
    "vgg11:0.9",
)
COMPILERS = ("gcc", "clang")
WORKER = """
import sys, time
import torch
torch.set_num_threads(1)
from engine import Row, sparse_network
from st3.engine import compile
from st3.engine.run import Runtime
network, sparsity, isa = sys.argv[1:]
model, x = sparse_network(Row("compilers", network, float(sparsity)))
program = compile(model, x, threads=1, tune=False).program
runtime = Runtime(program, 1, tune=False, isa=isa or None)
for _ in range(3):
    runtime.run(x)
print("ready", runtime.planned.kernels.name, flush=True)
for line in sys.stdin:
    begin = time.thread_time()
    for _ in range(int(line)):
        runtime.run(x)
    print((time.thread_time() - begin) / int(line), flush=True)
"""


class Contestant:
    """A process that runs one network with one library."""

    def __init__(self, library: Path, network: str, isa: str) -> None:
        paths = [str(ROOT / "src"), str(ROOT / "benchmarks"), str(ROOT)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, *network.split(":"), isa],
            env={**os.environ, "ST3_KERNELS": str(library), "ST3_TUNING": "off", "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait(self) -> str:
        """Wait until the network is compiled, and return the instruction set in use."""
        return self.answer().split()[1]

    def answer(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process for {self.process.args} ended with {self.process.wait()}")
        return line

    def time(self, calls: int) -> float:
        """Return the seconds of one call, as a mean of some."""
        assert self.process.stdin
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        return float(self.answer())

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def measure(libraries: dict[str, Path], network: str, isa: str, rounds: int) -> dict[str, Any]:
    contestants = {name: Contestant(path, network, isa) for name, path in libraries.items()}
    used = {each.wait() for each in contestants.values()}
    first, second = contestants
    calls = max(1, round(0.02 / contestants[first].time(1)))
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        for name in (first, second) if turn % 2 else (second, first):
            seconds[name].append(contestants[name].time(calls))
    for each in contestants.values():
        each.end()
    milliseconds = {
        name: {"min": round(1e3 * min(taken), 3), "median": round(1e3 * median(taken), 3)}
        for name, taken in seconds.items()
    }
    return {
        "network": network, "instruction set": ", ".join(used), "rounds": rounds, "calls": calls, "ms": milliseconds,
        f"{first} / {second}": ratio(seconds, first, second),
    }  # fmt: skip


def build_with(command: str, folder: Path) -> Path:
    """Build the library in another process, since $CC chooses the compiler."""
    program = (
        "import sys; from pathlib import Path; from st3.engine.build import build; build(Path(sys.argv[1]))"
    )
    target = folder / f"{command}.so"
    environment = {**os.environ, "CC": command, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", program, str(target)], env=environment, check=True)
    return target


def version(command: str) -> str:
    try:
        said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    except OSError:
        return "not installed"
    return said.stdout.splitlines()[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "libraries", nargs="*", metavar="NAME=FILE", help="two libraries (default: build them)"
    )
    parser.add_argument("--networks", nargs="+", default=NETWORKS, metavar="NETWORK:SPARSITY")
    parser.add_argument("--isa", default="", help="instruction set (default: the best)")
    parser.add_argument("--rounds", type=int, default=30, help="timings of each (default 30)")
    parser.add_argument("--output", default=str(RESULTS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        libraries = {name: Path(file) for name, _, file in (each.partition("=") for each in given.libraries)}
        libraries = libraries or {command: build_with(command, Path(folder)) for command in COMPILERS}
        if len(libraries) != 2:
            parser.error(f"two libraries are compared, got {len(libraries)}")
        rows = []
        for network in given.networks:
            rows.append(measure(libraries, network, given.isa, given.rounds))
            print(network, "done", flush=True)
    record(given.output, {"compilers": {command: version(command) for command in COMPILERS}}, rows)


if __name__ == "__main__":
    main()
