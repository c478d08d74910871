"""The rules for elementwise steps: sums, activations, scale and shift per channel."""

from ..planner import Planner
from ..program import Activation, Add, Affine, Elementwise, Floats, Step
from ..routes import Route
from .combine import combine
from .dispatch import lower, lower_to_torch


@lower.register
def _(step: Add, planner: Planner) -> None:
    values = [planner.values[name] for name in step.sources]
    target = planner.values[step.target]
    if step.activation:
        target.not_negative = step.activation.is_never_negative
    else:
        target.not_negative = all(value.not_negative for value in values)
    geometry = next((value.geometry for value in values if value.geometry), None)
    if len(step.sources) == 2 and geometry:
        a, b = (planner.image_field(name, Route.pixelwise(geometry)) for name in step.sources)
        made = planner.new_image_field(step.target, geometry)
    elif any(value.row_fields for value in values):
        a, b = (planner.row_field(name) for name in step.sources)
        made = planner.new_row_field(step.target)
    else:
        lower_to_torch(step, planner)
        return
    planner.emit(combine(step, a, made, residual=b, activation=step.activation))
    planner.fill_border(made, step.name)


@lower.register
def _(step: Elementwise, planner: Planner) -> None:
    lower_unary(step, planner, step.activation, None, None)


@lower.register
def _(step: Affine, planner: Planner) -> None:
    lower_unary(step, planner, step.activation, step.scale, step.shift)


def lower_unary(
    step: Step, planner: Planner, activation: Activation | None, scale: Floats | None, shift: Floats | None
) -> None:
    """Emit a step with one source, in the layout of that source."""
    value = planner.values[step.sources[0]]
    planner.values[step.target].not_negative = bool(activation and activation.is_never_negative)
    if value.image_fields:
        source = next(iter(value.image_fields.values()))
        target = planner.new_image_field(step.target, source.field.geometry)
    elif value.row_fields and scale is None:
        source, target = next(iter(value.row_fields.values())), planner.new_row_field(step.target)
    else:
        lower_to_torch(step, planner)
        return
    planner.emit(combine(step, source, target, activation=activation, scale=scale, shift=shift))
    planner.fill_border(target, step.name)
