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
    activation: Activation | None = None,
    scale: Floats | None = None,
    shift: Floats | None = None,
    channels: range | None = None,
    first_channel: int = 0,
    every: int = 1,
) -> Operation:
    """Return the operation target[first_channel::every] = activation(source[channels] * scale + shift)."""
    begin, end = source.field, target.field
    chosen = channels or range(begin.channels)
    low, high, function = clamp(activation)

    def make(binding: Binding) -> tuple[Structure, int]:
        epilogue = plan.Epilogue(
            mask=binding.keep(end.mask) if end.mask is not None else None,
            low=low,
            high=high,
            function=function,
        )
        return plan.Combine(
            in_=binding.address(source.buffer) + 4 * (begin.origin + chosen.start * begin.plane),
            out=binding.address(target.buffer) + 4 * (end.origin + first_channel * end.plane),
            scale=binding.keep(scale) if scale is not None else None,
            shift=binding.keep(shift) if shift is not None else None,
            epilogue=epilogue,
            in_image=begin.image,
            in_plane=chosen.step * begin.plane,
            in_row=begin.pitch,
            out_image=end.image,
            out_plane=every * end.plane,
            out_row=end.pitch,
            channels=len(chosen),
            height=end.geometry.height,
            width=end.geometry.width,
        ), end.groups * len(chosen)

    return Operation(step.name, "combine", [source.buffer], [target.buffer], make, step=step)
