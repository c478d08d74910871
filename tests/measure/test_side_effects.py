"""Counting has no side effects on the model or on torch."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from st3.measure import count_macs


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_unchanged(model: nn.Module, before: dict[str, Tensor]) -> None:
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.fixture
def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(256, 2)
    )


PICTURES = torch.randn(2, 3, 10, 10)


def test_training_flags_are_restored_one_by_one(model: nn.Sequential) -> None:
    model.train()
    model[1].eval()
    count_macs(model, PICTURES)
    assert [module.training for module in model.modules()] == [True, True, False, True, True, True]


def test_weights_and_running_statistics_do_not_change(model: nn.Sequential) -> None:
    before = snapshot(model)
    versions = [tensor._version for tensor in (*model.parameters(), *model.buffers())]
    count_macs(model.train(), PICTURES)
    assert_unchanged(model, before)
    assert [tensor._version for tensor in (*model.parameters(), *model.buffers())] == versions


def test_no_gradient_is_left_behind(model: nn.Sequential) -> None:
    count_macs(model, PICTURES)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_everything_is_restored_when_the_forward_pass_fails(model: nn.Sequential) -> None:
    before = snapshot(model)
    model.train()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        count_macs(model, torch.randn(2, 3, 12, 12))
    assert all(module.training for module in model.modules())
    assert_unchanged(model, before)
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.is_grad_enabled()


class Restless(nn.Module):
    """Changes and replaces its buffers in every pass, and draws random numbers."""

    filled: Tensor
    replaced: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filled", torch.zeros(3))
        self.register_buffer("replaced", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.filled += 1
        self.replaced = self.replaced + 1
        return x * torch.rand(3)


def test_buffers_that_the_model_changes_are_restored() -> None:
    model = Restless()
    replaced = model.replaced
    count_macs(model, torch.ones(3))
    assert model.filled.tolist() == [0, 0, 0]
    assert model.replaced is replaced


def test_the_random_state_does_not_change() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    count_macs(Restless(), torch.ones(3))
    assert torch.equal(torch.rand(3), expected)


def test_the_users_own_eval_is_not_called() -> None:
    class Merging(nn.Linear):
        """Like layers that fold an update into their weight when they leave training."""

        def train(self, mode: bool = True) -> Any:
            raise AssertionError("called")

    layer = Merging(3, 4)
    assert count_macs(layer, torch.ones(1, 3)).total == 12


def test_a_backward_pass_still_works_after_counting(model: nn.Sequential) -> None:
    loss = model.eval()(PICTURES).sum()
    count_macs(model, PICTURES)
    loss.backward()


def test_gradients_flow_under_autocast_after_counting() -> None:
    layer = nn.Linear(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        count_macs(layer, torch.ones(1, 3))
        layer(torch.ones(1, 3)).sum().backward()
    assert layer.weight.grad is not None


def test_the_fused_attention_setting_is_respected() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        count_macs(layer, torch.ones(1, 5, 8))
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
