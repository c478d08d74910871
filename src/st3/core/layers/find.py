"""Which parameters are sparsified, and why the others are not.

A layer here is one weight tensor with its name. Convolutions, linear layers and attention projections are covered;
biases, norms and embeddings never by default. Everything is visible: `Layers` prints what is covered and, for every
other weight, the reason.
"""

from collections.abc import Iterator, Mapping, Sequence

from torch import nn

from .filters import Filters
from .layer import Layer, Layers, Skipped
from .patterns import FIRST, LAST, Pattern, Patterns, as_patterns, describe, matches, nearest_names
from .shards import shards_of

__all__ = ["find_layers", "named_weights", "unwrap"]

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_PLAIN = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.Bilinear)
FROZEN = "does not require a gradient"
_ATTENTION = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


def find_layers(
    model: nn.Module,
    *,
    include: Patterns | None = None,
    exclude: Patterns = (),
    layer_sparsity: Mapping[str, float] | None = None,
    trained_only: bool = True,
) -> Layers:
    """Return the layers of `model` to sparsify.

    `include` restricts them (a layer type also brings in weights that are left out by default, as nn.Embedding);
    `exclude` leaves layers out, also by position (`st3.FIRST`, `st3.LAST`);
    `layer_sparsity` gives single layers a sparsity of their own, outside the budget that the others share. Not
    `trained_only`: weights that require no gradient as well, and no complaint if there is none, for looking on.

    >>> print(find_layers(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), exclude="2"))
    layer     kind    shape  weights
    0.weight  Linear  8x4         32  sparsified
    2.weight  Linear  2x8         16  skipped: excluded by '2'
    1 layer with 32 weights sparsified
    """
    wanted = as_patterns(include, "include")
    if include is not None and not wanted:
        raise ValueError("include is empty, which leaves no layer: drop it to cover all layers")
    own = dict(layer_sparsity or {})
    unwanted = as_patterns(exclude, "exclude")
    weights = list(_placed_weights(model))
    unused: list[Pattern] = [*wanted, *(p for p in unwanted if p not in (FIRST, LAST)), *own]

    covered: list[Layer] = []
    skipped: list[Skipped] = []
    for parameter, places in weights:
        name, module = places[0]
        patterns = (*wanted, *unwanted, *own)
        hits = [p for p in patterns if any(matches(p, alias, holder) for alias, holder in places)]
        unused = [p for p in unused if p not in hits]
        reason = _why_not(parameter, places, wanted, hits)
        if reason == FROZEN and not trained_only:
            reason = None
        reason = reason or next((f"excluded by {describe(p)}" for p in unwanted if p in hits), None)
        if reason:
            if isinstance(parameter, nn.UninitializedParameter) or parameter.dim() > 1:
                skipped.append(Skipped(name, _shape(parameter), reason, type(module).__name__))
            continue
        filters = _filters(module)
        shards = shards_of(parameter, filters.axis, name)
        if shards.counts and filters.groups > 1:
            raise ValueError(
                f"layer {name!r} is a transposed convolution in {filters.groups} groups, which sharding cuts apart: "
                f"exclude it, or give it to fully_shard as one of its ignored_params"
            )
        fixed = next((own[p] for p in own if p in hits), None)
        kind = type(module).__name__
        covered.append(Layer(name, parameter, kind, filters, shards, fixed, _inputs(module)))

    if unused:
        raise LookupError(_unmatched(unused, [name for _, places in weights for name, _ in places]))
    for position, index in ((FIRST, 0), (LAST, -1)):
        if position in unwanted and covered:
            layer = covered.pop(index)
            skipped.append(Skipped(layer.name, layer.shape, f"excluded: the {position}", layer.kind))
    remaining = {id(layer.parameter) for layer in covered}
    named = [place for parameter, places in weights if id(parameter) in remaining for place in places]
    for key in own:
        if not any(matches(key, name, module) for name, module in named):
            raise LookupError(f"layer_sparsity names {key!r}, but no layer that is sparsified matches it")
    for pattern in wanted:
        if not any(matches(pattern, name, module) for name, module in named):
            raise LookupError(_only_skipped(pattern, weights, skipped))
    if not covered and trained_only:
        raise LookupError(_nothing(skipped))
    return Layers(covered, skipped)


