"""Convolutions in int8: numbers by hand, every kernel against the reference, whole models."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.engine.plan_corpus import verify
from tests.engine.test_runtime import activations, available, densities, isas, program, sparse
from tests.engine.ways import alternatives, each_way
from torch import Tensor, nn

import st3
from st3.engine import native, schema
from st3.engine.optimise import Ranges, quantise
from st3.engine.plan.lower.quantised import scales_of, words_of
from st3.engine.plan.make import make_plan
from st3.engine.program import (
    Activation,
    Conv,
    Function,
    Linear,
    MaxPool,
    Program,
    Quantise,
    Quantised,
    QuantisedConv,
    QuantisedLinear,
    Quantum,
)
from st3.engine.reference import interpret
from st3.engine.run import Runtime, TorchRuntime

needs_kernels = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")
RELU = Activation(Function.RELU)


def in_int8(of: Program, *inputs: Tensor) -> Program:
    """Return a program in int8, calibrated on one input."""
    ranges = Ranges()
    ranges.measure(of, inputs)
    return quantise(of, ranges)


def one_conv(channels: int, outputs: int, pixels: tuple[int, int], **fields) -> Program:
    weight = sparse((outputs, channels, 3, 3), fields.pop("density", 0.3), 1)
    step = Conv(
        name="y", sources=("x",), target="y", weight=weight, bias=sparse((outputs,), 1.0, 2), **fields
    )
    return program([step], {"x": (1, channels, *pixels)}, ("y",))


def read_by_one_more(of: Program) -> Program:
    """Return the program with a 1x1 convolution that reads its output, so that this is bytes; both are outputs."""
    weight = sparse((3, of.shapes["y"][1], 1, 1), 0.7, 5)
    more = Conv(name="z", sources=("y",), target="z", weight=weight, bias=None)
    return program([*of.steps, more], {name: of.shapes[name] for name in of.inputs}, ("y", "z"))


def exact_numbers(shape: tuple[int, ...], lowest: int, seed: int = 0) -> Tensor:
    """Return random numbers that bytes hold exactly: multiples of 1/64, `lowest` the least, over the whole range."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(lowest, lowest + 256, shape, generator=generator)
    numbers.view(-1)[:2] = torch.tensor([lowest, lowest + 255])
    return numbers / 64


def steps_apart(found: Tensor, wanted: Tensor, quantum: Quantum) -> float:
    """Return the largest difference of two values, in steps of their bytes."""
    return float((found - wanted).abs().max()) / quantum.scale


# ---------------------------------------------------------------- by hand


def test_bytes_stand_for_numbers_from_the_least_to_the_largest():
    numbers = torch.tensor([-1.0, 0.0, 1.0, 1.55]).view(1, 1, 2, 2).repeat(1, 1, 3, 3)
    conv = one_conv(1, 1, (6, 6), padding=(1, 1))
    made = in_int8(conv, numbers)
    quantum = made.steps[0].quantum
    assert (round(quantum.scale, 6), quantum.zero) == (0.01, 100)  # 2.55 / 255; -1 is byte 0
    assert [type(step) for step in made] == [Quantise, QuantisedConv]
    assert made.steps[1].target_quantum is None  # nobody reads it as bytes


def test_a_value_that_is_never_negative_has_zero_as_its_first_byte():
    x = torch.rand(1, 4, 8, 8)
    made = in_int8(read_by_one_more(one_conv(4, 4, (8, 8), padding=(1, 1), activation=RELU)), x)
    conv = next(step for step in made if isinstance(step, QuantisedConv))
    assert conv.source_quantum.zero == conv.target_quantum.zero == 0


def test_weights_have_a_scale_for_each_output_and_zeros_stay_zeros():
    conv = one_conv(8, 6, (8, 8), density=0.3)
    made = in_int8(conv, torch.rand(1, 8, 8, 8))
    step = next(step for step in made if isinstance(step, QuantisedConv))
    exact = conv.steps[0].weight
    assert np.abs(step.weight).max(axis=(1, 2, 3)).tolist() == [127] * 6
    assert (step.weight[exact == 0] == 0).all()
    back = step.weight * step.weight_scale[:, None, None, None]
    assert np.abs(back - exact).max() <= 0.501 * step.weight_scale.max()


