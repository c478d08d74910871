"""Models and inputs that the engine cannot take are refused with a message that says what to do."""

import copy

import pytest
import torch
from tests.engine.outputs import assert_close
from tests.tiny import TinyNet, sgd, sparsify, train
from torch import Tensor, nn

import st3
from st3.engine import compiled


def net() -> nn.Module:
    return TinyNet().eval()


IMAGES = torch.randn(2, 2, 4, 4)


def refusal(call, *args, kind=ValueError, **kwargs) -> str:
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def test_a_model_in_training_mode():
    model = net()
    model.norm.train()
    assert refusal(st3.engine.compile, model, IMAGES) == (
        "the model is in training mode (norm): call model.eval() before compiling it"
    )


def test_something_that_is_not_a_model():
    assert refusal(st3.engine.compile, print, IMAGES, kind=TypeError) == (
        "model must be an nn.Module, got builtin_function_or_method"
    )


def test_parameters_of_another_dtype():
    assert refusal(st3.engine.compile, net().bfloat16(), IMAGES) == (
        "parameter 'conv.weight' is torch.bfloat16; the engine computes in float32: use model.float()"
    )


def test_a_model_on_another_device():
    assert refusal(st3.engine.compile, net().to("meta"), IMAGES) == (
        "parameter 'conv.weight' is on meta; the engine runs on the CPU: use model.cpu()"
    )


def test_weights_that_are_not_finite():
    model = net()
    with torch.no_grad():
        model.deep.weight[0, 0] = torch.inf
        model.deep.weight[1, 0, 0, 0] = torch.nan
    assert refusal(st3.engine.compile, model, IMAGES) == (
        "parameter 'deep.weight' has NaN or infinite values (10 of 1152)"
    )


def test_statistics_that_are_not_finite():
    model = net()
    model.norm.running_var[3] = torch.nan
    assert refusal(st3.engine.compile, model, IMAGES) == (
        "buffer 'norm.running_var' has NaN or infinite values (1 of 8)"
    )


def test_weights_without_a_shape():
    assert refusal(st3.engine.compile, nn.LazyLinear(3).eval(), IMAGES) == (
        "parameter 'weight' has no shape yet: run the model once before compiling it"
    )


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, 100_000])
def test_an_invalid_number_of_threads(threads):
    assert refusal(st3.engine.compile, net(), IMAGES, threads=threads) == (
        f"threads must be an integer from 1 to 1024, got {threads}"
    )


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (IMAGES.double(), "the input is torch.float64; the engine computes in float32: use x.float()"),
        (IMAGES.half(), "the input is torch.float16; the engine computes in float32: use x.float()"),
        (IMAGES.to("meta"), "the input is on meta; the engine runs on the CPU: use x.cpu()"),
        (IMAGES[:0], "the input of shape 0x2x4x4 is empty"),
    ],
)
def test_an_example_that_the_engine_cannot_take(example, message):
    assert refusal(st3.engine.compile, net(), example) == message


def test_an_example_that_is_not_a_tensor():
    assert refusal(st3.engine.compile, net(), 3, kind=TypeError) == (
        "example_input must be a tensor, a tuple of arguments or a dict of named arguments, got int"
    )
    assert refusal(st3.engine.compile, net(), (2, 2, 4, 4), kind=TypeError) == (
        "example_input holds no tensor; it must be an input of the model, not its shape"
    )


def test_an_example_that_the_model_itself_refuses():
    message = refusal(st3.engine.compile, net(), torch.randn(2, 5, 4, 4))
    assert message.startswith("TinyNet itself fails on an input of 2x5x4x4: RuntimeError: ")
    assert "expected input[2, 5, 4, 4] to have 2 channels" in message


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_a_model_that_branches_on_computed_values_is_not_compiled_to_one_branch():
    message = refusal(st3.engine.compile, Branching().eval(), IMAGES)
    assert message.startswith(
        "Branching cannot be captured as a graph; its forward pass may branch on computed values or compute outside "
        "torch: torch.export: "
    )
    assert "; torch.fx: " in message


class Number(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, float]:
        return x, x.sum().item()


def test_a_model_may_return_a_number():
    tensor, number = st3.engine.compile(Number().eval(), IMAGES)(IMAGES)
    assert torch.equal(tensor, IMAGES)
    assert number == pytest.approx(float(IMAGES.sum()))


@pytest.fixture(scope="module")
def fast():
    return st3.engine.compile(net(), IMAGES, tune=False)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (IMAGES.double(), "the input is torch.float64; the model was compiled for torch.float32"),
        (
            IMAGES[0],
            "the input has 3 dimensions, 2x4x4; the model was compiled for 4, 2x2x4x4",
        ),
        (IMAGES.to("meta"), "the input is on meta; the engine runs on the CPU: use x.cpu()"),
        (IMAGES[:, :, :0], "the input of shape 2x2x0x4 is empty"),
    ],
)
def test_a_call_with_another_kind_of_tensor(fast, x, message):
    assert refusal(fast, x) == message


