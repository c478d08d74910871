"""A network that trains in milliseconds, its batches and training loop, and functions that inspect the result."""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

import st3

__all__ = [
    "SPARSITY",
    "STEPS",
    "TinyNet",
    "adam",
    "assert_same",
    "batch",
    "cubic",
    "footprint",
    "raw_weights",
    "sgd",
    "sparse_names",
    "sparsify",
    "train",
    "zeros",
    "zeros_asked",
]

STEPS = 12  # of a whole run; the ramp rises from step 0 to step 6
SPARSITY = 0.8
MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


class TinyNet(nn.Module):
    """Convolution, batch norm, linear: 144 + 1152 + 160 = 1456 weights in three layers."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.conv = nn.Conv2d(2, 8, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(8)
            self.deep = nn.Conv2d(8, 16, 3, padding=1)
            self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        x = F.relu(self.deep(x))
        return self.head(x.mean((2, 3)))


def sgd(parameters: Iterable[nn.Parameter], **options: Any) -> Optimizer:
    return torch.optim.SGD(parameters, **{"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3, **options})


def adam(parameters: Iterable[nn.Parameter], **options: Any) -> Optimizer:
    return torch.optim.Adam(parameters, **{"lr": 0.01, **options})


def sparsify(model: nn.Module, optimizer: Any, **changes: Any) -> st3.Sparsifier:
    """Call st3.sparsify with the settings of this file, apart from the `changes`."""
    settings = {"sparsity": SPARSITY, "total_steps": STEPS, "ramp": cubic(0, 6), **changes}
    return st3.sparsify(model, optimizer, **settings)


def cubic(first: int, last: int, total_steps: int = STEPS) -> st3.ramps.Cubic:
    """Return the cubic ramp that rises from the step `first` to the step `last` of a run."""
    return st3.ramps.Cubic(start=first / total_steps, end=last / total_steps)


def batch(number: int, like: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return pictures and classes: the same for the same number, in the precision of `like`."""
    generator = torch.Generator().manual_seed(number)
    pictures = torch.randn(8, 2, 4, 4, generator=generator)
    classes = torch.randint(10, (8,), generator=generator)
    return (pictures if like is None else pictures.to(like.dtype)), classes


def train(model: nn.Module, optimizer: Optimizer, steps: int | range) -> list[float]:
    """Run an ordinary training loop on the batches with these numbers; return the losses."""
    losses = []
    for number in range(steps) if isinstance(steps, int) else steps:
        pictures, classes = batch(number, next(model.parameters()))
        loss = F.cross_entropy(model(pictures), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


# ---------------------------------------------------------------- looks


def sparse_names(model: nn.Module) -> list[str]:
    """Return the names of the weights that are sparsified by default."""
    return [name for name, p in model.named_parameters() if p.dim() > 1]


def zeros(model: nn.Module) -> int:
    """Count the zeros in the weights that are sparsified by default."""
    return sum(int((p == 0).sum()) for p in model.parameters() if p.dim() > 1)


def zeros_asked(model: nn.Module, sparsity: float = SPARSITY) -> int:
    """Return what a linear quantile zeroes: floor((n - 1) s) + 1 of n weights."""
    weights = sum(p.numel() for p in model.parameters() if p.dim() > 1)
    return int((weights - 1) * sparsity) + 1 if sparsity else 0


def raw_weights(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return copies of the raw weights that lie in the optimizer's state."""
    named = model.named_parameters()
    return {
        name: optimizer.state[p]["st3_raw"].clone()
        for name, p in named
        if "st3_raw" in optimizer.state.get(p, {})
    }


def footprint(model: nn.Module, *optimizers: Optimizer) -> dict[str, Any]:
    """Return copies of everything that a library could change: states, and the number of hooks everywhere."""
    return copy.deepcopy(
        {
            "model": model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "hooks": list(_hooks(model, optimizers)),
        }
    )


def _hooks(model: nn.Module, optimizers: Iterable[Optimizer]) -> Iterator[tuple[str, int]]:
    kinds = (
        "step_pre",
        "step_post",
        "state_dict_pre",
        "state_dict_post",
        "load_state_dict_pre",
        "load_state_dict_post",
    )
    for optimizer in optimizers:
        for kind in kinds:
            yield kind, len(getattr(optimizer, f"_optimizer_{kind}_hooks"))
    for name, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if key.endswith("_hooks")}
        yield f"module {name}", sum(len(hooks or ()) for hooks in own.values())
    for name, parameter in model.named_parameters():
        yield f"weight {name}", len(parameter._backward_hooks or ())
        yield f"weight {name}", len(parameter._post_accumulate_grad_hooks or ())


def assert_same(left: Any, right: Any, where: str = "") -> None:
    """Assert that two nested states are equal, tensors bit for bit."""
    assert type(left) is type(right), where
    if isinstance(left, Tensor):
        assert left.dtype == right.dtype, where
        assert torch.equal(left, right), f"{where}: {int((left != right).sum())} of {left.numel()} differ"
    elif isinstance(left, dict):
        assert list(left) == list(right), where
        for key in left:
            assert_same(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), where
        for i, pair in enumerate(zip(left, right, strict=True)):
            assert_same(*pair, f"{where}/{i}")
    else:
        assert left == right, where
