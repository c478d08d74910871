"""Every network of `st3.models` compiles without steps in torch and computes the same."""

import pytest
import torch
from tests.engine.odd_models import randomise
from tests.engine.outputs import assert_close
from torch import nn

import st3
from st3.engine.program import Affine, Conv, Elementwise, InTorch
from st3.models import MODELS
from st3.training.tasks import TASKS

SMALLER = {"resnet50": 64, "mobilenet_v1": 64}  # side of the pictures; they take any


LARGE = ("vgg16", "vgg19", "wrn34x2")  # similar to others


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in MODELS]
)
def test_every_network_compiles_without_torch_steps_and_computes_the_same(name):
    torch.manual_seed(0)
    task, (first, *others) = TASKS[MODELS.inputs(name).task], MODELS.shape(name)
    shape = (first, *(SMALLER.get(name, size) for size in others))
    model = randomise(MODELS[name](**task.sizes(10, shape)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(torch.rand_like(parameter) < 0.1)
    inputs = task.make_inputs(2, shape, 10, torch.Generator().manual_seed(0))
    fast = st3.engine.compile(model, inputs, tune=False)
    with torch.no_grad():
        assert_close(fast(inputs), model(inputs))
    if not _has_only_convolutions_and_batch_norms(model):
        return
    program = fast.program
    assert not [step for step in program if isinstance(step, InTorch | Elementwise)]
    norms = [step for step in program if isinstance(step, Affine)]
    assert not norms or name == "wrn34x2"  # its norms come before padded convolutions
    assert all(step.bias is not None for step in program if isinstance(step, Conv)) or name == "wrn34x2"


def _has_only_convolutions_and_batch_norms(model):
    """Return whether every step of the network has kernels of the engine; a layer norm, for instance, has none."""
    layers = {type(module) for module in model.modules() if [*module.parameters(recurse=False)]}
    return layers <= {nn.Conv2d, nn.Linear, nn.BatchNorm2d}
