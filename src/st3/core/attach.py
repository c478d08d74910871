"""`sparsify` and `keep_mask`: check everything, all faults at once, then attach."""

import weakref
from collections.abc import Mapping, Sequence

from torch import nn
from torch.optim import Optimizer

from .allocations import ALLOCATIONS, Allocation
from .choices import (
    check_count,
    check_sparsity,
    contradictions,
    resolve_allocation,
    resolve_method,
    resolve_sparsity,
)
from .conductor import Conductor
from .errors import Faults
from .exchange import Exchange
from .groups import fit_groups
from .inspection import CollapseWatch, count_all, require_numbers
from .layers import Layers, find_layers
from .learned_choices import check_learnable, check_no_target, check_search
from .method import FixedMask, GroupMethod, MaskMethod, Method
from .optimizers import hookable, owners_of, some
from .patterns import Patterns
from .plan import Plan
from .ramps import Constant, Ramp, check_ramp, resolve_ramp, step_of
from .shards import all_reduce, local, reshard
from .sparsifier import Sparsifier
from .store import check_state
from .variables import check_learned

__all__ = ["keep_mask", "sparsify"]

MOST_ZEROS = 0.2  # more exact zeros than this in layers that are not all zero: somebody made them

_attached: "weakref.WeakSet[Sparsifier]" = weakref.WeakSet()


