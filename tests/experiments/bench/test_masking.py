"""Untrained networks made sparse for benchmarks."""

import pytest
import torch
from torch import nn

import st3
from st3.core.budget.allocation import ALLOCATIONS
from st3.core.layers.patterns import is_depthwise
from st3.experiments.bench.masking import mask
from st3.models import MODELS


@pytest.mark.parametrize("allocation", list(ALLOCATIONS))
def test_the_network_has_the_sparsity_and_its_layers_keep_their_norm(allocation):
    torch.manual_seed(0)
    model = MODELS["resnet20"]()
    norms = {name: p.detach().norm() for name, p in model.named_parameters() if p.dim() > 1}
    mask(model, 0.9, allocation)
    assert st3.report(model).sparsity == pytest.approx(0.9, abs=1e-4)
    for name, parameter in model.named_parameters():
        if name in norms and parameter.any():
            torch.testing.assert_close(parameter.detach().norm(), norms[name])


def test_layers_can_be_kept_dense():
    model = mask(MODELS["mobilenet_v1"](), 0.8, exclude=[st3.FIRST, is_depthwise])
    zeros = {name: float((p == 0).float().mean()) for name, p in model.named_parameters() if p.dim() > 1}
    dense = {name for name in zeros if name == "conv1.weight" or ".depthwise." in name}
    assert {name for name, share in zeros.items() if share == 0} == dense
    assert all(share == pytest.approx(0.8, abs=0.01) for name, share in zeros.items() if name not in dense)


def test_a_percentage_is_refused():
    with pytest.raises(ValueError) as caught:
        mask(nn.Linear(4, 4), 80)
    assert str(caught.value) == "sparsity must be at least 0 and below 1, got 80"
