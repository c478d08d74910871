"""`st3 train`, with real runs on digits."""

import json

import pytest

from st3.core.method import METHODS
from st3.files.loading import load_sparse
from st3.training.sealed import parse

ESCAPE = "\x1b"
RUN = ("train", "--epochs", "1", "--no-dense-twin")


def test_a_run_prints_its_spec_first_and_its_sparsity_last(st3, tmp_path):
    answer = st3("train", "--epochs", 2)
    assert answer.exit_code == 0, answer.output
    lines = answer.stderr.splitlines()
    assert lines[0] == "data      digits"
    assert lines[2].startswith(
        "sparse    st3, sparsity 0.9, allocation global, cubic ramp from epoch 0.0667 to 1.2"
    )
    assert lines[3] == "protocol  twin: first without sparsity, to compare"
    assert lines[7] == "run       runs/digits-digits_cnn-st3-0.9-seed0"
    assert [line for line in lines if " of 2)" in line] == ["dense twin (1 of 2)", "sparse (2 of 2)"]
    assert len([line for line in lines if line.startswith("epoch ")]) == 4
    assert answer.stdout.splitlines()[1].split() == ["dense", "sparse"]
    assert answer.stdout.splitlines()[-1].startswith("sparsity 90.00 % (target 90.00 %): 21,427 of 23,808")
    assert ESCAPE not in answer.output
    folder = tmp_path / "runs" / "digits-digits_cnn-st3-0.9-seed0"
    for name in ("report.html", "model.safetensors", "summary.json", "dense/summary.json"):
        assert (folder / name).is_file()


def test_runs_of_the_same_kind_get_numbers(st3, tmp_path):
    for _ in range(2):
        assert st3(*RUN, "--quiet").exit_code == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == ["digits-digits_cnn-st3-0.9-seed0", "digits-digits_cnn-st3-0.9-seed0-2"]


def test_with_json_there_is_nothing_else_on_stdout(st3, finished):
    answer = st3("train", "--run", finished, "--resume", "--json")
    found = json.loads(answer.stdout)
    summary, dense = (parse((finished / name / "summary.json").read_bytes()) for name in (".", "dense"))
    assert found == {**summary, "run": str(finished), "parts": {"dense": dense}}
    assert "this run is already finished: nothing was left to train" in answer.stderr
    assert "test accuracy" in answer.stderr


def test_quiet_leaves_only_the_table(st3, finished):
    answer = st3("train", "--run", finished, "--resume", "--quiet")
    assert answer.stderr == ""
    assert answer.stdout.splitlines()[0].split() == ["dense", "sparse"]
    assert len(answer.stdout.splitlines()) == 9
    answer = st3("train", "--run", finished, "--resume", "--quiet", "--json")
    assert answer.stderr == ""
    assert json.loads(answer.stdout)["target"] == 0.9


def test_options_reach_the_spec(st3, tmp_path):
    words = "--seed 3 --data-seed 4 --sparsity 0.5 --allocation uniform --threads 1"
    answer = st3(*RUN, *words.split(), "--no-channels-last", "--set", "optimizer.lr=0.05", "--run", "a", "-q")
    assert answer.exit_code == 0, answer.output
    spec = json.loads((tmp_path / "a" / "spec.json").read_text())
    assert spec["seeds"] == {"init": 3, "data": 4}
    assert (spec["sparse"]["sparsity"], spec["sparse"]["allocation"]["name"]) == (0.5, "uniform")
    assert spec["recipe"]["optimizer"]["lr"] == 0.05
    assert spec["machine"] == spec["machine"] | {
        "threads": 1,
        "channels_last": False,
    }
    assert spec["protocol"] == {"name": "single", "arguments": {}}


def test_blocks_are_shown_trained_and_part_of_the_run(st3, tmp_path):
    answer = st3(*RUN, "--block", 4, "--sparsity", 0.8)
    assert answer.exit_code == 0, answer.output
    run = tmp_path / "runs" / "digits-digits_cnn-st3-0.8-block4-seed0"
    assert next(line for line in answer.stderr.splitlines() if line.startswith("sparse ")).endswith(
        "blocks of 4"
    )
    assert "sparsity 80.00 % (target 80.00 %): 18,816 of 23,520" in answer.stdout  # conv1 stays dense
    weight = load_sparse(run / "model.sparse.safetensors")["conv2.weight"].movedim(1, -1)
    active = weight.unflatten(-1, (-1, 4)) != 0
    assert bool((active.any(-1) == active.all(-1)).all())
    assert st3("train", "--run", run, "--resume", "--block", 4, "-q").exit_code == 0
    other = st3("train", "--run", run, "--resume", "--block", 8, "-q")
    assert "sparse.block: 8, not 4" in other.stderr


