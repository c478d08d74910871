"""What sparsity costs per training step: sparse step over dense step, interleaved.

    resnet20   batch 128 of 3x32x32,  SGD-momentum
    resnet50   batch 32 of 3x224x224, SGD-momentum
    gpt2       4 x 512 tokens, a transformer shaped like GPT-2 small, AdamW
    update     ResNet-50's 25.5 M weights with given gradients: what the sparsifier adds to a plain SGD-momentum step,
               over the time of that step

The sparsity rises from 0.80 to 0.90 during the measurement, so the threshold moves at every step. Forward and backward
passes vary by several per cent from copy to copy and run to run; what is added inside optimizer.step is the steadier
figure.
"""

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from networks import GPT2Shaped
from timing import ratio, record, take_turns
from torch import Tensor, nn
from torch.nn import functional as F

import st3
from st3.core.method import METHODS
from st3.models import MODELS

SPARSITY = 0.9


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


def attach(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, method: str, allocation: str | None
) -> None:
    kind = METHODS[method]()
    if not kind.has_target:
        st3.sparsify(model, optimizer, method=st3.STR(init=-4.0))  # thresholds at work from the first step
        return
    has_ramp = not kind.only_ramps
    st3.sparsify(
        model,
        optimizer,
        sparsity=SPARSITY,
        total_steps=steps,
        method=st3.ProbMask(finetune=0.0)
        if method == "probmask"
        else method,  # the search, one pass per step
        allocation=allocation,
        ramp=(lambda step: SPARSITY if step >= steps else 0.8 + 0.1 * step / steps) if has_ramp else None,
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


def whole_step(case: str, rounds: int, method: str, allocation: str | None) -> dict[str, Any]:
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
            attach(model, optimizer, rounds + 2, method, allocation)
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
        "sparse over dense step": ratio(both, "sparse", "dense"),
        "added inside optimizer.step, over the dense step": {
            kind: round(value, 4) for kind, value in added.items()
        },
        "at most": limit,
        "rounds": rounds,
        "copies of each": 2,
    }


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
        "cases", nargs="*", default=["update", *CASES], help="which of: update, " + ", ".join(CASES)
    )
    parser.add_argument("--rounds", type=int, default=10, help="steps of each contestant (default 10)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--method", default="st3")
    parser.add_argument("--allocation", help="default: what is usual for the method")
    parser.add_argument("--output", help="write the rows to this JSON file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = []
    for case in given.cases:
        if case == "update":
            rows.append(update_only(given.rounds, given.method, given.allocation))
        else:
            rows.append(whole_step(case, given.rounds, given.method, given.allocation))
    spec = {
        "rounds": given.rounds,
        "method": given.method,
        "allocation": given.allocation,
        "sparsity": "0.80 to 0.90",
    }
    record(given.output, spec, rows)


if __name__ == "__main__":
    main()
