"""Protocols from the command line: a dense twin, and training in cycles."""

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
from st3.cli.progress import PlainProgress
from st3.cli.run_folder import usual_folder
from st3.cli.spec_options import SpecOptions
from st3.experiments.spec import compose
from st3.training.sections import SettingsError
from st3.training.tensorboard import TensorBoard

WORDS = ("train", "--cycles", "3", "--epochs", "1")


@pytest.fixture(scope="module")
def cycled(tmp_path_factory):
    """Return the folder of a finished run of three cycles, and what it printed; tests must not change it."""
    folder = tmp_path_factory.mktemp("cycled") / "run"
    answer = CliRunner().invoke(app, [*WORDS, "--run", str(folder)])
    assert answer.exit_code == 0, answer.output
    return folder, answer


def test_a_run_prints_its_spec_then_each_cycle_then_the_table_of_all(cycled):
    folder, answer = cycled
    lines = answer.stderr.splitlines()
    assert "sparse    gmp, sparsity 0.36, allocation global, constant" in lines
    what = (
        "3 cycles, the first one dense, 0.2 of the remaining weights pruned after each, other batches in each"
    )
    assert f"protocol  lrr: {what}" in lines
    assert [line for line in lines if line.startswith("cycle ")] == [
        "cycle 0, dense (1 of 3)",
        "cycle 1, sparsity 0.2 (2 of 3)",
        "cycle 2, sparsity 0.36 (3 of 3)",
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
def test_the_other_commands_accept_the_run_and_every_cycle(st3, cycled, which, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(cycled[0], folder)
    place = folder / which
    sparsity = {"": "36.00 %", "cycle-00": "0.00 %", "cycle-01": "20.00 %"}[which]
    assert f"sparsity  {sparsity}" in st3("eval", place, "--device", "cpu").stdout
    assert f"{sparsity} of 23,808 weights" in st3("info", place).stdout
    assert st3("report", place).stdout.strip() == str(place / "report.html")
    assert st3("plot", place, "--out", "one.svg").exit_code == 0


def test_the_summary_as_json_includes_the_cycles(st3, cycled):
    answer = st3("train", "--run", cycled[0], "--resume", "--json", "--quiet")
    found = json.loads(answer.stdout)
    assert [cycle["folder"] for cycle in found["cycles"]] == ["cycle-00", "cycle-01", "cycle-02"]
    assert found["cycles"][1]["target"] == found["parts"]["cycle-01"]["target"] == 0.2


def test_the_same_command_and_the_folder_alone_resume_it(st3, cycled):
    for words in (WORDS, ("train",), ("train", "--protocol", "lrr", "--sparsity", "0.36", "--epochs", "1")):
        answer = st3(*words, "--run", cycled[0], "--resume", "--quiet")
        assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cycles", "4"], "holds another run (sparse.sparsity: 0.488, not 0.36)"),
        (["--reset-seed"], "holds another run (protocol.arguments.reset_seed: True, not False)"),
        (
            ["--set", "protocol.arguments.carry=best"],
            "another run (protocol.arguments.carry: 'best', not 'last')",
        ),
        (["--method", "st3"], "holds another run (sparse.method.name: 'st3', not 'gmp')"),
        (["--protocol", "single"], "protocol.name: 'single', not 'lrr'"),
        (["--protocol", "lrrr"], "unknown protocol 'lrrr'; did you mean 'lrr'? (known: lrr, single, twin)"),
    ],
)
def test_another_run_is_not_resumed(st3, cycled, words, message):
    answer = st3("train", "--run", cycled[0], "--resume", *words, "--quiet")
    assert answer.exit_code == 1
    assert message in answer.stderr


def test_a_single_training_does_not_become_several(st3, finished):
    answer = st3("train", "--run", finished, "--resume", "--protocol", "lrr", "--quiet")
    assert "holds another run" in answer.stderr
    assert "protocol.name: 'lrr', not 'twin'" in answer.stderr


def test_a_cycle_is_not_resumed_by_itself(st3, cycled):
    answer = st3("train", "--run", cycled[0] / "cycle-01", "--resume")
    assert answer.stderr == (
        "error: the spec has faults: this is cycle 1 of a larger run: resume that run, in the folder above\n"
    )


