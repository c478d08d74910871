"""`st3 study`, with real runs on digits."""

import csv

import pytest

SMALL = ("--epochs", 1, "--seeds", 1, "--sparsities", "0.9")
ALONE = ("--threads", 1)  # other tests want the other processors


def points(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder of a small study that has run."""
    from typer.testing import CliRunner

    from st3.cli.app import app

    out = tmp_path_factory.mktemp("study")
    words = ["study", "run", "ste", *map(str, SMALL + ALONE), "--out", str(out)]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    return out, answer


def test_a_study_trains_what_is_missing_and_writes_csv_pictures_and_page(trained):
    out, answer = trained
    assert "4 runs to train, 4 epochs: about" in answer.stderr
    folder = out / "digits-1-epochs" / "ste"
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "points.csv", "ste.png", "ste.svg"]
    rows = points(folder / "points.csv")
    assert sorted(row["method"] for row in rows) == ["dense", "hard", "soft-ste", "st3"]
    assert all(row["source"] == "ours" and row["run"] for row in rows)
    assert "cannot be told at this budget" in answer.stdout


def test_a_second_study_shares_the_runs_of_the_first(trained, st3):
    out, _ = trained
    answer = st3("study", "run", "ablation", *SMALL, "--methods", "st3,hard", "--out", out)
    assert answer.exit_code == 0, answer.output
    assert "runs to train" not in answer.stderr
    rows = points(out / "digits-1-epochs" / "ablation" / "points.csv")
    assert sorted(row["method"] for row in rows) == ["hard", "st3"]


def test_points_whose_runs_are_gone_stay_in_the_csv_file(trained, st3, tmp_path):
    import shutil

    out, _ = trained
    shutil.copytree(out / "digits-1-epochs", tmp_path / "carried" / "digits-1-epochs")
    answer = st3("study", "draw", "ste", *SMALL, "--out", tmp_path / "carried")
    assert answer.exit_code == 0, answer.output
    assert len(points(tmp_path / "carried/digits-1-epochs/ste/points.csv")) == 4


def test_a_dry_run_prints_commands_and_writes_nothing(st3, tmp_path):
    answer = st3("study", "run", "ste", *SMALL, "--dry-run", "--out", tmp_path / "new")
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("st3 train --data digits") and line.endswith(" --resume") for line in lines)
    assert not (tmp_path / "new").exists()
    where = ("--data-dir", tmp_path, "--download", "--device", "cpu", "--threads", 2)
    answer = st3("study", "run", "ste", *SMALL, "--dry-run", "--out", tmp_path / "new", *where)
    for line in answer.stdout.splitlines():
        assert f" --data-dir {tmp_path} --download " in line
        assert " --device cpu --threads 2 " in line


def test_the_list_names_every_study_with_its_runs(trained, st3):
    from st3.experiments.studies import STUDIES

    out, _ = trained
    answer = st3("study", "list", "--out", out)
    assert answer.exit_code == 0
    assert [line.split()[0] for line in answer.stdout.splitlines()[1:]] == [*STUDIES]


OWN = """
data = "digits"
model = "digits_cnn"
epochs = 1
methods = ["gmp", {method = "st3", name = "mine", arguments = {rescale = false}, allocation = "sigma"}]
sparsities = [0.9]
seeds = [0]
x = "macs"
"""


def test_a_study_of_ones_own_is_a_small_file(st3, tmp_path):
    (tmp_path / "my-comparison.toml").write_text(OWN)
    answer = st3("study", "run", "my-comparison.toml", *ALONE)
    assert answer.exit_code == 0, answer.output
    rows = points(tmp_path / "studies/own/my-comparison/points.csv")
    assert sorted(row["method"] for row in rows) == ["dense", "gmp", "mine"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("run", "cifer"), "unknown study 'cifer'; did you mean 'cifar'?"),
        (("run", "ste", "--budget", "paqer"), "unknown budget 'paqer'; did you mean 'paper'?"),
        (("run", "ste", "--methods", "st4"), "has no curve 'st4' (known: hard, soft-ste, st3)"),
        (("run", "ste", "--sparsities", "0.9,x"), "must be numbers such as 0.9,0.98, got '0.9,x'"),
        (("run", "ste", "--sparsities", "90"), "must be above 0 and below 1, got 90"),
        (("run", "gone.toml"), "gone.toml: cannot be read: No such file or directory"),
        (("run", "ste", "--workers", "2", "--ray", "auto"), "leave out one of them"),
        (("run", "ste", "--budget", "cifar-short", "--data-dir", "nowhere"), "cifar10"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(st3, words, sentence, tmp_path):
    answer = st3("study", *words)
    assert answer.exit_code in (1, 2), answer.output
    assert sentence in " ".join(answer.stderr.split())
    assert "Traceback" not in answer.output
    assert not (tmp_path / "studies").exists()


def test_all_faults_of_a_file_are_told_at_once(st3, tmp_path):
    (tmp_path / "mine.toml").write_text('data = "digits"\nmethods = []\nsparsities = [1.5]\nx = "flops"\n')
    answer = st3("study", "run", "mine.toml")
    assert answer.exit_code == 1
    for word in ("model", "methods", "sparsities", "x"):
        assert word in answer.stderr


def test_a_point_that_a_method_cannot_reach_is_named_and_the_rest_is_drawn(st3, tmp_path):
    text = OWN.replace('methods = ["gmp",', 'methods = ["sr_ste", "gmp",').replace("[0.9]", "[0.5, 0.9]")
    (tmp_path / "mine.toml").write_text(text)
    answer = st3("study", "run", "mine.toml", "--dry-run")
    assert answer.exit_code == 0, answer.output
    assert "sr_ste 90 % digits_cnn seed 0 is left out: " in answer.stderr
    assert "sr_ste 50 %" not in answer.stderr
    assert len(answer.stdout.splitlines()) == 6  # dense; sr_ste at 50 %; two sparsities of two others


def test_a_wrong_key_in_the_table_of_a_method_is_named_with_those_that_exist(st3, tmp_path):
    text = OWN.replace('methods = ["gmp"', 'methods = [{alocation = "erk"}, "gmp"') + "windows = 2\n"
    (tmp_path / "mine.toml").write_text(text.replace("seeds = [0]", "seeds = 3"))
    answer = st3("study", "run", "mine.toml")
    assert answer.exit_code == 1
    assert "Traceback" not in answer.output
    said = answer.stderr.splitlines()
    assert "  methods.0.method is missing" in said
    assert "  seeds: input should be a list, got 3" in said
    assert any(
        line.startswith("  unknown key 'methods.0.alocation'; did you mean 'allocation'?") for line in said
    )
    assert len(said) == 5  # the file, and four faults


def test_a_csv_file_spoilt_by_hand_is_told_in_one_sentence(trained, st3, tmp_path):
    table = tmp_path / "digits-1-epochs" / "ste" / "points.csv"
    table.parent.mkdir(parents=True)
    table.write_text((trained[0] / "digits-1-epochs/ste/points.csv").read_text() + "ours,st3\n")
    answer = st3("study", "draw", "ste", *SMALL, "--out", tmp_path)
    assert answer.exit_code == 1
    assert answer.stderr == (
        f"error: {table}, line 6: sparsity must be a number, got ''; correct the line or delete it\n"
    )


def test_a_run_whose_summary_is_damaged_has_failed_and_says_what_to_do(trained, st3, tmp_path):
    import shutil

    shutil.copytree(trained[0] / "runs", tmp_path / "runs")
    summary = next((tmp_path / "runs").glob("*-st3-*")) / "summary.json"
    summary.write_text('{"a":')
    answer = st3("study", "run", "ste", *SMALL, *ALONE, "--out", tmp_path)
    assert answer.exit_code == 1
    assert "1 run to train (3 are there already)" in answer.stderr
    assert f"failed: {summary} is damaged" in answer.stderr
    assert "delete it" in answer.stderr
    info = st3("info", summary.parent)
    assert info.exit_code == 1
    assert "delete it, and st3 train --run FOLDER --resume" in info.stderr


def test_drawing_before_training_says_what_trains(st3, tmp_path):
    answer = st3("study", "draw", "ste", *SMALL, "--out", tmp_path)
    assert answer.exit_code == 0
    assert answer.stderr == (
        "no run of it is there yet: st3 study run ste with the same options trains them\n"
    )
