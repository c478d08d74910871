"""Exports of models that are called with keywords, for sequences of any length."""

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import st3

EXPORTS = [st3.export_onnx, st3.export_program]
every_export = pytest.mark.parametrize("export", EXPORTS, ids=lambda function: function.__name__)

TEXT = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"}}


def tokens(batch, length):
    generator = torch.Generator().manual_seed(length)
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, length // 2 + 1 :] = 0  # one shorter text
    return {"input_ids": torch.randint(0, 90, (batch, length), generator=generator), "attention_mask": mask}


def run_onnx(path, inputs):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    assert names == ["input_ids", "attention_mask"]
    assert [node.shape for node in session.get_inputs()] == [["batch", "sequence"]] * 2
    return torch.as_tensor(session.run(None, {name: inputs[name].numpy() for name in names})[0])


def run_program(path, inputs):
    return torch.export.load(path).module()(**inputs)[0]


RUN = {st3.export_onnx: run_onnx, st3.export_program: run_program}


def check(export, path, model, inputs):
    with torch.no_grad():
        np.testing.assert_allclose(RUN[export](path, inputs), model(**inputs)[0], atol=1e-5)


@every_export
def test_a_transformer_is_exported_with_named_inputs_for_any_batch_and_length(export, tmp_path):
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=1, n_head=2, n_embd=32, vocab_size=90, n_positions=40, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config).eval()
    example = {"use_cache": False, **tokens(2, 12)}  # with a constant, and not in the order of forward
    made = export(model, example, tmp_path / "m", dynamic=TEXT)
    assert "any size of batch and sequence" in str(made)
    assert made.difference < 1e-4
    for batch, length in ((1, 12), (3, 5), (2, 33), (1, 1)):
        check(export, tmp_path / "m", model, tokens(batch, length) | {"use_cache": False})


class Reader(nn.Module):
    """Called like a transformer, with a longest sequence of 64 tokens."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(90, 8), nn.Parameter(torch.randn(64, 8))

    def forward(self, input_ids, labels=None, attention_mask=None):
        words = self.words(input_ids) + self.places[: input_ids.shape[1]]
        return (words * attention_mask[..., None], words.mean())


def limit(least, most):
    sequence = torch.export.Dim("sequence", min=least, max=most)
    return {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: sequence}}


@every_export
def test_a_model_with_a_longest_sequence_asks_for_the_limit_and_takes_it(export, tmp_path):
    with pytest.raises(st3.errors.ExportError) as error:
        export(Reader(), tokens(2, 8), tmp_path / "m", dynamic=TEXT)
    assert "sequence = Dim('sequence', max=64)" in str(error.value)  # torch's own suggestion
    assert str(error.value).endswith(
        "; limit an axis by giving a torch.export.Dim in dynamic, or say dynamic={} to fix all shapes"
    )
    assert not list(tmp_path.iterdir())
    model = Reader()
    export(model, tokens(2, 8), tmp_path / "m", dynamic=limit(1, 64))
    for length in (1, 3, 64):
        check(export, tmp_path / "m", model, tokens(2, length))


def test_without_dynamic_only_the_batch_of_named_inputs_may_vary(tmp_path):
    model = Reader()
    made = st3.export_program(model, tokens(1, 6), tmp_path / "m")
    assert "any size of batch;" in str(made)
    check(st3.export_program, tmp_path / "m", model, tokens(5, 6))


def test_the_check_keeps_to_the_limits(tmp_path):
    model = Reader()
    for length, least, most in ((6, 4, 64), (6, 6, 64), (6, 5, 6)):
        made = st3.export_program(model, tokens(2, length), tmp_path / "m", dynamic=limit(least, most))
        assert made.difference < 1e-4


class Lengths(nn.Module):
    """Takes the mean over the sequence; when it is traced, it takes the example's length for a constant."""

    def forward(self, x):
        length = x.shape[1] if not torch.compiler.is_exporting() else 6
        return x.sum(1) / length


@every_export
def test_the_file_is_checked_at_another_length(export, tmp_path):
    with pytest.raises(
        st3.errors.ExportError,
        match=r"gives other answers than the model: for an input of 3x3 they differ by 0\.5 of",
    ):
        export(Lengths(), torch.ones(2, 6), tmp_path / "m", dynamic={"x": {0: "batch", 1: "sequence"}})
    assert not list(tmp_path.iterdir())


class TimeFirst(nn.Module):
    def forward(self, series, state):
        return series.cumsum(0) + state


def test_positional_inputs_have_the_names_of_forwards_arguments(tmp_path):
    dynamic = {"series": {0: "time", 1: "batch"}, "state": {0: "batch"}}
    made = st3.export_program(
        TimeFirst(), (torch.randn(7, 2, 4), torch.randn(2, 4)), tmp_path / "m", dynamic=dynamic
    )
    assert "any size of time and batch" in str(made)


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        (
            {"ids": {0: "batch"}},
            "dynamic names 'ids', but the tensors in example_input are input_ids, attention_mask",
        ),
        ({"input_ids": {2: "batch"}}, "dynamic: input_ids has no axis 2, its shape is 2x7"),
        ({"input_ids": {-1: "batch"}}, "dynamic: input_ids has no axis -1, its shape is 2x7"),
        (
            {"input_ids": {1: 7}},
            "dynamic: axis 1 of input_ids needs a name such as 'sequence' or a torch.export.Dim, got 7",
        ),
        (
            {"input_ids": {1: "the length"}},
            "dynamic: axis 1 of input_ids needs a name such as 'sequence' or a torch.export.Dim, got 'the length'",
        ),
        (
            {"input_ids": {0: "size", 1: "size"}},
            "dynamic gives the name 'size' to axes of size 2 and 7: axes with one name must have one size",
        ),
    ],
)
def test_axes_that_do_not_fit_the_example_are_refused(dynamic, message, tmp_path):
    with pytest.raises(ValueError) as error:
        st3.export_program(Reader(), tokens(2, 7), tmp_path / "m", dynamic=dynamic)
    assert str(error.value) == message


class Keywords(nn.Module):
    def forward(self, x, **others):
        return x * others["y"]


class Positions(nn.Module):
    def forward(self, x, *others):
        return x * others[0]


@pytest.mark.parametrize("dynamic", [True, {"input_ids": "batch"}])
def test_dynamic_must_be_a_table_of_tables(dynamic, tmp_path):
    with pytest.raises(TypeError) as error:
        st3.export_program(Reader(), tokens(2, 7), tmp_path / "m", dynamic=dynamic)
    assert str(error.value) == (
        f"dynamic must be like {{'input_ids': {{0: 'batch', 1: 'sequence'}}}}, got {dynamic!r}"
    )


@pytest.mark.parametrize(
    ("model", "inputs", "collects"),
    [
        (Keywords(), {"x": torch.randn(2, 3), "y": torch.randn(2, 3)}, "**others"),
        (Positions(), (torch.randn(2, 3), torch.randn(2, 3)), "*others"),
    ],
)
def test_arguments_that_forward_collects_need_fixed_shapes_and_the_error_says_so(
    model, inputs, collects, tmp_path
):
    with pytest.raises(st3.errors.ExportError) as error:
        st3.export_program(model, inputs, tmp_path / "m")
    assert str(error.value) == (
        f"torch.export allows no dynamic axes if forward collects arguments in {collects}: give only arguments that "
        "forward names, or say dynamic={} to fix all shapes"
    )
    assert st3.export_program(model, inputs, tmp_path / "m", dynamic={}).difference < 1e-4
