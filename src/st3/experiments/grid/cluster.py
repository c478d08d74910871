"""Workers on a Ray cluster: one task per run. Code and data never travel; all machines see the folder of the runs."""

import importlib
import logging
import os
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from ..spec import MachineSpec
from .schedule import Job, Workers, WorkersError
from .worker import FAILED, STOPPED, train_one

__all__ = ["RayWorkers", "fault_of"]

PATIENCE = 60.0  # seconds for the cluster to answer
LOOK_AGAIN = 5.0  # seconds until machines that have joined are noticed


class RayWorkers(Workers):
    """Tasks on the machines of a cluster. All runs ask for the same resources, those of `machine`.

    Ray keeps its processes from run to run, so torch is imported once in each. It retries nothing: a run whose process
    or machine is lost is begun again by the schedule, as on one machine.
    """

    def __init__(self, address: str, out: Path, machine: MachineSpec) -> None:
        self._ray = _import_ray()
        if fault := fault_of(address):
            raise WorkersError(fault)
        self._ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        self._threads = machine.threads or 1
        self._under_way: dict[Any, Job] = {}
        self._counted, self._slots = 0.0, 0
        self._token = out.absolute() / f".seen-by-all-{uuid.uuid4().hex}"
        try:
            self._needs = self._find_needs(machine)
            self._train = self._ray.remote(max_retries=0, **self._needs)(_train_here)
            out.mkdir(parents=True, exist_ok=True)
            self._token.touch()
            self._check_machines()
        except BaseException:
            self._leave()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        try:
            if kind is KeyboardInterrupt:
                for task in self._under_way:
                    self._ray.cancel(task, force=True)
            else:
                self.stop()
        finally:
            self._leave()

    @property
    def slots(self) -> int:
        """Runs that fit on the machines that are there now."""
        if time.monotonic() > self._counted + LOOK_AGAIN:
            self._slots = sum(self._room(node) for node in self._ray.nodes())
            self._counted = time.monotonic()
        return self._slots

    def start(self, job: Job) -> None:
        values = job.spec(self._threads).model_dump(mode="json")
        self._under_way[self._train.remote(values, str(job.folder), str(self._token))] = job

    def wait(self, seconds: float) -> list[tuple[Job, str, str]]:
        if not self._under_way:
            time.sleep(seconds)
            return []
        tasks = list(self._under_way)
        first, _ = self._ray.wait(tasks, timeout=seconds)
        ended, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0) if first else ([], tasks)
        return [(self._under_way.pop(task), *self._outcome(task)) for task in ended]

    def stop(self) -> list[tuple[Job, str, str]]:
        for task in self._under_way:
            self._ray.cancel(task)  # as Ctrl-C in its process
        found = []
        while self._under_way:
            found += self.wait(1.0)
        return found

    def _outcome(self, task: Any) -> tuple[str, str]:
        errors = self._ray.exceptions
        try:
            outcome: tuple[str, str] = self._ray.get(task)
            return outcome
        except errors.TaskCancelledError:
            return STOPPED, ""  # it had not begun
        except errors.RayTaskError as error:
            return FAILED, _last_line(error)
        except errors.RayError as error:
            return self.LOST, f"its worker was lost ({type(error).__name__})"

    def _find_needs(self, machine: MachineSpec) -> dict[str, int]:
        """Return what a run asks of a machine; raises if no machine has that."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        has_gpus = any(node["Resources"].get("GPU") for node in nodes)
        needs_gpu = machine.device.startswith("cuda") or (machine.device == "auto" and has_gpus)
        self._needs = {"num_cpus": self._threads + machine.workers, "num_gpus": int(needs_gpu)}
        if not self.slots:
            largest = max(nodes, key=lambda node: node["Resources"].get("CPU", 0))["Resources"]
            raise WorkersError(
                f"a run asks for {self._needs['num_cpus']} CPUs and {int(needs_gpu)} GPUs, and no machine of the "
                f"cluster has them: the largest has {largest.get('CPU', 0):g} CPUs and {largest.get('GPU', 0):g} "
                f"GPUs; try fewer --threads or another --device"
            )
        return self._needs

    def _room(self, node: dict[str, Any]) -> int:
        """Return how many runs fit on a machine."""
        if not node["Alive"]:
            return 0
        has = node["Resources"]
        room = int(has.get("CPU", 0)) // self._needs["num_cpus"]
        return min(room, int(has.get("GPU", 0))) if self._needs["num_gpus"] else room

    def _check_machines(self) -> None:
        """Raise unless every machine that can train has this library and sees the folder."""
        on = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        ask = self._ray.remote(num_cpus=0, max_retries=0)(_is_seen)
        asked = {
            ask.options(scheduling_strategy=on(node["NodeID"], soft=False)).remote(str(self._token)): node
            for node in self._ray.nodes()
            if self._room(node)
        }
        answered, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE)
        for task, node in asked.items():
            name = f"machine {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            if task not in answered:
                raise WorkersError(f"{name} of the Ray cluster has not answered within {PATIENCE:g} seconds")
            try:
                is_seen = self._ray.get(task)
            except self._ray.exceptions.RayError as error:
                raise WorkersError(
                    f"{name} cannot train, its answer is: {_last_line(error)}; it needs the same st3 and Python"
                ) from error
            if not is_seen:
                raise WorkersError(f"{name} {_unseen(self._token)}")

    def _leave(self) -> None:
        self._token.unlink(missing_ok=True)
        self._ray.shutdown()


def _train_here(values: dict[str, Any], folder: str, token: str) -> tuple[str, str]:
    """Train one run; runs on a machine of the cluster, which may have joined it later."""
    here = socket.gethostname()
    if not _is_seen(token):
        return FAILED, f"machine {here} {_unseen(Path(token))}"
    outcome, message = train_one(values, folder)
    return outcome, f"{message} (on {here})" if outcome == FAILED else message


def _is_seen(token: str) -> bool:
    deadline = time.monotonic() + 5.0  # network file systems show new files late
    while not Path(token).exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _unseen(token: Path) -> str:
    return f"does not see {token.parent}: give --out a folder that all machines of the cluster share"


def _import_ray() -> Any:
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # its messages are not for our terminal
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(f"--ray needs Ray: pip install 'st3[cluster]' ({error})") from None


def fault_of(address: str) -> str:
    """Return why the cluster cannot be used; empty if it answers.

    A process of its own tries to connect, because Ray would go on trying for minutes.
    """
    code = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level=50)"
    try:
        tried = subprocess.run(
            [sys.executable, "-c", code, address], capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return (
            f"Ray at {address!r} does not answer within {PATIENCE:g} seconds: is it running (ray status), and is "
            f"this one of its machines?"
        )
    if not tried.returncode:
        return ""
    if address == "auto":
        how = "start one with `ray start --head`, then on every other machine `ray start --address HOST:6379`"
        return f"no Ray cluster is running on this machine: {how}"
    return f"cannot connect to Ray at {address!r}: {_last_line(tried.stderr)}"


def _last_line(text: object) -> str:
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(text).__name__
