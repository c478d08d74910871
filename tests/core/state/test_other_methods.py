"""A state that another method has left: its tensors are not of the last step, and must not come back."""

import pytest
import torch
from tests.tiny import STEPS, TinyNet, sgd, sparsify, train

import st3
from st3.core.state.store import KEYS, entries


def kept_keys(optimizer):
    return {
        key for _, kept in entries(optimizer.param_groups, optimizer.state) for key in kept if key in KEYS
    }


@pytest.mark.parametrize(("first", "second"), [("st3", "gmp"), ("gmp", "st3"), ("rigl", "gmp")])
def test_going_on_with_another_method_drops_what_the_first_one_kept(first, second):
    model = TinyNet()
    optimizer = sgd(model.parameters())
    given = {} if first != "rigl" else {"ramp": None}
    sparsifier = sparsify(model, optimizer, method=first, **given)
    train(model, optimizer, 4)
    kept = kept_keys(optimizer)
    sparsifier._conductor.unhook()  # as after saving, and loading into a new optimizer
    sparsifier._is_detached = True
    st3.sparsify(model, optimizer, sparsity=0.8, total_steps=STEPS, method=second)
    train(model, optimizer, 2)
    assert kept_keys(optimizer) == {st3.methods.METHODS[second]().family.key}
    assert kept == {st3.methods.METHODS[first]().family.key}


@pytest.mark.parametrize("method", ["st3", "gmp", "rigl"])
def test_from_sparse_forgets_fixed_masks_for_every_method(method):
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, 8)
    sparsifier.freeze()
    state = optimizer.state_dict()
    again = TinyNet()
    again.load_state_dict(model.state_dict())
    fresh = sgd(again.parameters())
    fresh.load_state_dict(state)
    resumed = st3.sparsify(again, fresh, sparsity=0.9, total_steps=STEPS, method=method, from_sparse=True)
    assert not resumed.is_frozen
    assert resumed.step == 0


@pytest.mark.parametrize("start", [0.1, 0.3, 0.5])
def test_a_method_of_constant_sparsity_cannot_begin_later(start):
    model = torch.nn.Linear(8, 8)
    optimizer = sgd(model.parameters())
    ramp = st3.ramps.Constant(start=start)
    with pytest.raises(
        ValueError, match="RigL keeps one sparsity from the first step to the last, so it cannot begin"
    ):
        st3.sparsify(model, optimizer, sparsity=0.5, total_steps=20, method="rigl", ramp=ramp)
