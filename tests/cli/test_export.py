"""`st3 export`: a trained model in other formats."""

import json
import shutil

import onnxruntime
import pytest
import torch

import st3 as library
from st3.data import DATASETS
from st3.engine.native import is_built
from st3.files.weights import read_weights
from st3.models import MODELS


@pytest.fixture
def run(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    return folder


def test_a_sparse_file_is_written_beside_the_model_and_its_size_is_shown(st3, run):
    (run / "model.sparse.safetensors").unlink()
    answer = st3("export", run)
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    assert lines[0] == str(run / "model.sparse.safetensors")
    assert [line.split("  ")[0] for line in lines[3:7]] == [
        "all numbers, stored densely", "this file", "of which positions", "bound: values and entropy of positions",
    ]  # fmt: skip
    assert "times smaller than all numbers" in lines[-1]
    plain = read_weights(run / "model.safetensors")[0]
    found = library.load_sparse(run / "model.sparse.safetensors")
    assert found.keys() == plain.keys()
    assert all(torch.equal(found[name], plain[name]) for name in plain)


def test_training_writes_a_sparse_file_for_sparse_runs_only(finished):
    assert (finished / "model.sparse.safetensors").is_file()
    assert not (finished / "dense" / "model.sparse.safetensors").exists()
    plain = read_weights(finished / "model.safetensors")
    model = library.load_sparse(
        finished / "model.sparse.safetensors", MODELS["digits_cnn"](classes=10, channels=1)
    )
    assert all(torch.equal(tensor, plain[0][name]) for name, tensor in model.state_dict().items())


def test_rounded_values_get_their_own_file_and_eval_reads_all_files(st3, run):
    lossless = run / "model.sparse.safetensors"
    content = lossless.read_bytes()
    for values in ("float16", "bfloat16"):
        answer = st3("export", run, "--values", values)
        assert answer.stdout.startswith(f"{run / 'model'}.{values}.sparse.safetensors\n")
    assert lossless.read_bytes() == content
    plain, sparse, rounded = (
        json.loads(st3("eval", path, "--json").stdout)
        for path in (run, lossless, run / "model.float16.sparse.safetensors")
    )
    assert plain["loss"] == sparse["loss"]
    assert rounded["loss"] != plain["loss"]
    assert rounded["loss"] == pytest.approx(plain["loss"], abs=1e-3)
    assert plain["sparsity"] == sparse["sparsity"] == rounded["sparsity"]


def test_a_dense_model_gains_nothing_and_the_output_says_so(st3, run):
    answer = st3("export", run / "dense", "--to", "sparse")
    assert answer.stdout.splitlines()[-1].startswith("No gain: ")


def test_onnx_and_pt2_are_written_and_no_gain_is_claimed(st3, run):
    for form in ("onnx", "pt2"):
        answer = st3("export", run, "--to", form)
        assert answer.exit_code == 0, answer.output
        assert answer.stdout.startswith(f"{run / 'model'}.{form}\n")
        assert "gives the model's answers" in answer.stdout
        assert answer.stdout.splitlines()[-1].startswith("No gain from zeros: ")
        assert answer.stderr == ""
    session = onnxruntime.InferenceSession(run / "model.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", 1, 8, 8]
    program = torch.export.load(run / "model.pt2").module()
    x = torch.randn(5, 1, 8, 8)
    scores = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    assert torch.allclose(program(x), torch.tensor(scores), atol=1e-4)


@pytest.mark.skipif(not is_built(), reason="the kernels are not built")
def test_a_file_of_the_engine_is_written_and_gives_the_models_answers(st3, run):
    answer = st3("export", run, "--to", "engine")
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    assert lines[0] == str(run / "model.st3run")
    assert lines[-1].endswith(")")
    assert "inputs of 1x1x8x8; the engine gives the model's answers (largest difference " in lines[-1]
    assert answer.stderr == ""
    assert library.engine.load(run / "model.st3run")(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    answer = st3(
        "export", run, "--to", "engine", "--batch", "4", "--threads", "2", "--output", run / "four.st3run"
    )
    assert answer.exit_code == 0, answer.output
    four = library.engine.load(run / "four.st3run")
    assert (four(torch.zeros(4, 1, 8, 8)).shape, four.threads) == ((4, 10), 2)
    assert not list(run.glob(".*st3run*"))  # no temporary folder is left behind


@pytest.mark.skipif(not is_built(), reason="the kernels are not built")
def test_a_file_of_the_engine_in_int8_is_calibrated_on_training_examples(st3, run):
    plain = st3("export", run, "--to", "engine", "--output", run / "plain.st3run")
    answer = st3("export", run, "--to", "engine", "--int8", "--batch", "600")
    assert answer.exit_code == 0, answer.output
    assert "and less, in int8, inputs of 600x1x8x8; the engine gives the model's answers" in answer.stdout
    assert "in int8" not in plain.stdout
    pictures, _ = DATASETS["digits"](augment=False).test.batch(torch.arange(400), None)
    x = torch.cat([pictures, pictures[:200]])
    found = library.engine.load(run / "model.st3run")(x)
    one = library.engine.load(run / "plain.st3run")
    wanted = torch.cat([one(each[None]) for each in x])
    difference = (found - wanted).abs().max() / wanted.abs().max()
    assert 1e-4 < difference < 0.1


def test_int8_needs_the_data_that_the_model_was_trained_on(st3, tmp_path):
    torch.save(MODELS["digits_cnn"]().state_dict(), tmp_path / "w.pt")
    answer = st3("export", "w.pt", "--to", "engine", "--int8", "--model", "digits_cnn", "--input", "1x8x8")
    assert answer.exit_code == 1
    assert answer.stderr == (
        "error: --int8: w.pt does not say which data it was trained on, whose examples would calibrate it\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "tflite"], "export: --to must be one of sparse, onnx, pt2, engine, got 'tflite'"),
        (["--values", "fp8"], "export: --values must be one of same, float16, bfloat16, got 'fp8'"),
        (["--to", "onnx", "--values", "float16"], "export: --values float16 goes with --to sparse only"),
        (["--to", "onnx", "--batch", "4"], "export: --batch goes with --to engine only"),
        (["--threads", "2"], "export: --threads goes with --to engine only"),
        (["--int8"], "export: --int8 goes with --to engine only"),
        (["--to", "engine", "--data-dir", "here"], "export: --data-dir goes with --int8 only"),
        (["--output", "nowhere/m"], "--output: there is no folder nowhere"),
    ],
)
def test_bad_options_are_refused(st3, finished, words, message):
    answer = st3("export", finished, *words)
    assert (answer.exit_code, answer.stderr) == (1, f"error: {message}\n")


def test_all_commands_agree_on_the_size_of_the_sparse_file(st3, run):
    def size(answer):
        return next(line.split()[-2:] for line in answer.stdout.splitlines() if "as a sparse file" in line)

    written = st3("export", run).stdout.splitlines()[4]
    assert written.startswith("this file")
    assert size(st3("info", run)) == size(st3("export", run, "--to", "onnx")) == written.split()[2:4]


def test_pictures_too_large_for_memory_are_refused_in_one_sentence(st3, run):
    answer = st3("export", run, "--to", "onnx", "--input", f"1x{10**7}x{10**7}")
    assert answer.exit_code == 1
    assert answer.stderr == (
        "error: --input: 2x1x10000000x10000000 is over 268,435,456 numbers: take a smaller input\n"
    )
    assert answer.stderr.count("\n") == 1


def test_the_model_to_export_is_not_overwritten(st3, run):
    answer = st3("export", run, "--output", run / "model.safetensors")
    message = f"error: --output: {run / 'model.safetensors'} is the model to export: give another file name\n"
    assert (answer.exit_code, answer.stderr) == (1, message)


def test_a_state_dict_becomes_a_sparse_file_but_needs_a_model_name_to_become_a_program(st3, tmp_path):
    weights = MODELS["digits_cnn"]().state_dict()
    weights["conv2.weight"].zero_()
    torch.save(weights, tmp_path / "w.pt")
    assert st3("export", "w.pt").stdout.startswith("w.sparse.safetensors\n")
    answer = st3("export", "w.pt", "--to", "pt2")
    assert answer.stderr == (
        "error: w.pt:\n  it does not name its model: add --model NAME\n"
        "  it does not give the shape of its inputs: add --input 3x32x32\n"
    )
    named = ["--model", "digits_cnn", "--input", "1x8x8"]
    assert st3("export", "w.sparse.safetensors", "--to", "pt2", *named).stdout.startswith("w.pt2\n")


def test_a_damaged_sparse_file_is_refused_in_one_sentence(st3, run):
    file = run / "model.sparse.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    for command in ("info", "eval", "export"):
        answer = st3(command, file)
        assert answer.exit_code == 1
        assert answer.stderr.startswith(f"error: {file} is damaged: ")
        assert len(answer.stderr.splitlines()) == 1
