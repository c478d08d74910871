"""Attention, embeddings, and rows that are put into a cache of keys and values.

Token ids and positions are int64. A program's values are float32, so steps read their bits (`to_float_bits`).
"""

import math
from typing import Any

import torch
from torch import Tensor, fx

from ..program import Attention, InTorch, Lookup, Place, Shape, Step, View
from .aten_call import COPIES, AtenCall, NotCovered, aten, covers, fixed_shape
from .shapes import RESHAPES
from .torch_call import Read, TorchCall, as_view, from_float_bits, to_float_bits

INSIDE = {
    aten.le.Tensor: (0, 1),
    aten.ge.Tensor: (1, 0),
}  # operator -> which operand is the place, which the last one


@covers(aten.embedding.default, only_floats=False)
def _embedding(op: AtenCall) -> Step:
    table = op.array("weight")
    return Lookup(name="", sources=(_numbers(op, "indices"),), target=op.target, table=table)


@covers(aten.index_copy.default, only_floats=False)
def _index_copy(op: AtenCall) -> Step:
    return _place(op, op["dim"], "index", "source", wraps=False)


@covers(aten.index_put.default, only_floats=False)
def _index_put(op: AtenCall) -> Step:
    (axis, *others) = [axis for axis, index in enumerate(op.given["indices"]) if index is not None]
    if others or op["accumulate"]:
        raise NotCovered("it writes single elements, or adds to them")
    op.given["index"] = op.given["indices"][axis]
    return _place(op, axis, "index", "values", wraps=True)


def _place(op: AtenCall, axis: int, index: str, source: str, *, wraps: bool) -> Step:
    shape = op.shape
    numbers = op.given[index]
    if not isinstance(numbers, TorchCall) or len(_shape(op, numbers)) != 1:
        raise NotCovered("its places are not a row of numbers that are computed from the input")
    value, rows = _view(op, source)
    axis %= len(shape)
    if rows.shape != (*shape[:axis], *_shape(op, numbers), *shape[axis + 1 :]):
        raise NotCovered("its rows are broadcast")
    sources = (op.value("self"), value, _numbers(op, index))
    return Place(name="", sources=sources, target=op.target, rows=rows, axis=axis, wraps=wraps)


@covers(aten.scaled_dot_product_attention.default, only_floats=False)
def _attention(op: AtenCall) -> TorchCall:
    if len(op.shape) != 4 or op["dropout_p"]:
        raise NotCovered("it is not attention of several heads without dropout")
    (first, query), (second, keys), (third, values) = (
        _view(op, "query"),
        _shared(op, "key"),
        _shared(op, "value"),
    )
    images, heads, rows, columns = query.shape
    whole = (images, heads, rows, values.shape[3])
    if (
        keys.shape[:3] != values.shape[:3]
        or heads % keys.shape[1]
        or op.shape != whole
        or keys.shape[0] != images
    ):
        raise NotCovered("its queries, keys or values are broadcast")
    if any(view.shape[3] > 1 and view.strides[3] != 1 for view in (query, keys, values)):
        raise NotCovered("its columns are not adjacent")
    fields: dict[str, Any] = {"query": query, "keys": keys, "values": values, "is_causal": op["is_causal"]}
    sources = [first, second, third]
    mask = op.given["attn_mask"]
    if isinstance(mask, Tensor):
        fields["is_causal"] = _is_causal(mask, rows, keys.shape[2])
    elif mask is not None:
        if until := _until(op, mask, images, rows, keys.shape[2]):
            name, fields["until"] = until
        else:
            name, fields["mask"] = _mask(op, mask, (images, heads, rows, keys.shape[2]))
        sources.append(name)
    scale = op["scale"] if op["scale"] is not None else 1 / math.sqrt(columns)
    target = f"{op.target}:rows"
    op.add_step(
        Attention(name="", sources=tuple(sources), target=target, scale=scale, **fields),
        (images, rows, heads, values.shape[3]),
    )
    return TorchCall(aten.transpose.int, (Read(target), 1, 2), {}, op.target, is_value=True)


def _view(op: AtenCall, name: str) -> tuple[str, View]:
    """Return an argument as a view of a value; what is more than a view becomes a value of its own."""
    found = as_view(op.given[name], op.shapes) or as_view(op[name], op.shapes)
    if found is None:
        raise NotCovered(f"its {name} is a constant")
    return found


