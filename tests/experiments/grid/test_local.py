"""Runs on worker processes of this machine: killed, failing, interrupted, and trained by two programs at once."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.experiments.grid.networks import (
    BATCHES,
    MARKS,
    is_alive,
    make_job,
    mark,
    slow_pids,
    wait_for,
)
from tests.experiments.test_run import results, same_weights
from tests.processes import start_python

from st3.experiments.grid import schedule
from st3.experiments.grid.local import LocalWorkers
from st3.experiments.grid.schedule import WorkersError, train_all
from st3.experiments.run import train

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def marks(tmp_path, monkeypatch):
    monkeypatch.setenv(MARKS, str(tmp_path))


def same_run(one, other):
    """Return whether two runs have found the same, whatever their networks are called."""
    return same_weights(one, other) and results(one)[1:] == results(other)[1:]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return a run that this process has trained without an interruption."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    train(make_job("plain", folder.parent).spec(1), folder)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a run of each kind, one after the other; return the jobs by network, and the text of the log."""
    folder = tmp_path_factory.mktemp("grid")
    names = ["raising", "noisy", "killed_once", "leaving", "plain"]
    jobs = {name: make_job(name, folder / "runs") for name in names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARKS, str(folder))
        with LocalWorkers(1, 1, folder / "workers.log") as workers:
            assert train_all(list(jobs.values()), workers) is None
            processes = len(workers._processes)
    assert processes == 1
    return jobs, (folder / "workers.log").read_text()


def test_a_run_in_a_warm_worker_is_as_if_trained_alone(trained, alone):
    job = trained[0]["plain"]
    assert (job.state, job.message, job.tries) == ("done", "", 1)
    assert same_run(job.folder, alone)


def test_a_killed_worker_is_replaced_and_its_run_goes_on_bit_for_bit(trained, alone):
    job = trained[0]["killed_once"]
    assert (job.state, job.tries) == ("done", 2)
    assert same_run(job.folder, alone)
    assert (job.folder.parents[1] / "killed").exists()


def test_an_exception_is_reported_with_its_run_and_not_tried_again(trained):
    job, log = trained[0]["raising"], trained[1]
    assert (job.state, job.tries) == ("failed", 1)
    assert job.message.startswith("RuntimeError: no more of this (networks.py, line ")
    assert (job.folder.parents[1] / "raised").read_text() == "once\n"
    assert f"{job.folder} failed:\nTraceback" in log


def test_a_network_that_wants_to_leave_ends_its_run_only(trained):
    job = trained[0]["leaving"]
    assert job.state == "failed"
    assert job.message.startswith("SystemExit: I leave (networks.py, line ")


def test_what_a_network_prints_and_reads_is_no_answer_and_no_task(trained, alone):
    job, log = trained[0]["noisy"], trained[1]
    assert (job.state, job.message) == ("done", "")
    assert same_run(job.folder, alone)
    assert "noise without" in log


def test_an_answer_that_comes_together_with_another_is_heard(tmp_path):
    job = make_job("plain", tmp_path / "runs")
    (job.folder / "of others").mkdir(parents=True)  # so that the run fails at once
    log = tmp_path / "workers.log"
    with LocalWorkers(1, 1, log) as workers:
        workers.start(job)
        wait_for(lambda: "failed after" in log.read_text())  # the worker has said that it is ready, and this
        answers = workers.wait(1.0) + workers.wait(1.0)
    assert [outcome for _, outcome, _ in answers] == ["failed"]
    assert "holds other files and no run" in answers[0][2]


@pytest.mark.slow
def test_a_run_whose_worker_is_always_killed_fails_in_the_end(tmp_path):
    jobs = [make_job("killed_always", tmp_path / "runs"), make_job("plain", tmp_path / "runs")]
    with LocalWorkers(1, 1, tmp_path / "workers.log") as workers:
        train_all(jobs, workers)
    assert [job.state for job in jobs] == ["failed", "done"]
    assert jobs[0].message == "its process was killed by signal 9, 3 times"


