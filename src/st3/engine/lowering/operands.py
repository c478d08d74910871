"""Make a convolution with the fields it reads and writes."""

from ..convolution import Convolution
from ..memory import Buffer
from ..planner import Planner
from ..program import Conv
from ..routes import Route, windows_of
from ..values import FieldArray

__all__ = ["buffers_read", "make_convolution"]


def make_convolution(
    step: Conv, planner: Planner, source: FieldArray | None = None, target: FieldArray | None = None
) -> Convolution:
    """Return a convolution; find or make the fields that were not given."""
    have = source.field.geometry if source else planner.values[step.sources[0]].geometry
    wanted = planner.route_to(step.target, windows_of(step), have)
    source = source or planner.image_field(step.sources[0], wanted)
    residual = None
    if len(step.sources) > 1:
        residual = planner.image_field(step.sources[1], Route.pixelwise(wanted.target))
    target = target or planner.new_image_field(step.target, wanted.target, over=residual, step=step)
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
        planner.needs_zeros_outside(step.target),
    )


def buffers_read(convolution: Convolution) -> list[Buffer]:
    return [convolution.source.buffer, *([convolution.residual.buffer] if convolution.residual else [])]