def test_sums_become_bytes_by_one_scale_and_one_shift():
    step = QuantisedConv(
        name="y", sources=("x", "r"), target="y", weight=np.array([[[[2]], [[-1]]]], np.int8),
        weight_scale=np.array([0.5], np.float32), bias=np.array([3.0], np.float32),
        source_quantum=Quantum(0.1, 10), residual_quantum=Quantum(0.2, 5), target_quantum=Quantum(0.05, 20),
    )  # fmt: skip
    found = scales_of(step)
    # number = 0.5 * 0.1 * (sum - 10 * (2 - 1)) + 3 + 0.2 * (residual - 5); byte = number / 0.05 + 20
    assert found.scale.tolist() == [1.0, 0, 0, 0]
    np.testing.assert_allclose(found.shift[0], (-0.5 + 3 - 1) / 0.05 + 20, rtol=1e-6)
    assert found.residual_scale == pytest.approx(4.0)


def test_words_of_a_grouped_convolution_hold_the_channels_of_their_group():
    weight = np.array([[1], [2], [3], [4], [5]], np.int8).reshape(5, 1, 1, 1)
    words = words_of(weight, groups=5).view(np.uint8).reshape(8, 2, 4)
    assert words[:5].tolist() == [
        [[1, 0, 0, 0], [0, 0, 0, 0]],
        [[0, 2, 0, 0], [0, 0, 0, 0]],
        [[0, 0, 3, 0], [0, 0, 0, 0]],
        [[0, 0, 0, 4], [0, 0, 0, 0]],
        [[0, 0, 0, 0], [5, 0, 0, 0]],
    ]
    assert not words[5:].any()


# ---------------------------------------------------------------- kernels against the reference

shapes = st.tuples(
    st.sampled_from([1, 2, 16]), st.sampled_from([1, 3, 4, 9]), st.integers(4, 14), st.integers(4, 21)
)