def test_workers_that_cannot_start_are_not_tried_for_ever(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('libnothing.so: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    jobs = [make_job("plain", tmp_path / "runs", seed=seed) for seed in range(5)]
    log = tmp_path / "workers.log"
    with (
        pytest.raises(WorkersError) as error,
        LocalWorkers(1, 1, log) as workers,
    ):
        train_all(jobs, workers)
    assert str(error.value) == (
        "no worker can start: the last one ended with code 1; "
        f"ImportError: libnothing.so: cannot open shared object file ({log})"
    )


@pytest.mark.slow
def test_two_drivers_on_one_folder_train_every_run_once(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "LOOK_AGAIN", 0.1)
    names = [("slow", 0), ("plain", 1)]
    drivers = [[make_job(name, tmp_path / "runs", seed=seed) for name, seed in names] for _ in range(2)]
    seen = [set(), set()]

    def drive(number):
        def note():
            seen[number] |= {job.state for job in drivers[number]}
            if slow_pids() and "elsewhere" in seen[0] | seen[1]:
                mark("go").touch()

        with LocalWorkers(1, 1, tmp_path / f"{number}.log") as workers:
            train_all(drivers[number], workers, note)

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [job.state for jobs in drivers for job in jobs] == ["done"] * 4
    assert "elsewhere" in seen[0] | seen[1]
    assert len(slow_pids()) == 1  # one process has trained it
    for job in drivers[0]:
        assert len((job.folder / "epochs.jsonl").read_text().splitlines()) == 2


DRIVER = """
import sys
from pathlib import Path
from tests.experiments.grid.networks import make_job
from st3.experiments.grid.local import LocalWorkers
from st3.experiments.grid.schedule import train_all
folder = Path(sys.argv[1])
with LocalWorkers(2, 1, folder / "workers.log") as workers:
    train_all([make_job("slow", folder / "runs", seed=seed) for seed in range(2)], workers)
"""


def test_when_the_driver_is_killed_its_workers_save_and_end_and_the_same_command_goes_on(tmp_path, alone):
    jobs = [make_job("slow", tmp_path / "runs", seed=seed) for seed in range(2)]
    driver = start_python(DRIVER, tmp_path)
    try:
        wait_for(lambda: len(slow_pids()) == 2, process=driver)
    finally:
        driver.kill()
        driver.wait()
    pids = slow_pids()
    assert len(pids) == 2
    wait_for(lambda: not any(map(is_alive, pids)), 60)
    for job in jobs:
        assert not job.is_finished
        (checkpoint,) = (job.folder / "checkpoints").glob("step-*.pt")
        assert (
            BATCHES < int(checkpoint.stem.partition("-")[2]) < 2 * BATCHES
        )  # it saved within the second epoch
    with LocalWorkers(1, 1, tmp_path / "workers.log") as workers:
        train_all(jobs, workers)
    assert [job.state for job in jobs] == ["done", "done"]
    assert same_run(jobs[0].folder, alone)


STUDY = """
data = "digits"
model = "tests.experiments.grid.networks:slow"
recipe = "digits"
epochs = 2
methods = ["st3"]
sparsities = [0.9]
seeds = [0, 1]
dense = false
"""


def study(folder):
    """Start a study of two runs on two workers."""
    (folder / "mine.toml").write_text(STUDY)
    words = ["study", "run", str(folder / "mine.toml"), "--workers", "2", "--out", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "st3", *words, "--device", "cpu"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def epochs_of(folder):
    return [len(path.read_text().splitlines()) for path in (folder / "runs").glob("*/epochs.jsonl")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["ctrl-c", "sigterm"]
)
def test_a_stopped_study_saves_its_runs_and_the_same_command_goes_on(tmp_path, number):
    process = study(tmp_path)
    wait_for(lambda: len(slow_pids()) == 2, process=process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert err.splitlines()[-1] == "stopped; every run is saved: the same command goes on"
    assert "Traceback" not in err + (tmp_path / "workers.log").read_text()
    assert err.count(": stopped in epoch 2, after step ") == 2
    assert not any(is_alive(pid) for pid in slow_pids())

    _, err = study(tmp_path).communicate(timeout=120)
    assert "2 runs to train, 2 epochs" in err
    assert epochs_of(tmp_path) == [2, 2]


@pytest.mark.slow
def test_a_second_ctrl_c_ends_everything_at_once(tmp_path):
    process = study(tmp_path)
    wait_for(lambda: len(slow_pids()) == 2, process=process)
    for pid in slow_pids():  # as if they took long to save
        os.kill(pid, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("stopped at once; the work since the last checkpoints is lost")
    assert "Traceback" not in err
    assert not any(is_alive(pid) for pid in slow_pids())