def sparsify(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    sparsity: float | None = None,
    total_steps: int | None = None,
    start: float | None = None,
    end: float | None = None,
    method: str | Method = "st3",
    allocation: str | Allocation | None = None,
    include: Patterns | None = None,
    exclude: Patterns = (),
    ramp: str | Ramp | None = None,
    keep_dense: Patterns = (),
    layer_sparsity: Mapping[str, float] | None = None,
    min_weights: int = 0,
    from_sparse: bool = False,
) -> Sparsifier:
    """Make `model` sparse while `optimizer` trains it; the training loop stays as it is.

    sparsity        fraction of zeros over the sparsified layers at the end, 0 to 1; a method that implies it, such as
                    st3.SRSTE(n=2, m=4), needs none, and STR finds its own
    total_steps     calls of optimizer.step in the whole run (with gradient accumulation, fewer than batches)
    start, end      where the ramp begins and ends: a fraction of the run (float) or a step (int); None: what is usual
                    for the method (5/160 and 0.5 for ST-3)
    method          a name ("st3", "gmp", "rigl", ...) or an object such as st3.ST3(rescale=False); what goes with it
                    and what does not: docs/methods.md
    allocation      "global", "sigma", "uniform", "erk", "lamp", or an object such as st3.Sigma("fan_in"); None: what is
                    usual for the method ("global" for ST-3)
    include         restricts the layers: names, globs, regular expressions, types, predicates
    exclude         leaves layers out, likewise
    ramp            "cubic", "linear", "constant", "phases", or a function of the step; None: what is usual for the
                    method ("cubic" for ST-3; those that are sparse from the first step take "constant", from step 0)
    keep_dense      as exclude; also st3.FIRST and st3.LAST, the first and the last layer
    layer_sparsity  a sparsity of its own for single layers (by name or glob), outside the common budget
    min_weights     weights that every layer keeps at the least
    from_sparse     take weights that are already full of zeros for the raw weights

    Call it after wrapping the model (DistributedDataParallel, fully_shard) and building the optimizer. To resume, load
    model and optimizer before or after this call with the same arguments: their state is the whole state.

    >>> import torch
    >>> model = nn.Linear(100, 10)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> sparsifier = sparsify(model, optimizer, sparsity=0.9, total_steps=20)
    >>> for _ in range(20):
    ...     model(torch.randn(8, 100)).square().mean().backward()
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    >>> int((sparsifier.finalize().weight == 0).sum())
    900
    """
    _check_model(model)
    faults = Faults()
    the_method = faults.check(resolve_method, method)
    if the_method is not None and not the_method.has_target:
        ways = {"start": start, "end": end, "ramp": ramp, "allocation": allocation}
        floors = {"layer_sparsity": layer_sparsity, "min_weights": min_weights or None}
        faults.check(check_no_target, the_method, sparsity=sparsity, **ways, **floors)
        sparsity, total_steps, start, end = 0.0, total_steps or 1, None, None
        ramp, allocation, layer_sparsity, min_weights = "constant", None, None, 0
    target = faults.check(resolve_sparsity, sparsity, the_method)
    if not isinstance(layer_sparsity, Mapping | None):
        faults.found.append(
            TypeError(f"layer_sparsity takes a dict of names and sparsities, got {layer_sparsity!r}")
        )
        layer_sparsity = None
    for name, own in (layer_sparsity or {}).items():
        faults.check(check_sparsity, own, f"layer_sparsity[{name!r}]", ramped=target != 0)
    faults.check(check_count, total_steps, "total_steps", least=1)
    faults.check(check_count, min_weights, "min_weights", least=0)
    steps = total_steps if not faults.found else 1
    kind = Method if the_method is None else type(the_method)
    first = faults.check(step_of, kind.usual_start if start is None else start, steps, "start")
    last = faults.check(step_of, kind.usual_end if end is None else end, steps, "end")
    if the_method is not None and not faults.found:
        found = contradictions(
            the_method,
            sparsity=sparsity,
            allocation=allocation,
            ramp=ramp,
            has_times=start is not None or end is not None,
            has_floor=min_weights > 0,
            has_own_layers=bool(layer_sparsity),
        )
        faults.found += [ValueError(fault) for fault in found]
    if the_method is not None:
        if the_method.only_ramps == ("constant",) or (ramp is None and the_method.usual_ramp == "constant"):
            first = 0  # sparse from before the first step
        if ramp is None or ramp == the_method.usual_ramp:
            ramp = (None if faults.found else the_method.own_ramp(target, steps)) or the_method.usual_ramp
        allocation = the_method.usual_allocation if allocation is None else allocation
    ramp, allocation = ramp or "cubic", allocation or "global"
    if faults.found:
        faults.check(check_ramp, ramp)
    else:
        ramp = faults.check(
            resolve_ramp, ramp, sparsity=target, start=first, end=last, total_steps=total_steps
        )
        if not faults.found:
            faults.check(check_search, the_method, ramp, target, total_steps)
    the_allocation = faults.check(resolve_allocation, allocation)
    optimizers = faults.check(hookable, optimizer)
    reshard(model)
    layers = faults.check(
        find_layers,
        model,
        include=include,
        exclude=exclude,
        keep_dense=keep_dense,
        layer_sparsity=layer_sparsity,
    )
    if isinstance(the_method, GroupMethod) and layers is not None:
        layers = faults.check(fit_groups, layers, the_method)
    faults.raise_all()
    plan = Plan(
        target,
        ramp,  # type: ignore[arg-type]
        the_allocation,
        int(min_weights),
        int(total_steps),  # type: ignore[arg-type]
        the_method.has_target,
    )
    return _attach(model, layers, optimizers, the_method, plan, from_sparse=from_sparse)


def keep_mask(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    include: Patterns | None = None,
    exclude: Patterns = (),
) -> Sparsifier:
    """Fine-tune an already sparse model without reviving a zero: masks are what is non-zero now.

    Momentum, weight decay and any optimizer notwithstanding. Layers without a zero are covered as well and stay as they
    are, dense.

    >>> import torch
    >>> model = nn.Linear(4, 1, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[0.0, 1.0, 0.0, 2.0]]))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    >>> sparsifier = keep_mask(model, optimizer)
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> optimizer.step()
    >>> model.weight.data
    tensor([[0.0000, 0.8900, 0.0000, 1.8800]])
    """
    _check_model(model)
    reshard(model)
    optimizers = hookable(optimizer)
    layers = find_layers(model, include=include, exclude=exclude)
    owners_of(layers, optimizers)
    zeros = sum(found.zeros for found in count_all(list(layers)).values())
    if zeros == 0:
        raise ValueError("keep_mask found no zero in the layers of the model: load the sparse weights first")
    weights = sum(layer.weights for layer in layers)
    # The quota of this sparsity is the zeros that are there: finalize counts against them.
    found = (zeros - 1) / max(1, weights - 1)
    plan = Plan(found, Constant(found), ALLOCATIONS["global"]())
    return _attach(model, layers, optimizers, FixedMask(), plan, from_sparse=True)


