"""Training in cycles from the command line."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from tests.cli.test_progress import BATCHES, epoch
from typer.testing import CliRunner

from st3.cli.app import app
from st3.cli.comparison import cycles_table
from st3.cli.given import Given
from st3.cli.progress import PlainProgress
from st3.cli.run_folder import usual_folder
from st3.experiments.spec import compose
from st3.training.sections import SettingsError
from st3.training.tensorboard import TensorBoard

WORDS = ("train", "--cycles", "3", "--epochs", "1")


@pytest.fixture(scope="module")
def cycled(tmp_path_factory):
    """A finished run of three cycles and what it said; only to be read."""
    folder = tmp_path_factory.mktemp("cycled") / "run"
    answer = CliRunner().invoke(app, [*WORDS, "--run", str(folder)])
    assert answer.exit_code == 0, answer.output
    return folder, answer


def test_it_says_what_it_will_do_then_each_cycle_then_the_table_of_all(cycled):
    folder, answer = cycled
    told = answer.stderr.splitlines()
    assert "sparse   gmp, sparsity 0.36, allocation global, constant" in told
    assert (
        "cycles   3, the first one dense, 0.2 of the remaining weights pruned after each, other pictures in each"
        in told
    )
    assert [line for line in told if line.startswith("cycle ")] == [
        "cycle 0, 1 of 3: dense",
        "cycle 1, 2 of 3: sparsity 0.2",
        "cycle 2, 3 of 3: sparsity 0.36",
    ]
    head, *rows = answer.stdout.split("\n\n")[0].strip().splitlines()
    assert head.split()[:2] == ["cycle", "sparsity"]
    assert [row.split()[:3:2] for row in rows] == [["0", "%"], ["1", "%"], ["2", "%"]]
    assert [row.split()[-1] for row in rows] == ["cycle-00", "cycle-01", "cycle-02"]
    assert f"{folder}/cycle-02/model.safetensors  the model" in answer.stdout
    assert answer.stdout.splitlines()[-1].startswith(
        "sparsity 36.00 % (target 36.00 %): 8,571 of 23,808 weights"
    )


@pytest.mark.parametrize("which", ["", "cycle-00", "cycle-01"])
def test_the_other_commands_take_the_run_and_every_cycle(st3, cycled, which, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(cycled[0], folder)
    place = folder / which
    sparsity = {"": "36.00 %", "cycle-00": "0.00 %", "cycle-01": "20.00 %"}[which]
    assert f"sparsity  {sparsity}" in st3("eval", place, "--device", "cpu").stdout
    assert f"{sparsity} of 23,808 weights" in st3("info", place).stdout
    assert st3("report", place).stdout.strip() == str(place / "report.html")
    assert st3("plot", place, "--out", "one.svg").exit_code == 0


def test_the_summary_as_json_has_the_cycles(st3, cycled):
    answer = st3("train", "--run", cycled[0], "--resume", "--json", "--quiet")
    found = json.loads(answer.stdout)
    assert [cycle["folder"] for cycle in found["cycles"]] == ["cycle-00", "cycle-01", "cycle-02"]
    assert found["cycles"][1]["target"] == 0.2


def test_the_same_command_and_the_folder_alone_resume_it(st3, cycled):
    for words in (WORDS, ("train",), ("train", "--protocol", "lrr", "--sparsity", "0.36", "--epochs", "1")):
        answer = st3(*words, "--run", cycled[0], "--resume", "--quiet")
        assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cycles", "4"], "holds another run (sparse.sparsity: 0.488, not 0.36)"),
        (["--reset-seed"], "holds another run (cycles.reset_seed: True, not False)"),
        (["--set", "cycles.carry=best"], "holds another run (cycles.carry: 'best', not 'last')"),
        (["--method", "st3"], "holds another run (sparse.method: 'st3', not 'gmp')"),
        (["--protocol", "single"], "holds another run (sparse.method: 'st3', not 'gmp'; "),
        (["--protocol", "lrrr"], "unknown protocol 'lrrr'; did you mean 'lrr'? (known: single, lrr)"),
    ],
)
def test_another_run_is_not_resumed(st3, cycled, words, said):
    answer = st3("train", "--run", cycled[0], "--resume", *words, "--quiet")
    assert answer.exit_code == 1
    assert said in answer.stderr


def test_a_single_cycle_does_not_become_several(st3, finished):
    answer = st3("train", "--run", finished, "--resume", "--protocol", "lrr", "--quiet")
    assert "holds another run" in answer.stderr
    assert "cycles.prune: 0.2, not None" in answer.stderr


def test_a_cycle_by_itself_is_not_resumed(st3, cycled):
    answer = st3("train", "--run", cycled[0] / "cycle-01", "--resume")
    assert answer.stderr == (
        "error: the spec has faults: this is cycle 1 of a run in cycles: resume the run, in the folder above, not the "
        "cycle\n"
    )


def test_options_of_cycles_need_cycles():
    for given, fault in (
        (
            Given(cycles={"reset_seed": True}),
            "--reset-seed is for training in cycles: add --protocol lrr or --cycles N",
        ),
        (
            Given(protocol="single", cycles={"count": 3}),
            "protocol 'single' is one cycle: leave out --cycles and --reset-seed, or take lrr",
        ),
        (Given(protocol="lr"), "unknown protocol 'lr'; did you mean 'lrr'? (known: single, lrr)"),
    ):
        assert given.names_a_run
        with pytest.raises(SettingsError) as caught:
            given.spec()
        assert fault in caught.value.faults


def test_a_protocol_is_what_its_options_say():
    assert Given(protocol="lrr", sparse={"sparsity": 0.5}).spec() == compose(
        cycles={}, sparse={"sparsity": 0.5}
    )
    assert Given(cycles={"count": 3}).spec() == compose(cycles={"count": 3})
    assert Given(protocol="single").spec() == compose()
    assert Given(protocol="lrr", cycles={"reset_seed": True}).spec().cycles.reset_seed


def test_the_folder_is_named_after_the_protocol(tmp_path):
    assert usual_folder(compose(cycles={"count": 3}), tmp_path).name == "digits-digits_cnn-lrr-gmp-0.36-seed0"


def test_the_time_left_counts_the_cycles_to_come(capsys, monkeypatch):
    now = iter(range(10_000))
    monkeypatch.setattr("st3.cli.progress.time.monotonic", lambda: float(next(now)))
    progress = PlainProgress(compose(cycles={"count": 4}, epochs=2))
    progress.on_cycle(1, 4, 0.2)
    progress.on_begin(False, 0, 0)
    epoch(progress, 1, sparsity=0.2)
    first, line = capsys.readouterr().err.splitlines()
    assert first == "cycle 1, 2 of 4: sparsity 0.2"
    assert "sparsity  20.0 % -> 20.0 %" in line
    before = progress.seconds_left()
    progress.on_cycle(3, 4, 0.488)
    pace = before / (3 * 2 * BATCHES - BATCHES)
    assert progress.seconds_left() == pytest.approx(pace * BATCHES, rel=0.5)


def test_each_cycle_has_a_folder_for_tensorboard(tmp_path):
    with TensorBoard(tmp_path) as board:
        for number in (0, 1):
            board.on_cycle(number, 2, 0.2 * number)
            board.on_begin(number == 0, 0, 0)
            board.on_step({"step": 1, "loss": 1.0, "rate": 0.1, "sparsity_asked": None, "threshold": None})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cycle-00", "cycle-01"]


def test_the_table_has_a_row_for_every_cycle():
    figures = {"test": {"accuracy": 0.9}, "validation": {"accuracy": 0.95}, "sparse_macs": None}
    rows = [
        {
            "cycle": number,
            "folder": f"cycle-0{number}",
            "sparsity": 0.2 * number,
            "active_parameters": 1000,
            **figures,
        }
        for number in range(2)
    ]
    assert cycles_table({"cycles": rows}).splitlines() == [
        "cycle  sparsity  test accuracy  validation accuracy  active parameters  MACs (zeros skipped)    folder",
        "0        0.00 %        90.00 %              95.00 %              1,000                     -  cycle-00",
        "1       20.00 %        90.00 %              95.00 %              1,000                     -  cycle-01",
    ]


@pytest.mark.slow
def test_interrupted_in_a_later_cycle_it_says_how_to_go_on_and_does(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "st3", "train"]
    words = [*command, "--cycles", "2", "--epochs", "3", "--run", str(folder)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    for line in process.stderr:
        if line.startswith("cycle 1, "):
            break
    next(process.stderr)  # its first epoch
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == f"go on with: st3 train --run {folder} --resume"
    done = subprocess.run(
        [*command, "--run", str(folder), "--resume"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert "cycle 0, " not in done.stderr
    assert "going on after step " in done.stderr
    assert json.loads((folder / "summary.json").read_text())["epochs"] == 6