@needs_kernels
@settings(max_examples=80)
@given(
    shape=shapes, outputs=st.integers(1, 19), kernel=st.sampled_from([1, 2, 3, 5]), stride=st.integers(1, 3),
    padding=st.integers(0, 2), dilation=st.integers(1, 2), depthwise=st.booleans(), residual=st.booleans(),
    signed=st.booleans(), as_bytes=st.booleans(), act=activations, density=densities, isa=isas,
    threads=st.sampled_from([1, 2]),
)  # fmt: skip
@example(
    shape=(1, 3, 14, 14), outputs=8, kernel=5, stride=2, padding=2, dilation=1, depthwise=False, residual=False,
    signed=True, as_bytes=True, act=RELU, density=1.0, isa=(available() or ["none"])[0], threads=1,
)  # fmt: skip
def test_convolutions_of_every_kind_agree_with_the_reference(
    shape, outputs, kernel, stride, padding, dilation, depthwise, residual, signed, as_bytes, act, density, isa,
    threads,
):  # fmt: skip
    groups = shape[1] if depthwise else 1
    outputs = shape[1] if depthwise else outputs
    weight = sparse((outputs, shape[1] // groups, kernel, kernel), density, 1)
    conv = Conv(
        name="y", sources=("x",), target="y", weight=weight, bias=sparse((outputs,), 1.0, 2), activation=act,
        stride=(stride, stride), padding=(padding, padding), dilation=(dilation, dilation), groups=groups,
    )  # fmt: skip
    if min(size + 2 * padding - dilation * (kernel - 1) for size in shape[2:]) < 4 * stride:
        return  # too few pixels
    inputs = {"x": shape}
    if residual:
        inputs["r"] = program([conv], inputs, ("y",)).shapes["y"]
        conv = replace(conv, sources=("x", "r"))
    whole = program([conv], inputs, ("y",))
    values = [exact_numbers(each, -100 if signed else 0) for each in inputs.values()]
    agree(in_int8(read_by_one_more(whole) if as_bytes else whole, *values), values, isa, threads)


def agree(made: Program, values: list[Tensor], isa: str, threads: int) -> None:
    """Check that kernels compute what the reference does; float32 may round numbers between two bytes the other way."""
    wanted = interpret(made, *values)
    found = Runtime(made, threads, tune=False, isa=isa).run(*values)
    first = next(step for step in made if isinstance(step, Quantised))
    if (quantum := first.target_quantum) is None:
        torch.testing.assert_close(found[0], wanted[0], rtol=1e-4, atol=1e-4)
        return
    assert steps_apart(found[0], wanted[0], quantum) <= 1.01
    assert (found[0] - wanted[0]).abs().gt(0.5 * quantum.scale).float().mean() <= 0.02
    if torch.equal(found[0], wanted[0]):
        torch.testing.assert_close(found[1], wanted[1], rtol=1e-4, atol=1e-4)


@needs_kernels
@settings(max_examples=40)
@given(
    rows=st.sampled_from([(16,), (2, 9), (37,), (1, 128)]), inputs=st.integers(1, 40), outputs=st.integers(1, 40),
    residual=st.booleans(), as_bytes=st.booleans(), act=activations, density=densities, isa=isas,
    threads=st.sampled_from([1, 2]),
)  # fmt: skip
def test_linear_layers_of_every_kind_agree_with_the_reference(
    rows, inputs, outputs, residual, as_bytes, act, density, isa, threads
):
    names = ("x", "r") if residual else ("x",)
    weight, bias = sparse((outputs, inputs), density, 1), sparse((outputs,), 1.0, 2)
    step = Linear(name="y", sources=names, target="y", weight=weight, bias=bias, activation=act)
    shapes = {"x": (*rows, inputs), "r": (*rows, outputs)}
    steps = [step]
    if as_bytes:
        steps.append(
            Linear(name="z", sources=("y",), target="z", weight=sparse((3, outputs), 0.7, 5), bias=None)
        )
    whole = program(steps, {name: shapes[name] for name in names}, ("y", "z")[: len(steps)])
    values = [exact_numbers(shapes[name], -100) for name in names]
    agree(in_int8(whole, *values), values, isa, threads)


@needs_kernels
@pytest.mark.parametrize("isa", available())
def test_every_way_to_divide_a_convolution_gives_the_same_bytes(isa):
    torch.manual_seed(0)
    x = torch.randn(1, 24, 12, 30)
    whole = one_conv(24, 20, (12, 30), padding=(1, 1), activation=RELU)
    for made in (in_int8(whole, x), in_int8(read_by_one_more(whole), x)):
        wanted = interpret(made, x)[0]
        assert len(alternatives(made, isa, 1)[0]) > 5
        for label, runtime in each_way(made, 0, lambda offered: offered[::3], isa, 2):
            torch.testing.assert_close(runtime.run(x)[0], wanted, rtol=1e-5, atol=1e-5, msg=label)


@needs_kernels
@pytest.mark.parametrize("isa", available())
def test_maxima_of_bytes_agree_with_the_reference(isa):
    conv = one_conv(3, 10, (13, 17), padding=(1, 1), activation=RELU).steps[0]
    pool = MaxPool(name="p", sources=("y",), target="p", kernel=(3, 3), stride=(2, 2), padding=(1, 1))
    torch.manual_seed(0)
    x = torch.randn(1, 3, 13, 17)
    more = Conv(name="z", sources=("p",), target="z", weight=sparse((3, 10, 1, 1), 0.7, 5), bias=None)
    made = in_int8(program([conv, pool, more], {"x": (1, 3, 13, 17)}, ("p", "z")), x)
    assert next(step for step in made if isinstance(step, MaxPool)).has_bytes
    found, wanted = Runtime(made, 1, tune=False, isa=isa).run(x), interpret(made, x)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_convolution_of_few_pixels_stays_in_float32():
    x = torch.randn(1, 4, 3, 3)
    made = in_int8(one_conv(4, 4, (3, 3), padding=(1, 1)), x)
    assert [type(step) for step in made] == [Conv]


# ---------------------------------------------------------------- whole models


class Bottleneck(nn.Module):
    """Convolutions, a pool, a residual, a gate in float32, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 18, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.deep = nn.Sequential(
            nn.Conv2d(18, 18, 3, padding=1, groups=18), nn.ReLU6(), nn.Conv2d(18, 18, 1)
        )
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(18, 18, 1), nn.Sigmoid())
        self.wide = nn.Conv2d(18, 30, 3, stride=2, padding=1)
        self.head = nn.Linear(30, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.relu(self.deep(x) + x)
        x = self.wide(x * self.gate(x))
        return self.head(torch.nn.functional.silu(x).mean((2, 3)))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    made = Bottleneck().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 4:
                parameter.mul_(torch.rand_like(parameter) < 0.5)
    return made


@pytest.fixture(scope="module")
def typical() -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(2, 3, 24, 24) for _ in range(3)]


@pytest.fixture(scope="module")
def fast(model, typical):
    return st3.engine.compile(model, typical[0], tune=False, calibration=typical)


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


def test_a_model_in_int8_differs_from_the_model_by_a_few_per_cent_at_most(model, fast, typical):
    kinds = [type(step) for step in fast.program]
    assert kinds.count(QuantisedConv) == 4
    assert kinds.count(Conv) <= 1  # the gate, of one pixel
    with torch.no_grad():
        assert 1e-5 < relative(fast(typical[1]), model(typical[1])) < 0.03


def test_other_shapes_have_the_ranges_of_the_calibration(model, fast):
    torch.manual_seed(2)
    for shape in ((1, 3, 24, 24), (5, 3, 31, 40)):
        x = torch.randn(shape)
        with torch.no_grad():
            assert relative(fast(x), model(x)) < 0.05


def test_calibration_inputs_may_have_shapes_of_their_own(model):
    torch.manual_seed(3)
    x = torch.randn(1, 3, 24, 24)
    made = st3.engine.compile(model, x, tune=False, calibration=[torch.randn(3, 3, 28, 20), (x,)])
    with torch.no_grad():
        assert relative(made(x), model(x)) < 0.03


@needs_kernels
def test_a_file_in_int8_gives_the_same_answers_on_every_instruction_set(fast, typical, tmp_path):
    wanted = fast(typical[0])
    path = fast.save(tmp_path / "int8.st3run")
    for isa in available():
        torch.testing.assert_close(st3.engine.load(path, isa=isa)(typical[0]), wanted, rtol=1e-4, atol=1e-4)


def test_the_report_tells_what_is_computed_in_bytes_and_the_time_of_the_step_in_float32(fast, typical):
    fast(typical[0])
    rows = {line.split()[0]: line for line in fast.report().splitlines() if "QuantisedConv" in line}
    assert rows.keys() == {"stem.0", "deep.0", "deep.2", "wide"}
    assert all(float(row.split()[-1]) > 0 for row in rows.values())


def test_without_kernels_torch_computes_the_same_bytes(fast, typical):
    x = typical[0]
    (wanted,) = TorchRuntime(fast.program).run(x)
    torch.testing.assert_close(fast(x), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("calibration", "error", "text"),
    [
        (
            torch.zeros(1, 3, 24, 24),
            TypeError,
            "calibration must be a list of inputs, each like example_input, got Tensor; "
            "for a single one: calibration=[x]",
        ),
        ([], ValueError, "calibration holds no input: int8 needs the ranges that occur for typical inputs"),
        (
            [torch.zeros(3, 24, 24)],
            ValueError,
            "calibration input 0: the input has 3 dimensions, 3x24x24; the model was compiled for 4, 1x3x24x24",
        ),
        (
            [torch.full((1, 3, 24, 24), torch.nan)],
            ValueError,
            "calibration input 0: it leads to NaN or infinite numbers in layer 'stem.0'",
        ),
        (
            [torch.zeros(1, 3, 24, 24), None],
            TypeError,
            "calibration input 1 must be a tensor, a tuple of arguments or a dict of named arguments, got NoneType",
        ),
        (
            [(torch.zeros(1, 3, 24, 24), torch.zeros(1))],
            ValueError,
            "calibration input 0: Bottleneck was compiled for arguments of the form (...), got (..., ...); leave "
            "labels out, as in calibration=[x for x, _ in loader]",
        ),
    ],
)
def test_calibration_inputs_that_make_no_sense_are_refused(model, calibration, error, text):
    with pytest.raises(error) as caught:
        st3.engine.compile(model, torch.zeros(1, 3, 24, 24), tune=False, calibration=calibration)
    assert str(caught.value) == text


def test_layers_whose_calibration_was_always_zero_stay_in_float32(model, typical):
    fast = st3.engine.compile(
        model, typical[0], tune=False, calibration=[torch.zeros_like(each) for each in typical]
    )
    assert "stem.0" not in [step.name for step in fast.program if isinstance(step, Quantised)]


def test_weights_whose_words_are_very_small_floats_are_not_taken_for_zero(model, typical):
    x = typical[0]
    wanted = st3.engine.compile(model, x, tune=False, calibration=typical)(x)
    assert torch.set_flush_denormal(True)
    try:
        made = st3.engine.compile(model, x, tune=False, calibration=typical)
    finally:
        torch.set_flush_denormal(False)
    torch.testing.assert_close(made(x), wanted)


class Branching(nn.Module):
    """Has one more layer for large pictures, so that values have other names there."""

    def __init__(self) -> None:
        super().__init__()
        self.more, self.a, self.b = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.01 * torch.tanh(self.more(0.01 * x)) if x.shape[-1] > 20 else x
        return self.b(torch.relu(self.a(x)))


@pytest.mark.parametrize("calibrated", [24, 16])
def test_ranges_belong_to_layers_whatever_else_a_shape_leads_to(calibrated):
    torch.manual_seed(0)
    model, inputs = Branching().eval(), {size: 2 * torch.rand(8, 4, size, size) - 1 for size in (24, 16)}
    fast = st3.engine.compile(model, inputs[24], tune=False, calibration=[inputs[calibrated]])
    for size, x in inputs.items():
        with torch.no_grad():
            assert 1e-5 < relative(fast(x), model(x)) < 0.06
        in_int8 = 3 if size == calibrated == 24 else 2
        assert f"In int8: {in_int8} of {3 if size == 24 else 2} layers." in fast.report()


def test_blocks_of_four_stay_whole_though_some_filters_are_zero():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)).eval()
    with torch.no_grad():
        for conv in (model[0], model[2]):
            outputs, inputs = conv.weight.shape[:2]
            kept = torch.rand(outputs, inputs // 4, 1, 3, 3) < 0.1
            conv.weight.mul_(kept.expand(-1, -1, 4, -1, -1).reshape(conv.weight.shape))
        model[0].weight[[1, 6]] = 0
        model[0].bias[[1, 6]] = 0
    x = torch.randn(1, 8, 16, 16)
    *_, last = st3.engine.compile(model, x, tune=False, calibration=[x]).program
    words = last.weight.reshape(32, -1, 4, 3, 3).any(2).sum()
    assert words == (model[2].weight.detach().numpy().reshape(32, 8, 4, 3, 3) != 0).any(2).sum()


def test_a_signed_value_is_pooled_as_numbers_without_a_detour():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3)).eval()
    x = torch.randn(1, 4, 20, 20)
    kinds = [type(step) for step in st3.engine.compile(model, x, tune=False, calibration=[x]).program]
    assert kinds == [Quantise, QuantisedConv, MaxPool, Quantise, QuantisedConv]


def test_inputs_of_one_shape_are_traced_once(model, monkeypatch):
    from st3.engine import compiled

    traced = []
    real = compiled.capture
    monkeypatch.setattr(compiled, "capture", lambda *given: traced.append(1) or real(*given))
    st3.engine.compile(
        model, torch.randn(1, 3, 24, 24), tune=False, calibration=[torch.randn(1, 3, 24, 24)] * 20
    )
    assert len(traced) == 2  # for the ranges, and for the program


@needs_kernels
def test_a_plan_in_int8_whose_groups_are_wrong_is_refused():
    planned = make_plan(in_int8(one_conv(8, 8, (8, 8)), torch.randn(1, 8, 8, 8)))
    assert verify(planned) == ""
    plan = planned.plan
    steps = (schema.Step * (len(plan.steps) // ctypes.sizeof(schema.Step))).from_buffer_copy(plan.steps)
    at = next(each.arguments for each in steps if schema.schema().kinds[each.kind] == "Quantised")
    structures = bytearray(plan.structures)
    changed = schema.Quantised.from_buffer(structures, at)
    changed.bounds = changed.scale  # floats in place of outputs
    broken = replace(planned, plan=replace(plan, structures=bytes(structures)))
    assert "(Quantised)" in verify(broken)


@needs_kernels
def test_a_transformer_in_int8_keeps_its_residual_stream_in_float32():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True).eval()
    typical = [torch.randn(2, 24, 32) for _ in range(2)]
    fast = st3.engine.compile(layer, typical[0], tune=False, calibration=typical)
    steps = [step for step in fast.program if isinstance(step, QuantisedLinear)]
    assert len(steps) == 4  # queries, keys and values; their mixture; two of the perceptron
    assert [step.target_quantum is None for step in steps] == [True, True, False, True]
    with torch.no_grad():
        for x in (typical[1], torch.randn(1, 30, 32)):
            assert 1e-5 < relative(fast(x), layer(x)) < 0.05
