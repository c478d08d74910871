"""The engine's float32 kernels on a stack of layers, for int8_blocks.py."""

import numpy as np
import torch
from torch import Tensor, nn

import st3
from st3.engine.program import Conv
from st3.engine.run import Runtime


def convolutions(layers: list[tuple[np.ndarray, np.ndarray]]) -> nn.Module:
    """Return convolutions of stride 1 with these weights and biases, each with a ReLU."""
    modules: list[nn.Module] = []
    for weight, bias in layers:
        outputs, inputs, high, _ = weight.shape
        module = nn.Conv2d(inputs, outputs, high, padding=high // 2)
        with torch.no_grad():
            module.weight.copy_(torch.from_numpy(weight))
            assert module.bias is not None
            module.bias.copy_(torch.from_numpy(bias))
        modules += [module, nn.ReLU()]
    return nn.Sequential(*modules).eval()


class FloatStack:
    """A compiled model, tuned, without the moves from and to plain tensors."""

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        program = st3.engine.compile(model, x, threads=1, tune=False).program
        runtime = Runtime(program, threads=1)
        with torch.no_grad():
            wanted = model(x)
        (found,) = runtime.run(x)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))
        computed = [number for choice in runtime.choices() for number in choice.steps]
        self.steps = (min(computed), max(computed) + 1 - min(computed))  # between the first and the last move
        (self.session,) = runtime.sessions
        self.held = (x, found)  # kernels use the tensors of the last call
        self.kernels = sorted({choice.kernel for choice in runtime.choices()})
        self.weights = sum(int((step.weight != 0).sum()) for step in program if isinstance(step, Conv))

    def run(self) -> None:
        self.session.run(*self.steps)
