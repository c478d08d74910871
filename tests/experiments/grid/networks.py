"""Networks that misbehave in training, and jobs that train them. They compute what `digits_cnn` computes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.processes import Program
from torch import Tensor, nn

from st3.experiments.grid.schedule import Job
from st3.experiments.grid.wanted import Wanted
from st3.models import MODELS

BATCHES = 19  # an epoch of the digits
MID_EPOCH = BATCHES + 8
MARKS = "ST3_TEST_MARKS"  # the folder in which networks say what they have done


def make_job(network: str, runs: Path, *, seed: int = 0, epochs: int = 2) -> Job:
    """Return a job that trains one of the networks below, or one of the library's."""
    name = network if network in MODELS else f"{__name__}:{network}"
    sparse = {"method": "st3", "sparsity": 0.9}
    wanted = Wanted(network, "digits", name, sparse, "digits", epochs=epochs, seed=seed)
    return Job(wanted, runs / wanted.folder, machine={"device": "cpu", "threads": 1})


def mark(name: str) -> Path:
    return Path(os.environ[MARKS]) / name


def wait_for(
    condition, seconds: float = 240.0, process: Program | subprocess.Popen[str] | None = None
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Wrapped(nn.Module):
    """The network of the digits; every training pass is counted, and `act` is called with the count."""

    def __init__(self, act) -> None:
        super().__init__()
        self.net = MODELS["digits_cnn"]()
        self.act, self.passes = act, 0

    def forward(self, pictures: Tensor) -> Tensor:
        if self.training:
            self.passes += 1
            self.act(self.passes)
        return self.net(pictures)


def plain() -> nn.Module:
    return Wrapped(lambda passes: None)


def killed_once() -> nn.Module:
    """Kill its process in the second epoch, unless that was done before."""

    def act(passes: int) -> None:
        if passes == MID_EPOCH and not mark("killed").exists():
            mark("killed").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

    return Wrapped(act)


def killed_always() -> nn.Module:
    def act(passes: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    return Wrapped(act)


def raising() -> nn.Module:
    def act(passes: int) -> None:
        with mark("raised").open("a") as file:
            file.write("once\n")
        raise RuntimeError("no more of this")

    return Wrapped(act)


def leaving() -> nn.Module:
    return Wrapped(lambda passes: sys.exit("I leave"))


def noisy() -> nn.Module:
    """Print, below Python as well, and read from the standard input."""

    def act(passes: int) -> None:
        print('{"outcome": "done", "message": "not true"}', flush=True)
        os.write(1, b"noise without an end of line")
        assert sys.stdin.readline() == ""

    return Wrapped(act)


def slow() -> nn.Module:
    """From the middle of the second epoch on, say in which process, and take long until it may go on."""

    def act(passes: int) -> None:
        if passes >= MID_EPOCH and not mark("go").exists():
            mark(f"slow-{os.getpid()}").touch()
            time.sleep(2.0)

    return Wrapped(act)


def slow_pids() -> list[int]:
    """Return the processes in which `slow` networks have come to the second epoch."""
    return [int(path.name.partition("-")[2]) for path in Path(os.environ[MARKS]).glob("slow-*")]
