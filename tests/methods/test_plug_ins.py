"""Methods written as their papers write them, outside of the library: the interface has what they need.

Each is compared with autograd through its textbook form, and goes through the contract of every method.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import pytest
import torch
from tests.methods import test_every_method as contract
from torch import Tensor, nn
from torch.func import functional_call

import st3
from st3.methods import METHODS, ThresholdMethod, WeightView

STEPS = 40
SPARSITY = 0.8


@final
@dataclass(frozen=True)
class PowerPropagation(ThresholdMethod):
    """Powerpropagation (Schwarz et al., NeurIPS 2021).

    W_sparse = V |V|^(alpha - 1) [|V| > th]                           forward
    dL/dV    = alpha |V|^(alpha - 1) dL/dW_sparse [|V| > th]          backward: what autograd makes of it
    """

    usual_ramp: ClassVar[str] = "constant"
    alpha: float = 2.0

    def sparse_weight(self, view: WeightView) -> None:
        magnitude = view.raw.abs()
        weight = view.raw * magnitude ** (self.alpha - 1)
        view.sparse.copy_(torch.where(magnitude > view.threshold, weight, 0.0))

    def is_straight_through(self, sparsity: float) -> bool:
        return False

    def raw_gradient(self, grad: Tensor, view: WeightView) -> Tensor:
        return torch.where(view.active, self.alpha * view.raw.abs() ** (self.alpha - 1) * grad, 0.0)


@final
@dataclass(frozen=True)
class TopKAST(ThresholdMethod):
    """Top-KAST (Jayakumar et al., NeurIPS 2020): a forward set A, and a backward set B that contains it.

    W_sparse = W [W in A]                 forward: A are the D largest of every layer
    dL/dW    = dL/dW_sparse [W in B]      backward: B are the D + M largest
    and dL/dW += penalty * W in A, penalty * W / D in B without A, nothing elsewhere
    """

    usual_ramp: ClassVar[str] = "constant"
    usual_allocation: ClassVar[str] = "uniform"
    more: float = 0.1  # M, a part of the layer's weights
    penalty: float = 1e-3

    def sparse_weight(self, view: WeightView) -> None:
        view.sparse.copy_(torch.where(view.raw.abs() > view.threshold, view.raw, 0.0))

    def is_straight_through(self, sparsity: float) -> bool:
        return False

    def raw_gradient(self, grad: Tensor, view: WeightView) -> Tensor:
        return torch.where(self.backward_set(view.raw, view.active), grad, 0.0)

    def own_gradient(self, view: WeightView) -> Tensor:
        density = view.active.double().mean().clamp(min=1 / view.raw.numel()).to(view.raw.dtype)
        pulled = torch.where(view.active, view.raw, view.raw / density)
        return self.penalty * torch.where(self.backward_set(view.raw, view.active), pulled, 0.0)

    def backward_set(self, raw: Tensor, active: Tensor) -> Tensor:
        """Return the mask of B: as many more weights as `more` says, the largest."""
        count = min(raw.numel(), int(active.sum()) + int(self.more * raw.numel()))
        least = raw.abs().flatten().kthvalue(raw.numel() - count + 1).values
        return raw.abs() >= least


# ---------------------------------------------------------------- the textbook

# Of 108 + 288 weights 317 are zeroed, 86.45 and 230.55 in proportion.
KEPT = {"0.weight": 108 - 86, "4.weight": 288 - 231}


def largest(raw: Tensor, count: int) -> Tensor:
    """Return the mask of the `count` largest weights, by sorting."""
    mask = torch.zeros(raw.numel(), dtype=torch.bool)
    mask[raw.detach().abs().flatten().argsort(descending=True)[:count]] = True
    return mask.view_as(raw)


def powerpropagation_by_hand(method: PowerPropagation, raw: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """Return the weight of the forward pass, as a function of the raw weight, and what the loss is charged for it."""
    return raw * raw.abs() ** (method.alpha - 1) * largest(raw, kept), raw.new_zeros(())


def top_kast_by_hand(method: TopKAST, raw: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    forward, backward = largest(raw, kept), largest(raw, kept + int(method.more * raw.numel()))
    through = raw * backward  # the gradient goes through B, the value is that of A
    weight = through + (raw * forward - through).detach()
    squares = raw.square() / 2
    charge = squares[forward].sum() + squares[backward & ~forward].sum() * raw.numel() / kept
    return weight, method.penalty * charge


TEXTBOOK: dict[type, Callable[..., tuple[Tensor, Tensor]]] = {
    PowerPropagation: powerpropagation_by_hand,
    TopKAST: top_kast_by_hand,
}
SETTINGS = [PowerPropagation(), PowerPropagation(alpha=3.0), TopKAST(), TopKAST(more=0.3, penalty=0.05)]


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3))
    return layers.double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16, 2, 6, 6, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 3, (16,), generator=generator)


@pytest.mark.parametrize("method", SETTINGS, ids=str)
def test_a_run_agrees_with_autograd_through_the_textbook_form(method: ThresholdMethod) -> None:
    """Every layer has its own threshold, as in Top-KAST."""
    model, reference = network(), network()
    optimizer, its_optimizer = (
        torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3) for m in (model, reference)
    )
    sparsifier = st3.sparsify(
        model, optimizer, sparsity=SPARSITY, total_steps=STEPS, method=method, allocation="uniform"
    )
    raw = dict(reference.named_parameters())
    names = [layer.name for layer in sparsifier.layers]
    for step in range(STEPS):
        x, y = batch(step)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

        textbook = {name: TEXTBOOK[type(method)](method, raw[name], KEPT[name]) for name in names}
        sparse = {name: weight for name, (weight, _) in textbook.items()}
        loss = nn.functional.cross_entropy(functional_call(reference, raw | sparse, (x,)), y)
        (loss + sum(charge for _, charge in textbook.values())).backward()
        its_optimizer.step()
        its_optimizer.zero_grad()
    for name, parameter in model.named_parameters():
        found = optimizer.state[parameter]["st3_raw"] if name in names else parameter
        torch.testing.assert_close(found, raw[name], rtol=0, atol=1e-9)
        if name in names:
            expected = TEXTBOOK[type(method)](method, raw[name], KEPT[name])[0]
            torch.testing.assert_close(parameter, expected, rtol=0, atol=1e-9)
    sparsifier.finalize()


# ---------------------------------------------------------------- the contract

PLUG_INS = {"powerpropagation": PowerPropagation, "top_kast": TopKAST}


@pytest.fixture(autouse=True)
def _register(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in PLUG_INS.items():
        monkeypatch.setitem(METHODS._things, name, kind)


def contract_tests() -> Iterator[tuple[Callable[..., None], bool]]:
    """Yield the tests of every method that take nothing but the method, and whether they take its name."""
    for key, test in vars(contract).items():
        marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        if key.startswith("test_") and [mark.args[0] for mark in marks] == ["method"]:
            yield test, isinstance(marks[0].args[1][0], str)


@pytest.mark.filterwarnings("ignore::st3.errors.LayerCollapseWarning")
@pytest.mark.parametrize("name", PLUG_INS)
@pytest.mark.parametrize(
    ("test", "by_name"), [pytest.param(*pair, id=pair[0].__name__) for pair in contract_tests()]
)
def test_it_keeps_the_contract_of_every_method(test: Callable[..., None], by_name: bool, name: str) -> None:
    test(name if by_name else PLUG_INS[name]())
