"""Random configurations: network x method x allocation x ramp x block x optimizer x dtype, drawn by a seed.

Every configuration is either refused in one sentence before training, or trains to the exact number of zeros without a
NaN, and a run that was interrupted and resumed ends with the same bits. Names come from the registries, so that new
methods, allocations and ramps take part. A failure names its seed: `check(Configuration.draw(seed))` repeats it. For
thousands of them, run `python -m tests.faults.test_configurations FIRST COUNT`.
"""

import io
import math
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
import torch
from tests.tiny import assert_same, footprint
from torch import Tensor, nn

import st3
from st3.core.budget.allocation import ALLOCATIONS
from st3.core.budget.ramp import RAMPS
from st3.core.method import METHODS

SHORT, LONG = 100, 3000
FEATURES, CLASSES = 12, 4


class Pictures(nn.Module):
    """Takes a batch of vectors as pictures, then does what `layers` do."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.view(-1, 3, 2, 2)).flatten(1)


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, CLASSES)
    )


def convolutions() -> nn.Module:
    return Pictures(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES),
    )  # fmt: skip


def residual() -> nn.Module:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner = nn.Linear(FEATURES, 8), nn.Linear(8, 8, bias=False)
            self.norm, self.last = nn.LayerNorm(8), nn.Linear(8, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.last(self.norm(x + self.inner(x).relu()))

    return Residual()


NETWORKS = {"perceptron": perceptron, "convolutions": convolutions, "residual": residual}
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.003, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.02),
}
DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16)


@dataclass(frozen=True)
class Configuration:
    seed: int
    network: str
    method: str
    optimizer: str
    dtype: torch.dtype
    steps: int
    cut: int  # steps before the interruption, which may come before the first
    order: str  # what comes first when it is resumed: the state, or the sparsifier
    arguments: dict[str, Any]  # of st3.sparsify

    @classmethod
    def draw(cls, seed: int) -> "Configuration":
        random = Random(seed)
        steps = random.choice([3, 8, 20, 50])
        method = random.choice(sorted(METHODS))
        arguments: dict[str, Any] = {}
        if METHODS[method]().own_sparsity is None or random.random() < 0.05:
            arguments["sparsity"] = random.choice([0.0, 0.3, 0.5, 0.8, 0.9, 0.97])
        if random.random() < 0.6:
            arguments["allocation"] = random.choice(sorted(ALLOCATIONS))
        if random.random() < 0.6:
            arguments["ramp"] = random.choice(sorted(RAMPS))
        if random.random() < 0.2:
            arguments["min_weights"] = random.choice([1, 3, 10])
        if random.random() < 0.2:
            arguments["exclude"] = random.choice([st3.FIRST, st3.LAST])
        if not METHODS[method]().has_target and random.random() < 0.9:
            arguments = {key: value for key, value in arguments.items() if key == "exclude"}
        chosen = cls(
            seed=seed,
            network=random.choice(sorted(NETWORKS)),
            method=method,
            optimizer=random.choice(sorted(OPTIMIZERS)),
            dtype=random.choice(DTYPES),
            steps=steps,
            cut=random.randrange(steps),
            order=random.choice(["state first", "sparsifier first"]),
            arguments=arguments,
        )
        if METHODS[method]().has_target and random.random() < 0.4:
            arguments["block"] = random.choice([2, 4])
        return chosen

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = NETWORKS[self.network]().to(self.dtype)
        return model, OPTIMIZERS[self.optimizer](model.parameters())

    def sparsify(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> st3.Sparsifier:
        return st3.sparsify(model, optimizer, total_steps=self.steps, method=self.method, **self.arguments)

    def train(self, model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            generator = torch.Generator().manual_seed(1000 * self.seed + step)
            pictures = torch.randn(16, FEATURES, generator=generator).to(self.dtype)
            kinds = torch.randint(CLASSES, (16,), generator=generator)
            nn.functional.cross_entropy(model(pictures), kinds).backward()
            optimizer.step()
            optimizer.zero_grad()


def check(chosen: Configuration) -> str:
    """Train, and train interrupted; return "trained" or "refused". Raise where an invariant does not hold."""
    model, optimizer = chosen.build()
    before = footprint(model, optimizer)
    try:
        sparsifier = chosen.sparsify(model, optimizer)
    except (ValueError, TypeError) as refusal:
        reason = str(refusal)
        sparsifier = None
    if sparsifier is None:
        assert reason, "refused without a word"
        assert "\n" not in reason, f"more than one sentence: {reason}"
        assert_same(before, footprint(model, optimizer))
        return "refused"
    chosen.train(model, optimizer, range(chosen.cut))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    chosen.train(model, optimizer, range(chosen.cut, chosen.steps))
    check_count(sparsifier, METHODS[chosen.method]())
    sparsifier.finalize()
    assert all(bool(p.isfinite().all()) for p in model.parameters()), "NaN"

    again, other = chosen.build()
    for p in (
        again.parameters()
    ):  # nothing may come from the initial weights, and their being equal may not matter
        p.data.fill_(0.1)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = chosen.sparsify(again, other) if chosen.order == "sparsifier first" else None
    again.load_state_dict(saved["model"])
    other.load_state_dict(saved["optimizer"])
    resumed = resumed or chosen.sparsify(again, other)
    chosen.train(again, other, range(chosen.cut, chosen.steps))
    resumed.finalize()
    assert_same(dict(model.state_dict()), dict(again.state_dict()))
    return "trained"


def check_count(sparsifier: st3.Sparsifier, method: Any) -> None:
    """As many weights are zeroed as a linear quantile zeroes: floor((n - 1) s) + 1 of n, and whole blocks."""
    if not method.has_target:
        return
    (optimizer,) = sparsifier.optimizers
    found = 0
    for layer in sparsifier.layers:
        # A weight that has just grown is 0 for another reason.
        mask = optimizer.state[layer.parameter].get("st3_active")
        found += int((layer.parameter == 0).sum() if mask is None else (~mask).sum())
    total = sum(layer.numel for layer in sparsifier.layers)
    asked = math.floor((total - 1) * sparsifier.sparsity) + 1 if sparsifier.sparsity else 0
    asked = math.ceil(asked / sparsifier.block) * sparsifier.block
    slack = method.slack(total, sparsifier.sparsity)
    assert asked - slack <= found, f"{found} zeros of {asked} (slack {slack})"
    if not isinstance(method, st3.methods.SSTE):  # its equation zeroes two equal magnitudes together
        assert found <= asked + slack, f"{found} zeros of {asked} (slack {slack})"


def trial(seed: int) -> str:
    chosen = Configuration.draw(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice that tiny networks earn
        try:
            return check(chosen)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}; in {chosen}") from error


@pytest.mark.parametrize("tenth", range(10))
def test_random_configurations_end_exact_and_resume_bit_for_bit(tenth):
    found = Counter(trial(seed) for seed in range(tenth, SHORT, 10))
    assert found["trained"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(LONG // 100))
def test_thousands_of_random_configurations(hundred):
    for seed in range(SHORT + 100 * hundred, SHORT + 100 * hundred + 100):
        trial(seed)


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:3])
    began, found = time.monotonic(), Counter[str]()
    for seed in range(first, first + count):
        try:
            found[trial(seed)] += 1
        except AssertionError as error:
            found["failed"] += 1
            print(error, flush=True)
        if (seed + 1 - first) % 250 == 0 or seed + 1 == first + count:
            print(f"{seed + 1 - first} in {time.monotonic() - began:.0f} s: {dict(found)}", flush=True)