def test_a_call_with_other_arguments(fast):
    form = "TinyNet was compiled for arguments of the form (...), got "
    assert refusal(fast, IMAGES, IMAGES) == form + "(..., ...)"
    assert refusal(fast, x=IMAGES) == form + "(x=...)"
    assert refusal(fast, [IMAGES]) == form + "([...])"
    assert refusal(fast, {"x": (IMAGES,)}) == form + "({'x': (...,)})"
    assert (
        refusal(fast, None, kind=TypeError)
        == "the input is None; the model was compiled for a tensor of shape 2x2x4x4"
    )
    assert (
        refusal(fast, IMAGES.numpy(), kind=TypeError)
        == "the input is of type ndarray; the model was compiled for a tensor of shape 2x2x4x4"
    )


def test_a_call_with_a_shape_that_the_model_refuses(fast):
    assert "TinyNet itself fails on an input of 2x3x4x4: RuntimeError: " in refusal(
        fast, torch.randn(2, 3, 4, 4)
    )


def test_a_new_shape_is_compiled_at_its_first_call_and_the_oldest_is_dropped(monkeypatch):
    monkeypatch.setattr(compiled, "SHAPES", 2)
    model = net()
    fast = st3.engine.compile(model, IMAGES, tune=False)
    first = fast._last
    for shape in [(1, 2, 4, 4), (2, 2, 7, 5), (2, 2, 4, 4)]:
        x = torch.randn(shape)
        assert_close(fast(x), model(x))
        program = fast.program
        assert program.shapes[program.inputs[0]] == shape
    assert fast._last is not first  # it was compiled again
    again = fast._last
    fast(torch.randn(2, 2, 7, 5))
    fast(IMAGES)
    assert fast._last is again


def test_later_changes_to_the_model_do_not_matter_and_the_model_is_not_changed():
    model = net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fast = st3.engine.compile(model, IMAGES, tune=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    larger = torch.randn(3, 2, 4, 4)
    expected = model(IMAGES), model(larger)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert_close((fast(IMAGES), fast(larger)), expected)


def test_a_model_under_sparsify_compiles_with_its_current_weights_and_goes_on_training():
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, 8)
    model.eval()
    fast = st3.engine.compile(model, IMAGES, tune=False)
    assert_close(fast(IMAGES), model(IMAGES))
    model.train()
    train(model, optimizer, range(8, 12))
    sparsifier.finalize()


def test_outputs_belong_to_the_caller():
    model = net()
    fast = st3.engine.compile(model, IMAGES, tune=False)
    first = fast(IMAGES)
    kept = first.clone()
    fast(torch.randn(2, 2, 4, 4))
    assert torch.equal(first, kept)
    same = st3.engine.compile(nn.Identity().eval(), IMAGES, tune=False)
    assert same(IMAGES).data_ptr() != IMAGES.data_ptr()


def test_inputs_may_be_sliced_transposed_or_channels_last(fast):
    wide = torch.randn(4, 4, 8, 2).permute(0, 3, 1, 2)[::2, :, :, ::2]
    assert_close(fast(wide), fast(wide.contiguous()), 0)
    assert_close(fast(IMAGES.to(memory_format=torch.channels_last)), fast(IMAGES), 0)


def test_named_arguments():
    class Named(nn.Module):
        def forward(self, a: Tensor, *, b: Tensor, factor: float = 1.0) -> Tensor:
            return torch.relu(a - b) * factor

    example = {"a": torch.randn(3, 4), "b": torch.randn(3, 4), "factor": 2.0}
    fast = st3.engine.compile(Named().eval(), example, tune=False)
    assert_close(fast(**example), torch.relu(example["a"] - example["b"]) * 2)
    assert_close(fast(**{**example, "factor": 3.0}), torch.relu(example["a"] - example["b"]) * 3)


def test_a_compiled_model_cannot_be_copied():
    fast = st3.engine.compile(net(), IMAGES)
    with pytest.raises(
        TypeError, match="cannot be copied or pickled: copy the model and compile it where it is used"
    ):
        copy.deepcopy(fast)


def test_a_value_whose_shape_depends_on_numbers_is_named():
    class Positive(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            rows = torch.nonzero(x[:, 0] > 0)[:, 0]
            return x[rows] * 2

    with pytest.raises(ValueError) as caught:
        st3.engine.compile(Positive().eval(), torch.randn(6, 4), tune=False)
    assert "depends on the numbers that the model computes" in str(caught.value)
    assert "programs of fixed shapes" in str(caught.value)
