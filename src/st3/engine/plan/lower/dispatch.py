"""`lower`, which dispatches on the kind of a step; steps without a rule run in torch."""

from functools import singledispatch

from ... import reference
from ...program import Step
from ..assemble import Operation
from ..planner import Planner

__all__ = ["lower", "lower_to_torch"]


@singledispatch
def lower(step: Step, planner: Planner) -> None:
    """Emit the operations of a step; by default one call of torch."""
    lower_to_torch(step, planner)


def lower_to_torch(step: Step, planner: Planner) -> None:
    sources = [(planner.plain(name), planner.program.shapes[name]) for name in step.sources]
    shape = planner.program.shapes[step.target]
    buffer = planner.new_plain(step.target)
    planner.emit(
        Operation(
            step.name,
            "torch",
            [buffer for plain, _ in sources for buffer in plain.buffers],
            [buffer],
            torch=lambda *tensors: reference.evaluate(step, list(tensors), shape),
            torch_sources=sources,
            torch_target=(buffer, shape),
            step=step,
        )
    )
