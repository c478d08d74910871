"""Benchmark a stored model, or an untrained network made sparse, on this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...core.layers.patterns import FIRST, Patterns, is_depthwise
from ...core.report import report
from ...files.weights import WeightsError
from ...models import MODELS
from ...models.catalogue import Inputs
from ...registry import suggest
from ...training.sections import SettingsError
from ...training.tasks import TASKS
from ..build import build_model
from ..checks import check_input, processor_faults
from ..rebuilt import Rebuilt, check_shape, rebuild
from ..spec import ModelSpec
from ..stored_model import read_stored_model
from .compare import Comparison, compare
from .masking import mask

__all__ = ["Bench", "bench", "usual_inputs"]

GAIN = 1.05  # smaller gains are not worth mentioning
ADVICE = (
    "Gains over float32 begin at about 50 % zeros in the layers with most multiply-adds, in networks that take more "
    "than a fraction of a millisecond."
)


@dataclass(frozen=True)
class Bench:
    """A comparison of engines on one model."""

    model: str
    shape: tuple[int, ...]  # of the input, batch included
    sparsity: float
    comparison: Comparison

    @property
    def verdict(self) -> str:
        """How fast the engine is, beside the fastest other one in float32 and in any precision."""
        of = self.comparison
        plain, fastest = of.rival("float32"), of.rival()
        gain, over_fastest = of.speed_up(plain), of.speed_up(fastest)[0]
        text = (
            f"ith {100 * self.sparsity:.1f} % zeros the st3 engine is {gain[0]:.2f} times as fast as {plain.name}, "
            f"the fastest of the others in {'any precision' if fastest == plain else 'float32'}"
        )
        if fastest != plain:
            text += f", {'and' if over_fastest >= 1 else 'but'} {over_fastest:.2f} times as fast as {fastest.name}, "
            text += "the fastest in any precision"
        found = f"W{text}." if min(gain) >= GAIN else f"No gain: w{text}. {ADVICE}"
        if of.in_int8:
            least = of.speed_up(fastest, of.in_int8)[0]
            found += f" In int8 it is {least:.2f} times as fast as {fastest.name}."
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        about = {"model": self.model, "shape": list(self.shape), "sparsity": round(self.sparsity, 5)}
        return {**about, **self.comparison.to_dict(), "verdict": self.verdict}


def bench(
    model: str | Path,
    *,
    network: str | None = None,
    input_shape: tuple[int, ...] | None = None,
    sparsity: float | None = None,
    allocation: str = "uniform",
    block: int | None = None,
    batch: int = 1,
    threads: int = 1,
    rounds: int = 10,
    tune: bool = True,
) -> Bench:
    """Compare the engine with torch, ONNX Runtime and OpenVINO, in several precisions, on one model.

    `model` is a run's folder, a file of weights (`network` names its network if the file does not), or a network of the
    catalogue, which is initialised and made sparse: `sparsity` of its weights become zero, `block` at a time.
    """
    if faults := processor_faults("--threads", threads):
        raise SettingsError("bench", faults)
    is_untrained = not Path(model).exists() and (str(model) in MODELS or ":" in str(model))
    if is_untrained:
        made, shape = _make_network(
            str(model), input_shape, 0.9 if sparsity is None else sparsity, allocation, block or 1
        )
    else:
        for option, given in (("--sparsity", sparsity), ("--block", block)):
            if given is not None:
                fault = f"is for untrained networks; the weights in {model} have their own zeros"
                raise SettingsError(option, [fault])
        if not Path(model).exists() and (advice := suggest(str(model), MODELS)):
            raise WeightsError(f"there is no file, run or network {model}{advice}")
        made, shape = _load_network(Path(model), network, input_shape)
    check_input(shape, batch)
    inputs = made.make_inputs(batch, shape)
    [comparison] = compare([made.network], [inputs], threads=threads, rounds=rounds, tune=tune)
    return Bench(str(model), tuple(inputs.shape), report(made.network).sparsity, comparison)


def usual_inputs(model: str) -> Inputs:
    """Return what a network is usually given."""
    return MODELS.inputs(model) if model in MODELS else Inputs()


def _make_network(
    name: str, shape: tuple[int, ...] | None, sparsity: float, allocation: str, block: int
) -> tuple[Rebuilt, tuple[int, ...]]:
    usual = usual_inputs(name)
    task, shape = TASKS[usual.task], shape or usual.shape
    check_shape(task, shape)
    classes = task.guess_classes(shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = build_model(ModelSpec(name=name), task, classes, shape[0])
    # As in the papers on uniform sparsity, the first layer and depthwise layers, which are small, stay dense.
    dense: Patterns = (FIRST, is_depthwise) if allocation == "uniform" and _has_depthwise(made) else FIRST
    mask(made, sparsity, allocation, exclude=dense if allocation == "uniform" else (), block=block)
    return Rebuilt(made.eval(), task, classes), shape


def _has_depthwise(model: nn.Module) -> bool:
    return any(is_depthwise(name, module) for name, module in model.named_modules())


def _load_network(
    path: Path, network: str | None, shape: tuple[int, ...] | None
) -> tuple[Rebuilt, tuple[int, ...]]:
    stored = read_stored_model(path)
    made_by = stored.made_by(network)
    if made_by is None:
        raise SettingsError(str(stored.path), ["it does not say which model it is for: add --model NAME"])
    shape = shape or stored.shape
    if shape is None:
        raise SettingsError(
            str(stored.path), ["it does not say its input shape: add --input, such as 3x32x32"]
        )
    return rebuild(stored, made_by, shape), shape
