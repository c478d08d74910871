"""A convolution and its operands: the fields it reads and writes, found or made."""

from ..convolution import Convolution
from ..memory import Buffer
from ..planner import Planner
from ..program import Conv
from ..routes import Route, windows_of
from ..values import Laid

__all__ = ["convolution_of", "reads_of"]


def convolution_of(
    step: Conv, planner: Planner, source: Laid | None = None, target: Laid | None = None
) -> Convolution:
    """Find or make the fields a convolution reads and writes."""
    have = source.field.geometry if source else planner.values[step.sources[0]].geometry
    wanted = planner.route_to(step.target, windows_of(step), have)
    source = source or planner.pictures(step.sources[0], wanted)
    residual = None
    if len(step.sources) > 1:
        residual = planner.pictures(step.sources[1], Route.pixelwise(wanted.target))
    target = target or planner.new_pictures(step.target, wanted.target, over=residual, step=step)
    return Convolution(
        planner.kernels,
        planner.threads,
        step.weight,
        step.bias,
        source,
        target,
        residual,
        wanted.step,
        step.padding,
        step.dilation,
        step.groups,
        step.activation,
        planner.is_looked_around(step.target),
    )


def reads_of(convolution: Convolution) -> list[Buffer]:
    return [convolution.source.buffer, *([convolution.residual.buffer] if convolution.residual else [])]
