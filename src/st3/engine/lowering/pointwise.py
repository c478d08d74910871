"""The rules for one number at a time: sums, activations, a scale and a shift per channel."""

from ..planner import Planner
from ..program import Activation, Add, Affine, Elementwise, Floats, Step
from ..routes import Route
from .combine import combine
from .dispatch import in_torch, lower


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
        a, b = (planner.pictures(name, Route.pixelwise(geometry)) for name in step.sources)
        made = planner.new_pictures(step.target, geometry)
    elif any(value.rows for value in values):
        a, b = (planner.rows(name) for name in step.sources)
        made = planner.new_rows(step.target)
    else:
        in_torch(step, planner)
        return
    planner.emit(combine(step, a, made, residual=b, activation=step.activation))
    planner.finish_field(made, step.name)


@lower.register
def _(step: Elementwise, planner: Planner) -> None:
    lower_alone(step, planner, step.activation, None, None)


@lower.register
def _(step: Affine, planner: Planner) -> None:
    lower_alone(step, planner, step.activation, step.scale, step.shift)


def lower_alone(
    step: Step, planner: Planner, activation: Activation | None, scale: Floats | None, shift: Floats | None
) -> None:
    """Emit a step with one source, in the form that this has."""
    value = planner.values[step.sources[0]]
    planner.values[step.target].not_negative = bool(activation and activation.is_never_negative)
    if value.pictures:
        source = next(iter(value.pictures.values()))
        target = planner.new_pictures(step.target, source.field.geometry)
    elif value.rows and scale is None:
        source, target = next(iter(value.rows.values())), planner.new_rows(step.target)
    else:
        in_torch(step, planner)
        return
    planner.emit(combine(step, source, target, activation=activation, scale=scale, shift=shift))
    planner.finish_field(target, step.name)
