"""The engine's float32 kernels on a stack of layers, for int8_blocks.py."""

from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn

import st3
from st3.engine import plan
from st3.engine.execution import Execution
from st3.engine.program import Conv
from st3.engine.tuning import Tuner, cache_file


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
        tuner = Tuner(cache_file())
        self.execution = Execution(program, 1, tuner)
        tuner.save()
        with torch.no_grad():
            wanted = model(x)
        self.held = self.execution.run(x)  # kernels write to the tensors of the last call
        torch.testing.assert_close(self.held[0], wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))
        pairs = [*zip(self.execution.operations, self.execution.structures, strict=True)]
        assert pairs[0][0].step is pairs[-1][0].step is None, "the first and the last operation are moves"
        steps = [*chain.from_iterable(structures for _, structures in pairs[1:-1] if structures)]
        self.steps = (plan.Step * len(steps))(*steps)
        self.kernels = sorted({operation.kernel for operation, _ in pairs if operation.step is not None})
        self.weights = sum(int((step.weight != 0).sum()) for step in program if isinstance(step, Conv))

    def run(self) -> None:
        self.execution.pool.run(self.steps, len(self.steps), self.execution.slots)
