"""Networks for the tests of sharded weights, whose rows cannot be divided evenly among the ranks; data and a step."""

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

import st3

BATCH = 8  # pictures per rank and step


class Collectives(TorchDispatchMode):
    """Inside `with`, the names and the largest payload of all collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "c10d" in func.namespace:
            self.names.append(func.overloadpacket.__name__)
            self.largest = max(self.largest, *(t.numel() for t in args[0]))
        return func(*args, **(kwargs or {}))


class Conv1D(nn.Module):
    """Hugging Face's linear layer: the weight lies as (inputs, outputs)."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(0.3 * torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


def rows_network(dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return a network whose filters are rows, so that no filter is cut: rank 3 of 4 holds nothing of layer 2."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 10, 3), nn.ReLU(), nn.Conv2d(10, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 10))
    return nn.Sequential(*layers).to(dtype)


class Crossed(nn.Module):
    """A network in which two layers have their filters on axis 1, across the shards."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 10, 3)
        self.narrow = nn.Conv2d(10, 3, 3)
        self.up = nn.ConvTranspose2d(3, 6, 2)
        self.mix = Conv1D(nf=9, nx=6)
        self.head = nn.Linear(9, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(self.narrow(self.conv(x).relu()).relu()).relu()
        return self.head(self.mix(x.mean((2, 3))).relu())


def crossed_network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return Crossed().to(dtype)


def sharded(model: nn.Module, **options: Any) -> nn.Module:
    """Shard the first layer by itself and the others together, as one does with the blocks of a large model."""
    fully_shard(next(iter(model.children())), **options)
    return fully_shard(model, **options)


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def adamw(model: nn.Module) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


OPTIMIZERS = {"sgd": sgd, "adamw": adamw}


def batch(step: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return the pictures of all ranks at this step."""
    generator = torch.Generator().manual_seed(step)
    count = BATCH * dist.get_world_size()
    pictures = torch.randn(count, 1, 7, 7, generator=generator, dtype=dtype)
    return pictures, torch.randint(10, (count,), generator=generator)


def share(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return this rank's part of a batch."""
    pictures, labels = (whole.chunk(dist.get_world_size())[dist.get_rank()] for whole in pair)
    return pictures, labels


def backward(model: nn.Module, pair: tuple[Tensor, Tensor]) -> None:
    pictures, labels = pair
    nn.functional.cross_entropy(model(pictures), labels).backward()


def learn(model: nn.Module, optimizer: Optimizer, pair: tuple[Tensor, Tensor]) -> None:
    backward(model, pair)
    optimizer.step()
    optimizer.zero_grad()


def whole(tensor: Tensor) -> Tensor:
    """Return the whole of a sharded tensor, on every rank."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.clone()


def weights(sparsifier: st3.Sparsifier) -> dict[str, Tensor]:
    return {layer.name: whole(layer.parameter.detach()) for layer in sparsifier.layers}


def raws(sparsifier: st3.Sparsifier, optimizer: Optimizer) -> dict[str, Tensor]:
    return {layer.name: whole(optimizer.state[layer.parameter]["st3_raw"]) for layer in sparsifier.layers}


def require_same_bits(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], when: str) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), f"{name} differs {when}"


def zeros_asked(count: int, sparsity: float) -> int:
    """Return how many of `count` weights lie at or below their quantile at `sparsity`."""
    return math.floor((count - 1) * sparsity) + 1
