"""Operators that compute nothing: reshapes, copies, views, dropout."""

from ..aten_call import AtenCall, NotCovered
from ..program import Reshape, Step
from ..torch_call import Read
from .table import aten, covers

# The same elements in the same order.
RESHAPES = {
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
}
COPIES = {
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.to.dtype,
    aten._to_copy.default,
}
# Some elements, or all in another order: torch returns a view without copying.
VIEWS = {
    aten.chunk.default,
    aten.expand.default,
    aten.permute.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.t.default,
    aten.transpose.int,
    aten.unbind.int,
}


@covers(*RESHAPES)
def _reshape(op: AtenCall) -> Step | Read:
    if op.shape == op.shapes[op.value("self")]:
        return Read(op.value("self"))
    return Reshape(name="", sources=(op.value("self"),), target=op.target)


@covers(*COPIES)
def _identity(op: AtenCall) -> Read:
    return Read(op.value("self"))


@covers(aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default)
def _dropout(op: AtenCall) -> Read:
    if op["train"] and op["p"] > 0:
        raise NotCovered("it is active in eval mode")
    return Read(op.value("input"))
