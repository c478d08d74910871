"""Gradients of sparse weights become those of raw weights once per step, wherever they came from."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.tiny import STEPS, TinyNet, adam, assert_same, batch, raw_weights, sgd, sparsify, train, zeros
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.optim import Optimizer

import st3

METHODS = {
    "soft": st3.methods.Soft(),
    "not straight-through": st3.methods.ST3(straight_through=False),
    "Feather": st3.methods.Feather(theta=0.5),
    "GMP": st3.methods.GMP(),
    "ST-3": st3.methods.ST3(),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
SCALES = st3.methods.Feather(
    theta=0.5
)  # mapped twice, a gradient would be quartered where it is to be halved


def start(method: st3.methods.Method, make: Callable[..., Optimizer] = sgd) -> tuple[TinyNet, Optimizer]:
    """Return a sparse run in evaluation mode, so that a forward pass changes no statistics."""
    model = TinyNet().eval()
    optimizer = make(model.parameters())
    sparsify(model, optimizer, method=method)
    return model, optimizer


def gradients_by_hand(model: nn.Module, number: int) -> dict[str, Tensor]:
    """Return the gradients of a batch at the weights that the model holds, without any backward pass."""
    pictures, classes = batch(number)

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(functional_call(model, weights, (pictures,)), classes)

    return grad(loss)({name: p.detach() for name, p in model.named_parameters()})


def set_gradients(model: nn.Module, number: int) -> None:
    for name, gradient in gradients_by_hand(model, number).items():
        model.get_parameter(name).grad = gradient


def train_by_hand(model: nn.Module, optimizer: Optimizer, steps: range) -> None:
    for number in steps:
        set_gradients(model, number)
        optimizer.step()
        optimizer.zero_grad()


@every_method
@pytest.mark.parametrize("make", [sgd, adam])
def test_gradients_set_by_hand_train_as_those_of_a_backward_pass(
    method: st3.methods.Method, make: Callable[..., Optimizer]
) -> None:
    runs = [start(method, make) for _ in range(2)]
    train(*runs[0], STEPS)
    train_by_hand(*runs[1], range(STEPS))
    assert zeros(runs[0][0]) > 0
    assert_same(runs[1][0].state_dict(), runs[0][0].state_dict())
    assert_same(runs[1][1].state_dict(), runs[0][1].state_dict())  # with the raw weights, masks and momentum


@every_method
def test_a_run_may_change_between_backward_passes_and_gradients_set_by_hand(
    method: st3.methods.Method,
) -> None:
    runs = [start(method) for _ in range(2)]
    train(*runs[0], STEPS)
    for number in range(STEPS):
        once = range(number, number + 1)
        train_by_hand(*runs[1], once) if number % 2 else train(*runs[1], once)
    assert_same(runs[1][1].state_dict(), runs[0][1].state_dict())


def test_in_one_step_some_layers_may_have_gradients_of_a_backward_pass_and_others_by_hand() -> None:
    runs = [start(SCALES) for _ in range(2)]
    for model, optimizer in runs:
        train(model, optimizer, 4)
    train(*runs[0], range(4, 5))
    model, optimizer = runs[1]
    by_hand = gradients_by_hand(model, 4)
    pictures, classes = batch(4)
    rest = [p for name, p in model.named_parameters() if name != "deep.weight"]
    F.cross_entropy(model(pictures), classes).backward(inputs=rest)
    model.deep.weight.grad = by_hand["deep.weight"]
    optimizer.step()
    optimizer.zero_grad()
    assert_same(raw_weights(*runs[1]), raw_weights(*runs[0]))


def test_a_closure_may_set_gradients_by_hand() -> None:
    runs = [start(SCALES) for _ in range(2)]
    train(*runs[0], STEPS)
    model, optimizer = runs[1]
    for number in range(STEPS):

        def closure(number: int = number) -> float:
            set_gradients(model, number)
            return 0.0

        optimizer.step(closure)
    assert_same(raw_weights(*runs[1]), raw_weights(*runs[0]))


def sum_by_hand(model: TinyNet) -> None:
    set_gradients(model, 4)
    for name, gradient in gradients_by_hand(model, 5).items():
        model.get_parameter(name).grad += gradient


def sum_by_backward(model: TinyNet) -> None:
    for number in (4, 5):
        pictures, classes = batch(number)
        F.cross_entropy(model(pictures), classes).backward()


def test_a_sum_made_by_hand_is_mapped_once() -> None:
    runs = [start(SCALES) for _ in range(2)]
    for (model, optimizer), make in zip(runs, (sum_by_backward, sum_by_hand), strict=True):
        train(model, optimizer, 4)
        make(model)
        optimizer.step()
    for name, raw in raw_weights(*runs[0]).items():  # halves of a sum, sums of halves
        torch.testing.assert_close(raw_weights(*runs[1])[name], raw, rtol=1e-6, atol=1e-8)


def plain_sgd(parameters: Any) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


@pytest.mark.parametrize("make", [sum_by_backward, sum_by_hand])
def test_a_gradient_that_stays_for_a_second_step_is_not_mapped_again(make: Callable[[TinyNet], None]) -> None:
    model, optimizer = start(SCALES, plain_sgd)
    train(model, optimizer, 4)
    make(model)
    raws = [raw_weights(model, optimizer)]
    mapped = None
    for _ in range(3):
        optimizer.step()
        now = {name: model.get_parameter(name).grad.clone() for name in raws[0]}
        assert_same(now, now if mapped is None else mapped)
        mapped = now
        raws.append(raw_weights(model, optimizer))
    for before, after in itertools.pairwise(raws):  # the same way three times
        for name, gradient in mapped.items():
            torch.testing.assert_close(after[name], before[name] - 0.1 * gradient)


def test_a_gradient_written_anew_into_the_same_tensor_is_a_new_one() -> None:
    runs = [start(SCALES) for _ in range(2)]
    for model, optimizer in runs:
        train(model, optimizer, 4)
    for number in (4, 5, 6):
        train(*runs[0], range(number, number + 1))
        model, optimizer = runs[1]
        for name, gradient in gradients_by_hand(model, number).items():
            parameter = model.get_parameter(name)
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(gradient)
        optimizer.step()  # and no zero_grad
    assert_same(raw_weights(*runs[1]), raw_weights(*runs[0]))


def test_gradients_zeroed_in_place_are_new_ones_after_the_next_backward_pass() -> None:
    runs = [start(SCALES) for _ in range(2)]
    train(*runs[0], STEPS)
    model, optimizer = runs[1]
    for number in range(STEPS):
        pictures, classes = batch(number)
        F.cross_entropy(model(pictures), classes).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    assert_same(raw_weights(*runs[1]), raw_weights(*runs[0]))


def test_the_users_gradient_of_a_dense_layer_stays_as_it_is() -> None:
    model = TinyNet().eval()
    optimizer = sgd(model.parameters())
    sparsify(model, optimizer, method=SCALES, ramp=st3.ramps.Cubic(start=0.5, end=0.75))
    set_gradients(model, 0)
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    optimizer.step()
    assert_same({name: p.grad for name, p in model.named_parameters()}, before)