def _shared(op: AtenCall, name: str) -> tuple[str, View]:
    """Return keys or values as a view; where a model repeats them for several heads, before that."""
    match op.given[name]:
        case TorchCall(torch.reshape, (TorchCall(aten.expand.default) as repeated, shape)):
            found = as_view(repeated, op.shapes)
            if found and len(found[1].shape) == 5 and found[1].strides[2] == 0:
                value, whole = found
                images, keys, heads, *sides = whole.shape
                if tuple(shape) == (images, keys * heads, *sides):
                    return value, View(_without(whole.shape), _without(whole.strides), whole.offset)
    return _view(op, name)


def _without(sides: Shape) -> Shape:
    return (*sides[:2], *sides[3:])


def _numbers(op: AtenCall, name: str) -> str:
    """Return the value that holds the bits of int64 numbers."""
    argument = op.given[name]
    if not isinstance(argument, TorchCall):
        raise NotCovered(f"its {name} is a constant")
    source = argument
    while source.function in RESHAPES and isinstance(source.args[0], TorchCall):
        source = source.args[0]
    if source.function is from_float_bits and source.args[1] is torch.int64:
        return str(source.args[0].name)
    if _node(op, argument).meta["val"].dtype not in (torch.int64, torch.int32):
        raise NotCovered(f"its {name} holds other numbers than int32 or int64")
    bits = TorchCall(int64_bits, (argument,), {}, f"{argument.name}:int64", is_value=True)
    return _in_torch(op, bits, (2 * math.prod(_shape(op, argument)),))


def _shape(op: AtenCall, part: Read | TorchCall) -> Shape:
    """Return the shape of a value, or of what a call returns."""
    if isinstance(part, Read):
        return op.shapes[part.name]
    return fixed_shape(_node(op, part))


def _node(op: AtenCall, call: TorchCall) -> fx.Node:
    found: fx.Node = next(node for node in op.node.graph.nodes if node.name == call.name)
    return found


def _in_torch(op: AtenCall, call: TorchCall, shape: Shape) -> str:
    """Add a step that torch computes, unless another call has added it."""
    if call.name not in op.shapes:
        why = "it computes with int64"
        op.add_step(InTorch(name="", sources=call.sources, target=call.name, function=call, why=why), shape)
    return call.name


def int64_bits(numbers: Tensor) -> Tensor:
    return to_float_bits(numbers.long())


def scores(mask: Tensor) -> Tensor:
    """Return what a mask adds to the scores."""
    if mask.dtype is not torch.bool:
        return mask
    zero = torch.zeros((), dtype=torch.float32, device=mask.device)
    return torch.where(mask, zero, -math.inf)


def _mask(op: AtenCall, mask: Any, shape: Shape) -> tuple[str, View]:
    sides = _shape(op, mask)
    name = _in_torch(op, TorchCall(scores, (mask,), {}, f"{mask.name}:scores", is_value=True), sides)
    found = as_view(
        TorchCall(torch.Tensor.expand, (Read(name), shape), {}, name, is_value=True), {name: sides}
    )
    assert found is not None
    if shape[3] > 1 and found[1].strides[3] != 1:
        raise NotCovered("its mask is the same for all places")
    return found


def _is_causal(mask: Tensor, rows: int, places: int) -> bool:
    """Return whether a constant mask lets rows see the places up to their own; if not, it lets them see all."""
    added = scores(mask.detach())
    if not added.any():
        return False
    added = added.expand(*added.shape[:-2], rows, places)
    if not torch.equal(added, torch.full_like(added, -math.inf).triu(1)):
        raise NotCovered("its mask is a constant that is neither causal nor all the same")
    return True


def _until(op: AtenCall, mask: Any, images: int, rows: int, places: int) -> tuple[str, View] | None:
    """Return the numbers of the last places that rows see, if that is what the mask says: place <= number."""
    while isinstance(mask, TorchCall) and mask.function in (RESHAPES | COPIES | {aten.expand.default}):
        if _shape(op, mask)[-2:] != (rows, places):
            return None
        mask = mask.args[0]
    if not isinstance(mask, TorchCall) or mask.function not in INSIDE:
        return None
    place, last = (mask.args[which] for which in INSIDE[mask.function])
    if not isinstance(place, Tensor) or not isinstance(last, TorchCall) or place.numel() != places:
        return None
    if not torch.equal(place.reshape(-1), torch.arange(places)) or place.shape[-1:] != (places,):
        return None
    sides = _shape(op, last)
    is_row = len(sides) >= 2 and sides[-2:] == (rows, 1) and math.prod(sides) == rows  # one number per row
    if not is_row and math.prod(sides) != 1:
        return None
    op.given["until"] = last
    return _numbers(op, "until"), View((images, rows), (0, 1 if is_row else 0))