def _attach(
    model: nn.Module,
    layers: Layers,
    optimizers: list[Optimizer],
    method: Method,
    plan: Plan,
    *,
    from_sparse: bool,
) -> Sparsifier:
    owners = owners_of(layers, optimizers)
    mine = {id(layer.parameter) for layer in layers}
    relieved = []
    for other in list(_attached):
        shared = [layer.name for layer in other.layers if id(layer.parameter) in mine]
        if other.is_finalized and shared:
            relieved.append(other)
        elif shared and other.is_attached:
            raise ValueError(
                f"there is a sparsifier for {some(shared)} already: detach() or finalize() it first"
            )
        elif other.is_attached and any(o in other.optimizers for o in optimizers):
            raise ValueError(
                "the optimizer already has a sparsifier, for other layers: cover all of them in one call "
                "(layer_sparsity gives single layers a target of their own), or detach() the first"
            )
    require_numbers(list(layers), [local(layer.parameter.detach()) for layer in layers], "before training")
    if not check_state(layers, owners) and not from_sparse:
        _refuse_orphans(layers)

    _refuse_sharded_growth(layers, method)
    check_learnable(method, list(layers), optimizers)
    if method.keeps != "mask":
        for layer in layers:
            check_learned(layer, owners[layer.name].state.get(layer.parameter, {}), method.learns)
    if method.keeps != "mask":
        plan.require_feasible(list(layers), [local(layer.parameter.detach()) for layer in layers])

    watch = CollapseWatch(plan.allocation, has_target=plan.has_target)
    for other in relieved:
        other.detach()  # that is, its guard: from here on it is said what is meant
    exchange = Exchange(layers, owners, method, plan)
    exchange.begin(anew=from_sparse)
    conductor = Conductor(exchange, model)
    conductor.attach()
    sparsifier = Sparsifier(model, layers, conductor, watch)
    _attached.add(sparsifier)
    return sparsifier


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"the first argument must be the model, an nn.Module, got {type(model).__name__}")


def _refuse_sharded_growth(layers: Layers, method: Method) -> None:
    if isinstance(method, MaskMethod) and method.grows and any(layer.shards.counts for layer in layers):
        raise ValueError(
            f"{type(method).__name__} exchanges weights within a layer, which must be whole for that: train it with "
            f"DistributedDataParallel instead of fully_shard"
        )


def _zero_share(layers: Layers) -> tuple[int, int]:
    """Return zeros and weights over the layers that are not all zero (those were initialised so)."""
    zeros = weights = 0
    for layer in layers:
        found = int(all_reduce((local(layer.parameter.detach()) == 0).sum(), layer.shards.counts))
        if found < layer.weights:
            zeros, weights = zeros + found, weights + layer.weights
    return zeros, weights


def _refuse_orphans(layers: Layers) -> None:
    zeros, weights = _zero_share(layers)
    if weights and zeros > MOST_ZEROS * weights:
        raise ValueError(
            f"{zeros / weights:.0%} of the weights are exactly zero, and the optimizer holds no raw weights: a sparse "
            f"checkpoint seems to have come without its optimizer; load optimizer.state_dict() too, use st3.keep_mask "
            f"to fine-tune with the zeros fixed, or pass from_sparse=True to go on from these weights"
        )
