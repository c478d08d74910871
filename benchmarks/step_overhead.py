"""What sparsity costs per training step: sparse step over dense step, interleaved.

    resnet20   batch 128 of 3x32x32,  SGD-momentum
    resnet50   batch 32 of 3x224x224, SGD-momentum
    gpt2       4 x 512 tokens, a transformer shaped like GPT-2 small, AdamW
    update     ResNet-50's 25.5 M weights with given gradients: what the sparsifier adds to a plain SGD-momentum step,
               over the time of that step

The sparsity rises from 0.80 to 0.90 during the measurement, so the threshold moves at every step. With
`--method all` (or several names) it is one row per method, ResNet-20 as a part of 160 epochs on CIFAR-10: methods that
change their masks now and then are timed in steps without a change and with one, and both are weighed by their usual
frequency. Forward and backward
passes vary by several per cent from copy to copy and run to run; what is added inside optimizer.step is the steadier
figure.
"""

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from networks import GPT2Shaped
from timing import ratio, record, take_turns
from torch import Tensor, nn
from torch.nn import functional as F

import st3
from st3.core.method import METHODS, Method
from st3.models import MODELS

SPARSITY = 0.9
WHOLE, ADDED = "sparse over dense step", "added inside optimizer.step, over the dense step"


def sgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, weight_decay=1e-4)


def adamw(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-5)


def images(batch: int, size: int, classes: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))


def tokens() -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, 50257, (4, 513))
    return ids[:, :-1], ids[:, 1:].reshape(-1)


CASES: dict[
    str, tuple[Callable[[], nn.Module], Callable[..., Any], Callable[[], tuple[Tensor, Tensor]], float]
] = {
    "resnet20": (lambda: MODELS["resnet20"](), sgd, lambda: images(128, 32, 10), 1.03),
    "resnet50": (lambda: MODELS["resnet50"](), sgd, lambda: images(32, 224, 1000), 1.04),
    "gpt2": (GPT2Shaped, adamw, tokens, 1.05),
}


CIFAR_STEPS = 160 * 352  # of the paper's run
AS_TIMED: dict[str, dict[str, Any]] = {
    "acdc": {"warm_up": 0.0},  # in a sparse phase, not in the dense beginning
    "probmask": {"finetune": 0.0},  # in the search; one pass per step
}


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int,
    method: str | Method,
    allocation: str | None,
) -> None:
    the_method = METHODS[method]() if isinstance(method, str) else method
    if not the_method.has_target:
        st3.sparsify(
            model, optimizer, method=st3.methods.STR(init=-4.0)
        )  # thresholds at work from the first step
        return

    def rising(progress: float) -> float:
        return (0.8 + (SPARSITY - 0.8) * progress) / SPARSITY

    st3.sparsify(
        model,
        optimizer,
        sparsity=SPARSITY if the_method.own_sparsity is None else None,
        total_steps=steps,
        method=the_method,
        allocation=allocation,
        ramp=None if the_method.only_ramps else rising,
    )


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor], in_step: list[float]
) -> None:
    """Train on one batch; append the seconds spent inside `optimizer.step`, where everything of st3 happens."""
    x, y = batch
    loss = F.cross_entropy(model(x).flatten(0, -2), y)
    loss.backward()
    begin = time.perf_counter()
    optimizer.step()
    in_step.append(time.perf_counter() - begin)
    optimizer.zero_grad()


def whole_step(
    case: str, rounds: int, method: str | Method, allocation: str | None, steps: int | None = None
) -> dict[str, Any]:
    """Time two dense and two sparse copies in turn: where a copy happens to lie in memory costs several per cent."""
    make, make_optimizer, make_batch, limit = CASES[case]
    torch.manual_seed(0)
    first = make()
    batch = make_batch()
    contestants = {}
    in_step: dict[str, list[float]] = {"dense": [], "sparse": []}
    for name in ("dense", "sparse", "sparse again", "dense again"):
        model = copy.deepcopy(first)
        optimizer = make_optimizer(model.parameters())
        if name.startswith("sparse"):
            attach(model, optimizer, steps or rounds + 2, method, allocation)
        spent = in_step[name.split()[0]]
        contestants[name] = lambda m=model, o=optimizer, s=spent: training_step(m, o, batch, s)
    seconds = take_turns(contestants, rounds, warm_up=2)
    both = {kind: seconds[kind] + seconds[f"{kind} again"] for kind in ("dense", "sparse")}
    added = {
        "min": (min(in_step["sparse"]) - min(in_step["dense"])) / min(both["dense"]),
        "median": (median(in_step["sparse"]) - median(in_step["dense"])) / median(both["dense"]),
    }
    return {
        "case": case,
        WHOLE: ratio(both, "sparse", "dense"),
        ADDED: {kind: round(value, 4) for kind, value in added.items()},
        "at most": limit,
        "rounds": rounds,
        "copies of each": 2,
    }


def method_row(name: str, rounds: int) -> dict[str, Any]:
    """Time one method on ResNet-20, its masks changing as often as is usual for it."""
    method = replace(METHODS[name](), **AS_TIMED.get(name, {}))  # type: ignore[type-var]
    row = whole_step("resnet20", rounds, method, None, CIFAR_STEPS)
    every = getattr(method, "every", 1)
    if every > 1:  # none of the steps above has changed the masks
        changing = whole_step("resnet20", rounds, replace(method, every=1), None, CIFAR_STEPS)
        row |= {
            "masks change every": every,
            "steps with a change": {key: changing[key] for key in (WHOLE, ADDED)},
        }
        for key in (WHOLE, ADDED):
            quiet = row[key]
            row[key] = {k: round(quiet[k] + (changing[key][k] - quiet[k]) / every, 4) for k in quiet}
    return {"method": name, **row, "at most": 1.05}


def update_only(rounds: int, method: str, allocation: str | None) -> dict[str, Any]:
    torch.manual_seed(0)
    contestants = {}
    for name in ("plain", "sparse"):
        model = MODELS["resnet50"]()
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter) * 1e-3
        optimizer = sgd(model.parameters())
        if name == "sparse":
            attach(model, optimizer, rounds + 3, method, allocation)
        contestants[name] = optimizer.step
    seconds = take_turns(contestants, rounds, warm_up=3)
    whole = ratio(seconds, "sparse", "plain")
    added = {kind: round(value - 1.0, 4) for kind, value in whole.items()}
    return {"case": "update", "added over a plain SGD-momentum step": added, "at most": 3.0, "rounds": rounds}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases", nargs="*", default=["update", *CASES], help="which of: update, methods, " + ", ".join(CASES)
    )
    parser.add_argument("--rounds", type=int, default=10, help="steps of each contestant (default 10)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--method", nargs="+", default=["st3"], help="names, or all: one row per method")
    parser.add_argument("--allocation", help="default: what is usual for the method")
    parser.add_argument("--output", help="write the rows to this JSON file; rows of other methods in it stay")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    names = list(METHODS) if given.method == ["all"] else given.method
    spec = {"sparsity": "0.80 to 0.90; N:M methods 0.5"}
    if len(names) > 1 or given.cases == ["methods"]:
        rows = [method_row(name, given.rounds) for name in names]
        record(given.output, spec, rows, methods=names)
        return
    (method,) = names
    rows = []
    for case in given.cases:
        if case == "update":
            rows.append(update_only(given.rounds, method, given.allocation))
        else:
            rows.append(whole_step(case, given.rounds, method, given.allocation))
    spec |= {"rounds": given.rounds, "method": method, "allocation": given.allocation}
    record(given.output, spec, rows)


if __name__ == "__main__":
    main()
