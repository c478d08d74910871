"""Elementwise arithmetic on fields, as one operation."""

from ctypes import Structure

from .. import plan
from ..operation import Binding, Operation
from ..program import Activation, Floats, Step
from ..structures import clamp
from ..values import FieldArray

__all__ = ["combine"]


def combine(
    step: Step,
    source: FieldArray,
    target: FieldArray,
    *,
    residual: FieldArray | None = None,
    activation: Activation | None = None,
    scale: Floats | None = None,
    shift: Floats | None = None,
    first_channel: int = 0,
) -> Operation:
    """Return the operation target[first_channel:] = activation(source * scale + shift + residual), over channels."""
    begin, end = source.field, target.field
    rest = residual.field if residual else None
    low, high, function = clamp(activation)

    def make(binding: Binding) -> tuple[Structure, int]:
        epilogue = plan.Epilogue(
            residual=binding.address(residual.buffer) + 4 * rest.origin if residual and rest else None,
            residual_image=rest.image if rest else 0,
            residual_plane=rest.plane if rest else 0,
            residual_row=rest.pitch if rest else 0,
            mask=binding.keep(end.mask) if end.mask is not None else None,
            low=low,
            high=high,
            function=function,
        )
        return plan.Combine(
            in_=binding.address(source.buffer) + 4 * begin.origin,
            out=binding.address(target.buffer) + 4 * (end.origin + first_channel * end.plane),
            scale=binding.keep(scale) if scale is not None else None,
            shift=binding.keep(shift) if shift is not None else None,
            epilogue=epilogue,
            in_image=begin.image,
            in_plane=begin.plane,
            in_row=begin.pitch,
            out_image=end.image,
            out_plane=end.plane,
            out_row=end.pitch,
            channels=begin.channels,
            height=end.geometry.height,
            width=end.geometry.width,
        ), end.groups * begin.channels

    reads = [source.buffer, *([residual.buffer] if residual else [])]
    return Operation(step.name, "combine", reads, [target.buffer], make, step=step)