@pytest.mark.parametrize(
    ("name", "options", "fault"),
    [
        (None, {"reset_seed": True}, "reset_seed is an argument of protocol 'lrr', not of 'twin': add --protocol lrr"),
        ("single", {"cycles": 3}, "--cycles is for protocol 'lrr', not for 'single': leave out one of them"),
        ("lrr", {"dense_twin": True}, "--dense-twin is for protocol 'twin', not for 'lrr': leave out one of them"),
        (None, {"dense_twin": True, "cycles": 3}, "--dense-twin is for protocol 'twin', not for 'lrr': leave out one "
         "of them"),
        ("lr", {}, "unknown protocol 'lr'; did you mean 'lrr'? (known: lrr, single, twin)"),
    ],
)  # fmt: skip
def test_options_of_another_protocol_are_refused(name, options, fault):
    given = SpecOptions(protocol=name, protocol_options=options)
    assert given.describes_a_run
    with pytest.raises(SettingsError) as caught:
        given.spec()
    assert list(caught.value.faults) == [fault]


@pytest.mark.parametrize(
    ("name", "options", "protocol"),
    [
        (None, {}, None),
        (None, {"dense_twin": True}, "twin"),
        (None, {"dense_twin": False}, "single"),
        ("twin", {"dense_twin": True}, "twin"),
        (None, {"cycles": 3}, {"name": "lrr", "arguments": {"count": 3}}),
        ("lrr", {"dense_twin": False}, "lrr"),
        ("lrr", {"reset_seed": True}, {"name": "lrr", "arguments": {"reset_seed": True}}),
    ],
)
def test_options_choose_the_protocol_and_its_arguments(name, options, protocol):
    given = SpecOptions(protocol=name, protocol_options=options)
    assert given.spec() == compose(protocol=protocol)


def test_the_folder_is_named_after_the_protocol(tmp_path):
    cycles = compose(protocol={"name": "lrr", "arguments": {"count": 3}})
    assert usual_folder(cycles, tmp_path).name == "digits-digits_cnn-lrr-gmp-0.36-seed0"


def test_the_time_left_includes_the_cycles_to_come(capsys, monkeypatch):
    now = iter(range(10_000))
    monkeypatch.setattr("st3.cli.progress.time.monotonic", lambda: float(next(now)))
    progress = PlainProgress(compose(protocol="lrr", epochs=2))
    progress.on_part("cycle 1, sparsity 0.2", "cycle-01", 1, 4, 0.2)
    progress.on_begin(False, 0, 0)
    epoch(progress, 1, sparsity=0.2)
    first, line = capsys.readouterr().err.splitlines()
    assert first == "cycle 1, sparsity 0.2 (2 of 4)"
    assert "sparsity  20.0 % -> 20.0 %" in line
    before = progress.seconds_left()
    progress.on_part("cycle 3, sparsity 0.488", "cycle-03", 3, 4, 0.488)
    pace = before / (3 * 2 * BATCHES - BATCHES)
    assert progress.seconds_left() == pytest.approx(pace * BATCHES, rel=0.5)


def test_each_cycle_has_a_folder_for_tensorboard(tmp_path):
    with TensorBoard(tmp_path) as board:
        for number in (0, 1):
            board.on_part(f"cycle {number}", f"cycle-{number:02}", number, 2, 0.2 * number)
            board.on_begin(number == 0, 0, 0)
            board.on_step({"step": 1, "loss": 1.0, "rate": 0.1, "sparsity_asked": None, "threshold": None})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cycle-00", "cycle-01"]


@pytest.mark.slow
def test_interrupted_in_a_later_cycle_it_says_how_to_continue_and_does(tmp_path):
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
    assert err.splitlines()[-1] == f"continue with: st3 train --run {folder} --resume"
    done = subprocess.run(
        [*command, "--run", str(folder), "--resume"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert "cycle 0, " not in done.stderr
    assert "continuing after step " in done.stderr
    assert json.loads((folder / "summary.json").read_text())["epochs"] == 6