def test_an_unknown_precision_is_refused(st3):
    answer = st3(*RUN, "--precision", "float8")
    assert answer.exit_code == 1
    assert (
        "machine.precision: input should be 'float32', 'bfloat16' or 'float16', got 'float8'" in answer.stderr
    )


def test_seed_sets_both_seeds(st3, tmp_path):
    st3(*RUN, "--method", "dense", "--seed", 5, "--run", "a", "-q")
    assert json.loads((tmp_path / "a" / "spec.json").read_text())["seeds"] == {"init": 5, "data": 5}


def test_the_users_own_network_is_found_in_the_current_folder(st3, tmp_path):
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\n\ndef tiny(classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    answer = st3(*RUN, "--model", "my_nets:tiny", "--sparsity", 0.5)
    assert answer.exit_code == 0, answer.output
    run = tmp_path / "runs" / "digits-my_nets-tiny-st3-0.5-seed0"
    assert json.loads((run / "summary.json").read_text())["parameters"] == 650
    assert st3("eval", run).exit_code == 0


def test_all_faults_are_reported_at_once(st3, tmp_path):
    answer = st3(*RUN, "--method", "ts3", "--set", "optimizer.lerning=1", "--set", "x", "--data", "digts")
    assert answer.exit_code == 1
    first, *faults = answer.stderr.splitlines()
    assert first == "error: the spec has faults:"
    assert len(faults) == 4
    assert "  'x' is not of the form key=value, such as optimizer.lr=0.05" in faults
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_holds_a_run_is_refused(st3, finished):
    answer = st3("train", "--run", finished, "--quiet")
    message = f"error: {finished} already holds a run: add --resume to continue it, or choose another --run\n"
    assert (answer.exit_code, answer.stderr) == (1, message)


def test_another_spec_cannot_resume_a_run(st3, finished):
    answer = st3("train", "--run", finished, "--resume", "--epochs", "2", "--sparsity", "0.8", "--quiet")
    assert answer.exit_code == 1
    assert (
        "holds another run (sparse.sparsity: 0.8, not 0.9): resume it without these options" in answer.stderr
    )
    assert st3("train", "--run", finished, "--resume", "--epochs", 2, "--quiet").exit_code == 0


def test_resuming_needs_to_know_which_run(st3):
    answer = st3("train", "--resume")
    assert answer.exit_code == 2
    assert "it needs --run FOLDER, the run to resume" in answer.stderr


def test_resuming_a_missing_run_names_runs_nearby(st3, finished):
    answer = st3("train", "--resume", "--run", finished.with_name("rum"))
    message = f"error: there is no run in {finished.with_name('rum')} to resume; nearby: {finished}\n"
    assert (answer.exit_code, answer.stderr) == (1, message)


def test_resuming_a_missing_run_starts_it_if_options_describe_it(st3, tmp_path):
    answer = st3(*RUN, "--run", "new", "--resume")
    assert answer.exit_code == 0
    assert answer.stderr.startswith("there is no run in new yet: starting it\n")
    assert (tmp_path / "new" / "summary.json").exists()


@pytest.mark.parametrize("name", ["cudo", "mps", "meta", "cuda:", "cuda:x"])
def test_an_unknown_device_is_refused(st3, name):
    answer = st3(*RUN, "--device", name, "--quiet")
    message = f"error: the spec has faults: machine.device: unknown device {name!r}; try auto, cpu, cuda or cuda:1\n"
    assert (answer.exit_code, answer.stderr) == (1, message)


@pytest.mark.parametrize(
    ("words", "needless"),
    [
        (("--data-dir", "/nonexistent"), "--data-dir"),
        (("--download",), "--download"),
        (("--data-dir", "a", "--download"), "--data-dir and --download"),
    ],
)
def test_digits_need_no_files(st3, tmp_path, words, needless):
    answer = st3("train", *words)
    assert (answer.exit_code, answer.stderr) == (
        1,
        f"error: the spec has faults: data set 'digits' needs no files: leave out {needless}, or name another --data "
        "(cifar10, cifar100, fashion_mnist, folder, imagenet, text)\n",
    )
    assert not (tmp_path / "runs").exists()


def test_a_wrong_argument_of_the_method_is_reported_before_the_dense_twin_trains(st3, tmp_path):
    answer = st3("train", "--set", "sparse.arguments.foo=1", "--set", "model.arguments.width=2", "--run", "a")
    assert answer.stderr.splitlines() == [
        "error: the spec has faults:",
        "  model 'digits_cnn' takes no argument 'width' (known: classes, channels)",
        "  method 'st3' takes no argument 'foo' (known: soft, rescale, straight_through, exact_rescale)",
    ]
    assert not (tmp_path / "a").exists()


def test_the_method_dense_by_a_change_is_a_dense_run(st3, tmp_path):
    answer = st3("train", "--epochs", 1, "--set", "sparse.method=dense", "--run", "a", "--quiet")
    assert answer.exit_code == 0, answer.output
    spec = json.loads((tmp_path / "a" / "spec.json").read_text())
    found = (spec["sparse"]["method"]["name"], spec["sparse"]["sparsity"], spec["protocol"]["name"])
    assert found == ("dense", 0.0, "single")


def test_a_recipe_that_cannot_be_read_is_named(st3, tmp_path):
    fault = "recipe 'nofile.toml': cannot read the file: No such file or directory"
    assert st3("train", "--recipe", "nofile.toml").stderr == f"error: the spec has faults: {fault}\n"
    (tmp_path / "empty.toml").touch()
    assert "  recipe 'empty.toml': epochs is missing\n" in st3("train", "--recipe", "empty.toml").stderr
    assert "faults: unknown recipe 'cifa'; did you mean 'cifar'?" in st3("train", "--recipe", "cifa").stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--sparsity", "0.9"),
        ("--seed", "0"),
        ("--epochs", "2", "--method", "st3"),
        ("--recipe", "digits"),
        ("--set", "sparse.ramp=cubic", "--set", "optimizer.momentum=0.9"),
        ("--dense-twin", "--data", "digits"),
    ],
)
def test_options_that_agree_with_a_run_resume_it(st3, finished, words):
    answer = st3("train", "--run", finished, "--resume", *words, "--quiet")
    assert (answer.exit_code, answer.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (("--sparsity", "0.8"), "sparse.sparsity: 0.8, not 0.9"),
        (("--epochs", "30"), "recipe.epochs: 30, not 2"),
        (("--epochs", "1", "--seed", "0"), "recipe.epochs: 1, not 2"),
        (("--set", "optimizer.lr=0.5"), "recipe.optimizer.lr: 0.5, not 0.1"),
        (("--no-dense-twin",), "protocol.name: 'single', not 'twin'"),
        (("--model", "resnet20"), "model.name: 'resnet20', not 'digits_cnn'"),
        (
            ("--method", "dense"),
            "sparse.method.name: 'dense', not 'st3'; sparse.sparsity: 0.0, not 0.9; "
            "protocol.name: 'single', not 'twin'",
        ),
    ],
)
def test_options_that_differ_from_a_run_are_named_when_it_is_not_resumed(st3, finished, words, difference):
    answer = st3("train", "--run", finished, "--resume", *words, "--quiet")
    assert answer.exit_code == 1
    assert f"holds another run ({difference}): " in answer.stderr


