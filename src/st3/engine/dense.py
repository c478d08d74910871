"""Execute a program in torch with dense prepacked weights, for networks with few zeros."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .program import Conv, Function, Program
from .reference import activate, evaluate, tensor

LAYOUT = torch.channels_last


class DenseExecution:
    """Executes a program dense, with convolutions in oneDNN in its preferred layout."""

    def __init__(self, program: Program, threads: int = 1) -> None:
        self.program, self.threads = program, threads
        self.calls = {
            step.target: pack_convolution(step, program) for step in program if isinstance(step, Conv)
        }

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            with torch.no_grad():
                return self.evaluate(inputs)
        finally:
            torch.set_num_threads(before)

    def evaluate(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        values = dict(zip(self.program.inputs, inputs, strict=True))
        for step in self.program:
            sources = [values[name] for name in step.sources]
            call = self.calls.get(step.target)
            shape = self.program.shapes[step.target]
            values[step.target] = call(*sources) if call else evaluate(step, sources, shape)
        results = (values[name].contiguous() for name in self.program.outputs)
        given = {value.data_ptr() for value in inputs}
        return tuple(result.clone() if result.data_ptr() in given else result for result in results)


def pack_convolution(step: Conv, program: Program) -> Callable[..., Tensor]:
    """Return a convolution with its weight packed for oneDNN, or a plain one if torch has no oneDNN."""
    weight = torch.from_numpy(step.weight).contiguous(memory_format=LAYOUT)
    bias = tensor(step.bias)
    where = (list(step.padding), list(step.stride), list(step.dilation), step.groups)
    clamp = "relu" if step.activation and step.activation.function is Function.RELU else "none"
    rest = None if clamp == "relu" else step.activation

    def plain(x: Tensor, *residual: Tensor) -> Tensor:
        x = x.contiguous(memory_format=LAYOUT)
        y = torch.nn.functional.conv2d(x, weight, bias, step.stride, step.padding, step.dilation, step.groups)
        return activate(sum(residual, y), step.activation)

    operations: Any = torch.ops.mkldnn
    known = all(
        hasattr(operations, name) for name in ("_reorder_convolution_weight", "_convolution_pointwise")
    )
    if not (known and torch.backends.mkldnn.is_available()):
        return plain
    size = list(program.shapes[step.sources[0]])
    stored = operations._reorder_convolution_weight(weight, *where, size)

    def call(x: Tensor, *residual: Tensor) -> Tensor:
        x = x.contiguous(memory_format=LAYOUT)
        if residual:
            other = residual[0].contiguous(memory_format=LAYOUT)
            ends: tuple[Any, ...] = ("add", None, clamp if clamp == "relu" else None, [], None)
            result = operations._convolution_pointwise.binary(x, other, stored, bias, *where, *ends)
        else:
            result = operations._convolution_pointwise(x, stored, bias, *where, clamp, [], "")
        return activate(result, rest)

    return call
