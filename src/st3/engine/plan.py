"""The structures of c/plan.h, field by field."""

from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_uint32, c_void_p
from typing import Any

from .program import Function


def fields(*lines: tuple[Any, str]) -> list[tuple[str, Any]]:
    """Return ctypes fields from pairs of a type and a line of names."""
    return [(name, kind) for kind, names in lines for name in names.split()]


class Item(Structure):
    _fields_ = fields((c_uint32, "offset"), (c_float, "weight"))


class Tile(Structure):
    _fields_ = fields((c_int32, "in_ out residual mask kernel"))


class Block(Structure):
    _fields_ = fields((c_int64, "items bundle"), (c_int32, "bundles first last base"))


class Epilogue(Structure):
    _fields_ = fields(
        (c_void_p, "residual"),
        (c_int64, "residual_image residual_plane residual_row"),
        (c_void_p, "mask"),
        (c_float, "low high"),
        (c_int64, "function"),
    )


class Sparse(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out bias"),
        (Epilogue, "epilogue"),
        (c_void_p, "items outputs lengths blocks groups tiles"),
        (c_int64, "in_image out_image out_plane in_row out_row mask_row in_column lowest_offset"),
        (c_int32, "group_count tile_count images tile_major"),
    )


class Dense(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out bias"),
        (Epilogue, "epilogue"),
        (c_void_p, "weights starts taps blocks bounds tiles"),
        (c_int64, "in_image out_image out_plane in_row out_row mask_row in_column"),
        (c_int32, "block_count group_count tile_count images tile_major"),
    )


class Span(Structure):
    _fields_ = fields((c_int32, "lane kernel is_last"))


class Lanewise(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out bias"),
        (Epilogue, "epilogue"),
        (c_void_p, "weights starts taps bounds tiles spans"),
        (c_int64, "in_image out_image out_plane lane_row"),
        (c_int32, "tap_count group_count tile_count images"),
    )


class Depthwise(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out bias"),
        (Epilogue, "epilogue"),
        (c_void_p, "weights tiles"),
        (c_int64, "in_image in_plane out_image out_plane in_row out_row mask_row first_tap"),
        (c_int32, "channels channels_per_task tile_count"),
    )


class Border(Structure):
    _fields_ = fields(
        (c_void_p, "field entries shuffles"),
        (c_int64, "plane"),
        (c_int32, "entry_count"),
    )


class Move(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out index squares"),
        (c_int64, "in_image in_plane out_image out_plane vectors last_lanes index_image in_part out_part"),
        (c_float, "fill"),
        (c_int32, "in_slot out_slot parts planes planes_per_task"),
    )


class Transpose(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out"),
        (c_int64, "plane"),
        (c_int32, "in_slot out_slot rows columns width to_rows"),
    )


class Window(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out taps scale mask"),
        (c_int64, "in_plane out_plane in_row in_column out_row"),
        (c_int32, "tap_count height width"),
    )


class Average(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out"),
        (c_int64, "in_image in_plane in_row"),
        (c_float, "scale"),
        (c_int32, "image_lanes channels height width"),
    )


class Combine(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out scale shift"),
        (Epilogue, "epilogue"),
        (c_int64, "in_image in_plane in_row out_image out_plane out_row"),
        (c_int32, "channels height width"),
    )


class Rows(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out residual bias weights index order starts"),
        (c_float, "low high"),
        (c_int64, "function"),
        (c_int32, "vectors inputs outputs slices slices_per_task in_slot out_slot"),
    )


class Chain(Structure):
    _fields_ = fields(
        (c_void_p, "sparse dense lanewise border move next depthwise window bounds"),
        (c_int64, "middle plane origin moved moved_plane moved_origin"),
        (c_int32, "group_count images"),
    )


class Tilewise(Structure):
    _fields_ = fields((c_void_p, "first second"))


class Pair(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out other"),
        (Epilogue, "epilogue"),
        (c_int64, "in_image in_plane in_row out_image out_plane out_row other_image other_plane other_row"),
        (c_int32, "other_slot image_lanes is_product channels height width"),
    )


class Norm(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out scale shift mask"),
        (c_int64, "in_image in_plane in_row out_image out_plane out_row"),
        (c_float, "eps"),
        (c_int32, "is_centred channels height width"),
    )


class GroupNorm(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out scale shift mask"),
        (c_int64, "in_image in_plane in_row out_image out_plane out_row"),
        (c_float, "eps part"),
        (c_int32, "channels height width groups image_lanes"),
    )


class Rowwise(Structure):
    _fields_ = fields(
        (c_void_p, "in_ out other scale shift"),
        (c_int64, "in_row other_row function"),
        (c_float, "eps low high"),
        (c_int32, "in_slot out_slot other_slot is_norm is_centred is_product columns"),
    )


class Step(Structure):
    _fields_ = fields((c_int32, "kind tasks"), (c_void_p, "arguments"))


KINDS: dict[type[Structure], int] = {
    kind: number
    for number, kind in enumerate(
        (
            Sparse,
            Dense,
            Border,
            Move,
            Transpose,
            Window,
            Average,
            Combine,
            Rows,
            Chain,
            Tilewise,
            Depthwise,
            Lanewise,
            Pair,
            Norm,
            GroupNorm,
            Rowwise,
        )
    )
}
# In the order of the enumeration in plan.h; other activations are clamps.
FUNCTIONS = (
    None,
    Function.GELU,
    Function.GELU_TANH,
    Function.SILU,
    Function.HARDSWISH,
    Function.HARDSIGMOID,
    Function.SIGMOID,
    Function.TANH,
    Function.LEAKY_RELU,
    Function.ELU,
)


class KernelTable(Structure):
    _fields_ = fields(
        (c_char_p, "name"),
        (c_int32, "lanes variant_count"),
        (POINTER(c_int32), "variants"),
        (c_void_p * len(KINDS), "run"),
    )


ALL: tuple[type[Structure], ...] = (
    Item,
    Tile,
    Span,
    Block,
    Epilogue,
    *KINDS,
    Step,
    KernelTable,
)  # in the order of `st3_size`
