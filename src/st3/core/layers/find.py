"""Which parameters are sparsified, and why the others are not.

A layer here is one weight tensor with its name. Weights that are linear maps are covered (`kinds.py` knows which);
embeddings and recurrent weights only where `include` names them, biases and norms never. Everything is visible:
`Layers` prints what is covered and, for every other weight, the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from ..errors import name_some
from .kinds import filters_of, inputs_of, why_embedding, why_unusual
from .layer import Layer, Layers, Skipped
from .patterns import (
    FIRST,
    LAST,
    USUAL,
    Pattern,
    Patterns,
    as_patterns,
    describe,
    matches,
    means_itself,
    nearest_names,
)
from .places import Place, named_weights, placed_weights, unwrap
from .shards import refuse_fsdp1, shards_of

__all__ = ["find_layers", "layers", "named_weights", "unwrap"]

SHOWN = 8  # reasons in an error message
NORM = "a bias or norm"


def layers(model: nn.Module, *, include: Patterns | None = None, exclude: Patterns = ()) -> Layers:
    """Show which weights `st3.sparsify` would cover with these arguments, and why it would leave out the others.

    Print the result, or iterate over it: it holds one entry per covered weight, and the others in `skipped`.

    include  names, globs, compiled regular expressions, types, or functions (name, module) -> bool. Alone it restricts:
             nothing else is covered. st3.USUAL stands for what is covered without it, so [st3.USUAL, nn.LSTM] adds to
             that. The name of a weight or of its module, and a type, also bring in weights that are not covered by
             default; the name of a module above means the usual weights below it.
    exclude  what to leave out, likewise; also st3.FIRST and st3.LAST, the first and the last covered layer.

    >>> import st3
    >>> model = nn.ModuleDict({"lstm": nn.LSTM(8, 16, bias=False), "norm": nn.LayerNorm(16), "head": nn.Linear(16, 4)})
    >>> st3.layers(model)
    layer              kind    shape  weights
    head.weight        Linear  4x16        64  sparsified
    lstm.weight_ih_l0  LSTM    64x8       512  skipped: LSTM is not covered by default (include its name or type)
    lstm.weight_hh_l0  LSTM    64x16    1,024  skipped: LSTM is not covered by default (include its name or type)
    1 layer with 64 weights sparsified
    >>> st3.layers(model, include=[st3.USUAL, "lstm.weight_hh_l0"], exclude=st3.LAST)
    layer              kind    shape  weights
    lstm.weight_hh_l0  LSTM    64x16    1,024  sparsified
    lstm.weight_ih_l0  LSTM    64x8       512  skipped: LSTM is not covered by default (include its name or type)
    head.weight        Linear  4x16        64  skipped: excluded: the last layer
    1 layer with 1,024 weights sparsified
    """
    return _choose(model, include, exclude, {}, trained_only=True)


def find_layers(
    model: nn.Module,
    *,
    include: Patterns | None = None,
    exclude: Patterns = (),
    layer_sparsity: Mapping[str, float] | None = None,
    trained_only: bool = True,
) -> Layers:
    """Return the layers of `model` to sparsify, chosen as `layers` says; raise if there is none.

    `layer_sparsity` gives single layers a sparsity of their own, outside the budget that the others share. Not
    `trained_only`, for reports: frozen weights are covered as well, and it is no error if there is no layer.

    >>> print(find_layers(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), exclude="2"))
    layer     kind    shape  weights
    0.weight  Linear  8x4         32  sparsified
    2.weight  Linear  2x8         16  skipped: excluded by '2'
    1 layer with 32 weights sparsified
    """
    found = _choose(model, include, exclude, dict(layer_sparsity or {}), trained_only=trained_only)
    if not found and trained_only:
        raise LookupError(_nothing(found.skipped))
    return found


@dataclass(frozen=True)
class _Candidate:
    """One parameter, where it stands, and the patterns that match it."""

    parameter: nn.Parameter
    places: Sequence[Place]
    hits: Sequence[Pattern]

    def first_of(self, names: Iterable[str]) -> str | None:
        """Return the first of the names that matches the weight."""
        return next((name for name in names if name in self.hits), None)

    def is_named_by(self, pattern: Pattern) -> bool:
        """Whether a pattern of `include` brings the weight in, whatever it is."""
        names = [name for place in self.places for name in (*place.names, place.path)]
        return pattern in self.hits and means_itself(pattern, names)


def _choose(
    model: nn.Module,
    include: Patterns | None,
    exclude: Patterns,
    own: Mapping[str, float],
    *,
    trained_only: bool,
) -> Layers:
    wanted, unwanted = as_patterns(include, "include"), as_patterns(exclude, "exclude")
    if include is not None and not wanted:
        raise ValueError("include is empty, which leaves no layer: drop it to cover all layers")
    refuse_fsdp1(model)
    patterns = [p for p in (*wanted, *unwanted, *own) if p not in (FIRST, LAST, USUAL)]
    candidates = [
        _Candidate(parameter, places, [p for p in patterns if _matches_any(p, places)])
        for parameter, places in placed_weights(model)
    ]
    if unused := [p for p in patterns if not any(p in candidate.hits for candidate in candidates)]:
        raise LookupError(_describe_unmatched(unused, [place.name for c in candidates for place in c.places]))

    covered: list[tuple[_Candidate, Layer]] = []
    skipped: list[Skipped] = []
    for candidate in candidates:
        left_out = _why_not(candidate, wanted, unwanted, trained_only=trained_only)
        if left_out is None:
            covered.append((candidate, _as_layer(candidate, own)))
        elif left_out.reason != NORM:  # not worth a line each
            skipped.append(left_out)
    for position, index in ((FIRST, 0), (LAST, -1)):
        if position in unwanted and covered:
            _, layer = covered.pop(index)
            skipped.append(Skipped(layer.name, layer.shape, f"excluded: the {position}", layer.kind))

    remaining = [candidate for candidate, _ in covered]
    for key in own:
        if not any(key in candidate.hits for candidate in remaining):
            raise LookupError(f"layer_sparsity names {key!r}, but no layer that is sparsified matches it")
        if not any(key == candidate.first_of(own) for candidate in remaining):
            raise ValueError(
                f"layer_sparsity[{key!r}] has no effect: names before it match the same layers; put it first"
            )
    for pattern in wanted:
        if pattern != USUAL and not any(pattern in candidate.hits for candidate in remaining):
            meant = {candidate.places[0].name for candidate in candidates if pattern in candidate.hits}
            raise LookupError(_describe_skipped(pattern, [s for s in skipped if s.name in meant]))
    return Layers([layer for _, layer in covered], skipped)


def _matches_any(pattern: Pattern, places: Sequence[Place]) -> bool:
    return any(matches(pattern, name, place.module) for place in places for name in place.names)


def _why_not(
    candidate: _Candidate, wanted: Sequence[Pattern], unwanted: Sequence[Pattern], *, trained_only: bool
) -> Skipped | None:
    """Return the entry of a weight that is left out, None for one that is covered.

    What the weight is comes before whether it is trained: a look at a frozen model finds the same layers.
    """
    parameter, place = candidate.parameter, candidate.places[0]
    is_lazy = isinstance(parameter, nn.UninitializedParameter)

    def skip(reason: str, *, is_gap: bool = False) -> Skipped:
        shape = () if is_lazy else tuple(parameter.shape)
        return Skipped(place.name, shape, reason, type(place.module).__name__, is_gap)

    if is_lazy:
        return skip("not initialised yet: run one batch through the model first")
    if parameter.dim() < 2:
        return skip(NORM)
    if place.is_magnitude:
        return skip("the magnitudes of weight_norm, one per filter")
    if "bias" in place.key.split("_"):
        return skip("a bias")
    if excluding := next((p for p in unwanted if p in candidate.hits), None):
        return skip(f"excluded by {describe(excluding)}")
    if not parameter.is_floating_point():
        return skip(f"holds {parameter.dtype}")
    if wanted and USUAL not in wanted and not any(p in candidate.hits for p in wanted):
        return skip("not included")
    if not any(candidate.is_named_by(p) for p in wanted):
        if reason := why_embedding(candidate.places):
            return skip(reason)
        if reason := why_unusual(parameter, place):
            return skip(reason, is_gap=parameter.requires_grad)
    if trained_only and not parameter.requires_grad:
        return skip("does not require a gradient")
    return None


def _as_layer(candidate: _Candidate, own: Mapping[str, float]) -> Layer:
    parameter, place = candidate.parameter, candidate.places[0]
    filters = filters_of(parameter, place)
    shards = shards_of(parameter, filters.axes, place.name)
    if shards.counts and filters.groups > 1:
        raise ValueError(
            f"layer {place.name!r} is a transposed convolution in {filters.groups} groups, which sharding cuts apart: "
            f"exclude it, or give it to fully_shard as one of its ignored_params"
        )
    decides = candidate.first_of(own)
    fixed = None if decides is None else own[decides]
    kind, inputs = type(place.module).__name__, inputs_of(parameter, place)
    return Layer(place.name, parameter, kind, filters, shards, fixed, inputs, place.is_direction)


def _describe_unmatched(patterns: Sequence[Pattern], names: Sequence[str]) -> str:
    parts = []
    for pattern in patterns:
        near = nearest_names(pattern, names)
        told = f"near misses: {', '.join(near)}" if near else f"it has {name_some(names)}"
        parts.append(f"{describe(pattern)} ({told})")
    return f"no weight of the model matches {'; '.join(parts)}"


def _describe_skipped(pattern: Pattern, skipped: Sequence[Skipped]) -> str:
    reasons = [f"{s.name}: {s.reason}" for s in skipped[:3]] or ["biases and norms never are"]
    return f"include names {describe(pattern)}, but nothing of it can be sparsified ({'; '.join(reasons)})"


def _nothing(skipped: Sequence[Skipped]) -> str:
    seen = (
        "; ".join(f"{s.name} ({s.reason})" for s in skipped[:SHOWN])
        or "the model has no weight of two or more axes"
    )
    more = f" and {len(skipped) - SHOWN} more" if len(skipped) > SHOWN else ""
    return f"no layer is left to sparsify: {seen}{more}"
