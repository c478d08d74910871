"""Runs on a real Ray cluster on this machine: killed, failing, interrupted; and a cluster that is not there."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.experiments.grid.networks import MARKS, is_alive, make_job, mark, slow_pids, wait_for
from tests.experiments.grid.test_local import same_run

from st3.experiments.grid import cluster
from st3.experiments.grid.cluster import RayWorkers
from st3.experiments.grid.schedule import WorkersError, train_all
from st3.experiments.run import train
from st3.experiments.spec import MachineSpec

ROOT = Path(__file__).parents[3]
RAY = Path(sys.executable).parent / "ray"
PORT = 6437
ADDRESS = f"127.0.0.1:{PORT}"
CPU = MachineSpec(device="cpu", threads=1)


def on_ray(test):
    """Mark a test that needs Ray."""
    test = pytest.mark.skipif(not RAY.exists(), reason="needs Ray: pip install 'st3[cluster]'")(test)
    test = pytest.mark.filterwarnings("ignore")(test)  # Ray's own
    return pytest.mark.timeout(1200)(pytest.mark.slow(test))


def ray_is_running():
    return any(path.read_text().startswith("gcs_server") for path in Path("/proc").glob("[0-9]*/comm"))


def start_ray(*words, before=()):
    """Start one machine of a cluster; all of it ends with the process that is returned."""
    command = [*before, str(RAY), "start", "--block", "--disable-usage-stats", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def end_ray(process):
    process.terminate()
    process.wait(120)


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    """Start a cluster of this machine alone, with two processors; return its address."""
    marks = tmp_path_factory.mktemp("marks")
    folder = Path("/tmp") / f"ray-{os.getpid()}"  # sockets need short paths
    with pytest.MonkeyPatch.context() as patch:
        # Ray's processes take their environment from here, not from the driver.
        patch.setenv(MARKS, str(marks))
        patch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'src'}")
        words = ["--head", "--port", str(PORT), "--num-cpus", "2", "--temp-dir", str(folder)]
        head = start_ray(*words, "--include-dashboard=false")
        wait_for(lambda: not cluster.fault_of(ADDRESS), 600)
        yield ADDRESS
        end_ray(head)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def no_marks(ray):
    for path in Path(os.environ[MARKS]).iterdir():
        path.unlink()


@on_ray
def test_a_cluster_that_does_not_answer_is_named_within_the_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 8.0)
    began = time.monotonic()
    with pytest.raises(WorkersError, match=r"Ray at '127.0.0.1:1' does not answer within 8 seconds"):
        RayWorkers("127.0.0.1:1", tmp_path, CPU)
    assert time.monotonic() - began < 60


@on_ray
@pytest.mark.skipif(ray_is_running(), reason="a Ray cluster is running on this machine")
def test_without_a_cluster_auto_says_how_to_start_one(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # no note of an earlier cluster
    monkeypatch.setenv("RAY_ADDRESS", "")
    with pytest.raises(
        WorkersError, match="no Ray cluster is running on this machine: start one with `ray start --head`"
    ):
        RayWorkers("auto", tmp_path, CPU)


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"--ray needs Ray: pip install 'st3\[cluster\]'"):
        RayWorkers("auto", tmp_path, CPU)


@on_ray
def test_a_killed_worker_an_exception_and_an_ordinary_run(ray, no_marks, tmp_path, capfd):
    train(make_job("plain", tmp_path).spec(1), tmp_path / "alone")
    jobs = [make_job(name, tmp_path / "runs") for name in ("killed_once", "raising", "plain")]
    with RayWorkers(ray, tmp_path, CPU) as workers:
        assert workers.slots == 2
        assert train_all(jobs, workers) is None
    killed, raised, plain = jobs
    assert [job.state for job in jobs] == ["done", "failed", "done"]
    assert [job.tries for job in jobs] == [2, 1, 1]
    assert mark("killed").exists()
    assert same_run(killed.folder, tmp_path / "alone")
    assert same_run(plain.folder, tmp_path / "alone")
    assert raised.message.startswith("RuntimeError: no more of this (networks.py, line ")
    assert f"(on {os.uname().nodename})" in raised.message
    assert mark("raised").read_text() == "once\n"
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.glob(".seen*"))


DRIVER = """
import sys
from pathlib import Path
from tests.experiments.grid.networks import make_job
from tests.experiments.grid.test_cluster import CPU
from st3.experiments.grid.cluster import RayWorkers
from st3.experiments.grid.schedule import train_all
folder = Path(sys.argv[1])
with RayWorkers(sys.argv[2], folder, CPU) as workers:
    stopped = train_all([make_job("slow", folder / "runs", seed=seed) for seed in range(2)], workers)
print(stopped)
"""


@on_ray
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "ctrl-c"])
def test_when_the_driver_ends_the_same_command_goes_on(ray, no_marks, tmp_path, number):
    train(make_job("plain", tmp_path).spec(1), tmp_path / "alone")
    jobs = [make_job("slow", tmp_path / "runs", seed=seed) for seed in range(2)]
    command = [sys.executable, "-c", DRIVER, str(tmp_path), ray]
    driver = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(slow_pids()) == 2, 600, driver)
    driver.send_signal(number)
    out, err = driver.communicate(timeout=300)
    pids = slow_pids()
    assert len(pids) == 2
    if number == signal.SIGINT:
        assert (driver.returncode, out, err) == (0, "2\n", "")
        for job in jobs:
            (saved,) = (job.folder / "checkpoints").glob("step-*.pt")
            assert 19 < int(saved.stem.partition("-")[2]) < 38
    else:
        wait_for(lambda: not any(map(is_alive, pids)), 120)
    with RayWorkers(ray, tmp_path, CPU) as workers:
        train_all(jobs, workers)
    assert [job.state for job in jobs] == ["done", "done"]
    assert same_run(jobs[0].folder, tmp_path / "alone")


@on_ray
def test_resources_that_no_machine_has_are_named(ray, tmp_path):
    with pytest.raises(WorkersError) as error:
        RayWorkers(ray, tmp_path, MachineSpec(device="cpu", threads=3, workers=1))
    assert str(error.value).startswith(
        "a run asks for 4 CPUs and 0 GPUs, and no machine of the cluster has them: the largest has 2 CPUs and 0 GPUs"
    )
    with pytest.raises(WorkersError, match="1 CPUs and 1 GPUs"):
        RayWorkers(ray, tmp_path, MachineSpec(device="cuda", threads=1))


@on_ray
@pytest.mark.skipif(
    shutil.which("unshare") is None or os.getuid() != 0, reason="hiding a folder needs unshare and root"
)
def test_a_machine_that_does_not_see_the_folder_is_named(ray, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    hide = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {hidden} && exec "$@"', "sh"]
    other = start_ray("--num-cpus", "1", "--address", ray, before=hide)
    try:
        wait_for(lambda: _slots(ray, tmp_path) == 3, 300)
        with pytest.raises(WorkersError) as error:
            RayWorkers(ray, hidden, CPU)
    finally:
        end_ray(other)
    assert f"does not see {hidden}: give --out a folder that all machines of the cluster share" in str(
        error.value
    )
    assert str(error.value).startswith(f"machine {os.uname().nodename} (")
    assert not list(hidden.iterdir())


def _slots(ray, folder):
    with RayWorkers(ray, folder, CPU) as workers:
        return workers.slots