def named_weights(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield every parameter once, under its first name in the user's model."""
    for parameter, places in _placed_weights(model):
        yield places[0][0], parameter


def _placed_weights(model: nn.Module) -> Iterator[tuple[nn.Parameter, list[tuple[str, nn.Module]]]]:
    """Yield every parameter once, with all its names and the modules that hold it: more than one where it is tied."""
    found: dict[int, tuple[nn.Parameter, list[tuple[str, nn.Module]]]] = {}
    for prefix, module in unwrap(model).named_modules(remove_duplicate=False):
        for key, parameter in module._parameters.items():
            if parameter is not None:
                name = f"{prefix}.{key}" if prefix else key
                found.setdefault(id(parameter), (parameter, []))[1].append(
                    (name.replace("_orig_mod.", ""), module)
                )
    yield from found.values()


def unwrap(model: nn.Module) -> nn.Module:
    """Return the user's model inside DistributedDataParallel, DataParallel, an averaged or a compiled one."""
    wrappers = ("DistributedDataParallel", "DataParallel", "AveragedModel")
    while True:
        if type(model).__name__ in wrappers and isinstance(getattr(model, "module", None), nn.Module):
            model = model.module  # type: ignore[assignment]
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def _why_not(
    parameter: nn.Parameter,
    places: Sequence[tuple[str, nn.Module]],
    wanted: Sequence[Pattern],
    hits: Sequence[Pattern],
) -> str | None:
    """Return why a weight is not even a candidate, or None if it is one."""
    if isinstance(parameter, nn.UninitializedParameter):
        return "not initialised yet: run one batch through the model first"
    if parameter.dim() < 2:
        return "a bias or norm"
    if not parameter.requires_grad:
        return FROZEN
    if not parameter.is_floating_point():
        return f"holds {parameter.dtype}"
    if not any(isinstance(p, type) and p in hits for p in wanted):  # asked for by type: whatever it is
        if any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for _, module in places):
            return "an embedding" if len(places) == 1 else "tied to an embedding"
        name, module = places[0]
        if not _is_supported(module, name):
            return f"{type(module).__name__} is not covered by default (include its type to cover it)"
    if wanted and not any(p in hits for p in wanted):
        return "not included"
    return None


def _is_supported(module: nn.Module, name: str) -> bool:
    own_name = name.rpartition(".")[2]
    if isinstance(module, nn.MultiheadAttention):
        return own_name in _ATTENTION
    return own_name == "weight" and (
        isinstance(module, _PLAIN + _TRANSPOSED) or _is_hugging_face_conv1d(module)
    )


def _is_hugging_face_conv1d(module: nn.Module) -> bool:
    # Known by name, so that transformers need not be imported: a linear layer whose weight is (inputs, outputs).
    weight = module._parameters.get("weight")
    return (
        any(cls.__name__ == "Conv1D" for cls in type(module).__mro__)  # fully_shard makes an FSDPConv1D of it
        and hasattr(module, "nf")
        and weight is not None
        and weight.dim() == 2
    )


def _filters(module: nn.Module) -> Filters:
    if isinstance(module, _TRANSPOSED):
        return Filters(axis=1, groups=module.groups)
    if _is_hugging_face_conv1d(module):
        return Filters(axis=1)
    return Filters()


def _inputs(module: nn.Module) -> int | None:
    if isinstance(module, _TRANSPOSED) or _is_hugging_face_conv1d(module):
        return 0
    if isinstance(module, nn.Bilinear):
        return None  # every output has two of them
    return 1 if isinstance(module, (*_PLAIN, nn.MultiheadAttention)) else None


def _shape(parameter: nn.Parameter) -> tuple[int, ...]:
    return () if isinstance(parameter, nn.UninitializedParameter) else tuple(parameter.shape)


def _unmatched(patterns: Sequence[Pattern], names: Sequence[str]) -> str:
    parts = []
    for pattern in patterns:
        near = nearest_names(pattern, names)
        parts.append(describe(pattern) + (f" (near misses: {', '.join(near)})" if near else ""))
    return f"no weight of the model matches {'; '.join(parts)}"


def _only_skipped(
    pattern: Pattern,
    weights: Sequence[tuple[nn.Parameter, Sequence[tuple[str, nn.Module]]]],
    skipped: Sequence[Skipped],
) -> str:
    meant = {places[0][0] for _, places in weights if any(matches(pattern, n, m) for n, m in places)}
    reasons = [f"{s.name}: {s.reason}" for s in skipped if s.name in meant][:3] or [
        "biases and norms never are"
    ]
    return f"include names {describe(pattern)}, but nothing of it can be sparsified ({'; '.join(reasons)})"


def _nothing(skipped: Sequence[Skipped]) -> str:
    seen = (
        "; ".join(f"{s.name} ({s.reason})" for s in skipped[:8])
        or "the model has no weight of two or more axes"
    )
    more = f" and {len(skipped) - 8} more" if len(skipped) > 8 else ""
    return f"no layer is left to sparsify: {seen}{more}"
