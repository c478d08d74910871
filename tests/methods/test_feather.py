"""Feather: its worked numbers, its damped gradient, and soft and hard thresholding as its two ends."""

import pytest
import torch
from torch import nn, tensor

import st3
from st3.methods import ST3, Feather

W = tensor([[0.5, -0.4, 0.1, 0.05], [0.3, -0.2, 0.02, 0.01]])
ACTIVE = tensor([[1, 1, 0, 0], [1, 1, 0, 0]]).bool()


def attach(method, *, weight=W, sparsity=0.5):
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    with torch.no_grad():
        layer.weight.copy_(weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    st3.sparsify(layer, optimizer, sparsity=sparsity, total_steps=100, ramp="constant", method=method)
    return layer, optimizer


def gradient(layer):
    """Return what the raw weight gets when the gradient at the sparse weight is 1 everywhere."""
    layer.weight.sum().backward()
    return layer.weight.grad


def test_the_worked_numbers_of_power_three():
    layer, _ = attach(Feather())
    expected = tensor([[0.4954589, -0.3928414, 0, 0], [0.2869397, -0.1666111, 0, 0]])
    torch.testing.assert_close(layer.weight.detach(), expected, rtol=0, atol=6e-8)


def test_the_default_is_that_of_its_authors():
    assert Feather() == Feather(power=3.0, theta=None)


@pytest.mark.parametrize(
    ("sparsity", "theta"), [(0.0, 1.0), (0.5, 1.0), (0.9, 1.0), (0.95, 1.0), (0.951, 0.5), (0.99, 0.5)]
)
def test_gradients_of_zeroed_weights_are_halved_for_targets_above_95_percent(sparsity, theta):
    assert Feather().damping(sparsity) == theta
    assert Feather().is_straight_through(sparsity) is (theta == 1.0)
    assert Feather(theta=0.3).damping(sparsity) == 0.3


def test_up_to_95_percent_it_is_straight_through():
    layer, optimizer = attach(Feather())
    assert torch.equal(gradient(layer), torch.ones(2, 4))
    optimizer.step()
    torch.testing.assert_close(optimizer.state[layer.weight]["st3_raw"], W - 0.1, rtol=0, atol=1e-8)


@pytest.mark.parametrize("theta", [0.0, 0.25, 1.0])
def test_zeroed_weights_get_theta_times_the_gradient_and_active_ones_all_of_it(theta):
    layer, _ = attach(Feather(theta=theta))
    assert torch.equal(gradient(layer), torch.where(ACTIVE, 1.0, theta))


@pytest.mark.filterwarnings("ignore::st3.errors.LayerCollapseWarning")
def test_above_95_percent_zeroed_weights_get_half_the_gradient():
    weight = torch.arange(1.0, 101.0).reshape(10, 10)
    layer, optimizer = attach(Feather(), weight=weight, sparsity=0.96)
    active = weight > 96
    assert torch.equal(layer.weight != 0, active)
    assert torch.equal(gradient(layer), torch.where(active, 1.0, 0.5))
    optimizer.step()
    expected = weight - torch.where(active, 0.1, 0.05)
    torch.testing.assert_close(optimizer.state[layer.weight]["st3_raw"], expected, rtol=1e-6, atol=0)


def trained(method, steps=30):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    st3.sparsify(model, optimizer, sparsity=0.8, total_steps=steps, method=method, ramp=st3.ramps.Cubic())
    x = torch.randn(32, 6, dtype=torch.float64)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - x[:, :3]).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_power_one_is_st3_without_rescale():
    torch.testing.assert_close(trained(Feather(power=1.0)), trained(ST3(rescale=False)), rtol=0, atol=1e-9)


def test_no_gradient_for_zeroed_weights_is_soft_thresholding_without_straight_through():
    textbook = ST3(rescale=False, straight_through=False)
    torch.testing.assert_close(trained(Feather(power=1.0, theta=0.0)), trained(textbook), rtol=0, atol=1e-9)


def test_a_large_power_is_almost_hard_thresholding():
    """The ratio of the worked example's smallest active weight to its threshold is 0.2 / 0.15."""
    layer, _ = attach(Feather(power=200.0))
    torch.testing.assert_close(layer.weight.detach(), torch.where(ACTIVE, W, 0.0), rtol=1e-6, atol=0)


def test_powers_between_shrink_less_than_soft_and_more_than_hard():
    soft, three, hard = (
        attach(method)[0].weight.detach().abs()[ACTIVE]
        for method in (ST3(rescale=False), Feather(), ST3(soft=False, rescale=False))
    )
    assert bool((soft < three).all())
    assert bool((three < hard).all())


@pytest.mark.parametrize("power", [0.0, -1.0])
def test_a_power_must_be_positive(power):
    with pytest.raises(ValueError, match=rf"^power must be above 0, got {power}$"):
        Feather(power=power)


@pytest.mark.parametrize("theta", [-0.1, 1.5])
def test_theta_must_be_a_part(theta):
    with pytest.raises(ValueError, match=rf"^theta must lie between 0 and 1, got {theta}$"):
        Feather(theta=theta)