def test_faults_are_reported_when_a_run_is_resumed(st3, finished):
    answer = st3("train", "--run", finished, "--resume", "--method", "st33", "--set", "machin.threads=1")
    assert answer.stderr.splitlines()[1:] == [
        "  unknown key 'machin.threads'; did you mean 'machine.threads'? (known: data, model, sparse, recipe, seeds, "
        "machine, record, protocol, name, epochs, batch_size, clip_norm, gradient_rms, label_smoothing, optimizer, "
        "rate, ramp, freeze_epochs, rewind)",
        f"  unknown method 'st33'; did you mean 'st3'? (known: {', '.join(METHODS)})",
    ]


def test_the_folder_of_missing_data_is_named(st3, tmp_path):
    answer = st3("train", "--data", "cifar10", "--data-dir", "nowhere", "--epochs", "1", "--quiet")
    assert answer.exit_code == 1
    assert answer.stderr.startswith("error: ")
    assert str(tmp_path / "nowhere") in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_metrics_for_tensorboard_are_written_into_the_run(st3, tmp_path):
    answer = st3("train", "--epochs", 1, "--tensorboard", "--run", "a", "--quiet")
    assert answer.exit_code == 0, answer.output
    for kind in ("dense", "sparse"):
        assert len(list((tmp_path / "a" / "tensorboard" / kind).glob("events.*"))) == 1


def test_without_tensorboardx_it_says_what_to_install(st3, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    answer = st3(*RUN, "--tensorboard", "--run", "a", "--quiet")
    assert answer.stderr == "error: TensorBoard needs tensorboardX: pip install 'st3[tensorboard]'\n"
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("value", ["0", "-1"])
def test_at_least_one_checkpoint_is_kept(st3, value):
    assert st3(*RUN, "--keep", value).exit_code == 2
