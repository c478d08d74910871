"""`torch.compile(model, backend="st3")`: graph breaks, control flow, changed weights, gradients."""

import warnings

import pytest
import torch
from torch import nn

from st3.engine import backend

needs_compiler = pytest.mark.filterwarnings("ignore::DeprecationWarning")
pytestmark = [needs_compiler]


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def by_name(model: nn.Module, **options):
    return torch.compile(model, backend=backend.st3, options={"tune": False, "threads": 1, **options})


class Branches(nn.Module):
    """Branches on a computed value, and prints: torch breaks the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(5, 4)

    def forward(self, x):
        x = self.first(x).relu()
        if x.sum() > 1:
            return self.second(x)
        return {"answer": self.third(x)}["answer"]


def picture_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    ).eval()


@torch.no_grad()
def test_the_engine_computes_what_the_model_does():
    model = picture_net()
    fast = by_name(model)
    for batch in (1, 2, 3, 2):  # torch makes the batch a symbol at the second size
        x = torch.randn(batch, 3, 8, 8)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_model_with_control_flow_works():
    model = Branches().eval()
    fast = by_name(model)
    for scale in (0.0, 5.0, -5.0, 5.0):
        x = torch.full((2, 6), scale)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_changed_weights_are_noticed():
    model, x = picture_net(), torch.randn(1, 3, 8, 8)
    fast = by_name(model)
    before = fast(x)
    model[0].weight.mul_(0.5)
    model[1].running_mean.add_(1.0)
    assert not torch.allclose(fast(x), before)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    model.load_state_dict(picture_net().state_dict())
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


def test_gradients_come_from_torch_with_a_warning():
    model, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    with pytest.warns(UserWarning, match="gradients are wanted") as caught:
        by_name(model)(x).sum().backward()
    assert str(caught[0].message) == (
        'torch.compile(backend="st3") runs a graph in plain torch: gradients are wanted, which the engine has none of: '
        "call the model under torch.no_grad() or torch.inference_mode()"
    )
    assert model.weight.grad is not None


@torch.no_grad()
def test_a_graph_that_the_engine_refuses_runs_in_torch_with_the_reason():
    model, x = nn.Linear(4, 3, dtype=torch.float64).eval(), torch.randn(2, 4, dtype=torch.float64)
    with pytest.warns(UserWarning, match="runs a graph in plain torch: .*float32"):
        assert torch.equal(by_name(model)(x), model(x))


@torch.inference_mode()
def test_it_works_in_inference_mode_and_tells_unknown_options():
    model, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(by_name(model)(x), model(x))
    torch.compiler.reset()
    with pytest.raises(
        Exception, match=r"the backend st3 has no option 'speed'; its options are threads, tune"
    ):
        by_name(model, speed=3)(x)


def test_torch_finds_the_backend_by_its_name():
    assert "st3" in torch.compiler.list_backends()
