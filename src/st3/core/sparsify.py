"""`sparsify` and `keep_mask`: check everything, all faults at once, then attach."""

import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence

from torch import nn
from torch.optim import Optimizer

from .budget.allocation import ALLOCATIONS, Allocation, resolve_allocation
from .budget.plan import Plan
from .budget.ramp import RAMPS, Ramp, resolve_ramp
from .choices import (
    check_count,
    check_flag,
    check_layer_sparsity,
    check_no_target,
    check_plan,
    find_contradictions,
    require_shared_budget,
    resolve_block,
    resolve_method,
    resolve_sparsity,
)
from .counting import CollapseWatch, count_all, require_numbers
from .errors import CoverageWarning, Faults, LayerCollapseWarning, PrecisionWarning, name_some
from .families.blocks import block_magnitudes
from .families.fixed_mask import FixedMask
from .layers.coverage import describe_gaps, describe_half_precision, describe_weight_norm
from .layers.find import find_layers
from .layers.groups import divide_into_blocks
from .layers.layer import Layer, Layers
from .layers.patterns import Patterns
from .layers.shards import reshard
from .method import Method
from .optimizers import check_optimizers, find_owners, refuse_averaging
from .sparsifier import Sparsifier
from .state.checks import check_learned, check_state
from .state.store import RAW, Store
from .step.conductor import Conductor

__all__ = ["keep_mask", "sparsify"]

MOST_ZEROS = 0.2  # more exact zeros than this in layers that are not all zero: somebody made them

_attached: "weakref.WeakSet[Sparsifier]" = weakref.WeakSet()


def sparsify(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    sparsity: float | None = None,
    total_steps: int | None = None,
    method: str | Method = "st3",
    ramp: str | Ramp | Callable[[float], float] | None = None,
    allocation: str | Allocation | None = None,
    block: int = 1,
    include: Patterns | None = None,
    exclude: Patterns = (),
    layer_sparsity: Mapping[str, float] | None = None,
    min_weights: int = 0,
    from_sparse: bool = False,
) -> Sparsifier:
    """Make `model` sparse while `optimizer` trains it; the training loop stays as it is.

    sparsity        fraction of zeros over the sparsified layers at the end, 0 to 1; a method that implies it, such as
                    st3.methods.SRSTE(n=2, m=4), needs none, and STR finds its own
    total_steps     calls of optimizer.step in the whole run (with gradient accumulation, fewer than batches)
    method          a name ("st3", "gmp", "rigl", ...) or an object such as st3.methods.ST3(rescale=False)
    ramp            how the sparsity rises: a name ("cubic", "linear", "constant", "phases"), an object such as
                    st3.ramps.Cubic(start=0.1, end=0.5), whose times are fractions of the run, or a function from the
                    progress of the run to the part of the target, both 0 to 1; None: what is usual for the method
                    (for ST-3 cubic, from 5/160 to 0.5 of the run)
    allocation      how sparsity is shared among the layers: "global", "sigma", "uniform", "erk", "lamp", or an object
                    such as st3.allocations.Sigma("fan_in"); None: what is usual for the method ("global" for ST-3)
    block           zero so many neighbouring input channels together, for each output and kernel place; the target is
                    rounded up to whole blocks, and layers that cannot be divided into them stay dense
    include         which layers: names, globs, regular expressions, types, predicates; st3.USUAL means those that are
                    covered without it. `st3.layers(model, ...)` shows what would be covered
    exclude         leaves layers out, likewise; also st3.FIRST and st3.LAST, the first and the last layer
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
    faults.check(check_flag, from_sparse, "from_sparse")
    has_target = the_method is None or the_method.has_target
    if not has_target:
        floors = {"layer_sparsity": layer_sparsity, "min_weights": min_weights or None}
        floors["block"] = None if block == 1 else block
        faults.check(
            check_no_target, the_method, sparsity=sparsity, ramp=ramp, allocation=allocation, **floors
        )
        sparsity, total_steps = 0.0, 1 if total_steps is None else total_steps
        ramp, allocation, block, layer_sparsity, min_weights = "constant", None, 1, None, 0
    target = faults.check(resolve_sparsity, sparsity, the_method)
    faults.check(check_layer_sparsity, layer_sparsity, target)
    meaning = "the number of optimizer.step calls in the whole run, such as epochs * len(loader)"
    faults.check(check_count, total_steps, "total_steps", least=1, meaning=meaning)
    faults.check(
        check_count, min_weights, "min_weights", least=0, meaning="the weights that every layer keeps"
    )
    the_block = faults.check(resolve_block, block)
    if the_method is not None and not faults.found:
        found = find_contradictions(
            the_method,
            sparsity=sparsity,
            allocation=allocation,
            ramp=ramp,
            block=the_block,
            has_floor=min_weights > 0,
            has_own_layers=bool(layer_sparsity),
        )
        faults.found += [ValueError(fault) for fault in found]
    the_ramp = faults.check(_choose_ramp, ramp, the_method)
    usual = "global" if the_method is None else the_method.usual_allocation
    the_allocation = faults.check(resolve_allocation, usual if allocation is None else allocation)
    optimizers = faults.check(check_optimizers, optimizer)
    faults.check(refuse_averaging, model)
    reshard(model)
    layers = faults.check(
        find_layers,
        model,
        include=include,
        exclude=exclude,
        layer_sparsity=layer_sparsity if isinstance(layer_sparsity, Mapping) else None,
    )
    if layers is not None and the_block is not None:
        layers = faults.check(divide_into_blocks, layers, the_block)
    if the_method is not None and layers is not None:
        layers = faults.check(the_method.family.fit, the_method, layers)
    if layers is not None:
        faults.check(require_shared_budget, layers, sparsity)
    if layers is not None and optimizers is not None:
        faults.check(find_owners, layers, optimizers)
    faults.raise_all()
    assert total_steps is not None

    if gaps := describe_gaps(layers):
        warnings.warn(gaps, CoverageWarning, stacklevel=2)
    if risk := describe_weight_norm(layers):
        warnings.warn(risk, LayerCollapseWarning, stacklevel=2)
    rounds = any(getattr(each, "bf16_stochastic_round", False) for each in optimizers)  # torchao's optimizers
    if the_method.family.key == RAW and not rounds and (loss := describe_half_precision(layers)):
        warnings.warn(loss, PrecisionWarning, stacklevel=2)
    plan = Plan(target, the_ramp, the_allocation, min_weights, int(total_steps), has_target)
    if has_target:
        check_plan(plan, the_method)
    return _attach(model, layers, optimizers, the_method, plan, from_sparse=from_sparse)


def _choose_ramp(ramp: str | Ramp | Callable[[float], float] | None, method: Method | None) -> Ramp:
    """Return the ramp that is asked for or, by its name or for want of one, that of the method."""
    if method is None:
        return resolve_ramp("cubic" if ramp is None else ramp)
    if (ramp is None or ramp == method.usual_ramp) and method.own_ramp is not None:
        return method.own_ramp
    return resolve_ramp(method.usual_ramp if ramp is None else ramp, method.usual_times)


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
    optimizers = check_optimizers(optimizer)
    refuse_averaging(model)
    layers = find_layers(model, include=include, exclude=exclude)
    find_owners(layers, optimizers)
    counts = count_all(list(layers))
    zeros = sum(found.zeros for found in counts.values())
    if zeros == 0:
        raise ValueError("keep_mask found no zero in the layers of the model: load the sparse weights first")
    if empty := [layer.name for layer in layers if counts[layer.name].zeros == layer.numel]:
        warnings.warn(
            f"{name_some(empty)} are all zeros, which keep_mask will keep, so these layers never train: exclude layers "
            f"that only begin at zero, such as LoRA's ('*lora_B*')",
            LayerCollapseWarning,
            stacklevel=2,
        )
    numel = sum(layer.numel for layer in layers)
    # The quota of this sparsity is the zeros that are there: finalize counts against them.
    found = (zeros - 1) / max(1, numel - 1)
    plan = Plan(found, RAMPS["constant"](), ALLOCATIONS["global"]())
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
    store = Store(layers, find_owners(layers, optimizers))
    relieved = _find_relieved(layers, optimizers)
    weights = [layer.weight for layer in layers]
    require_numbers(list(layers), weights, "before training")
    refusal = None
    if not check_state(store) and not from_sparse:
        refusal = _find_orphans(layers)
    method.family.check(method, list(layers), optimizers, plan)
    if not method.family.is_fixed:
        for layer in layers:
            check_learned(layer, store.held(layer), method.learns)
        plan.require_feasible(list(layers), [block_magnitudes(layer.weight, layer) for layer in layers])

    for other in relieved:
        other.detach()  # removes its guard; the new sparsifier takes over
    conductor = Conductor(model, list(layers), store, method, plan)
    conductor.begin(anew=from_sparse)
    conductor.refusal = refusal
    conductor.find_orphans = None if from_sparse else _find_orphans
    sparsifier = Sparsifier(
        model, layers, conductor, CollapseWatch(plan.allocation, has_target=plan.has_target)
    )
    _attached.add(sparsifier)
    return sparsifier


def _find_relieved(layers: Layers, optimizers: list[Optimizer]) -> list[Sparsifier]:
    """Return the finalized sparsifiers of these layers; raise if one is still at work on them or their optimizers."""
    mine = {id(layer.parameter) for layer in layers}
    relieved = []
    for other in list(_attached):
        shared = [layer.name for layer in other.layers if id(layer.parameter) in mine]
        if other.is_finalized and shared:
            relieved.append(other)
        elif shared and other.is_attached:
            raise ValueError(
                f"there is a sparsifier for {name_some(shared)} already: detach() or finalize() it first"
            )
        elif other.is_attached and any(o in other.optimizers for o in optimizers):
            raise ValueError(
                "the optimizer already has a sparsifier, for other layers: cover all of them in one call "
                "(layer_sparsity gives single layers a target of their own), or detach() the first"
            )
    return relieved


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"the first argument must be the model, an nn.Module, got {type(model).__name__}")


def _find_orphans(layers: Sequence[Layer]) -> ValueError | None:
    """Return the error to raise at the next step if raw weights are not loaded by then; None if there are few zeros.

    Layers that are all zero were initialised so and do not count.
    """
    counts = count_all(list(layers))
    some = [layer for layer in layers if counts[layer.name].zeros < layer.numel]
    zeros, numel = sum(counts[layer.name].zeros for layer in some), sum(layer.numel for layer in some)
    if zeros <= MOST_ZEROS * numel:
        return None
    return ValueError(
        f"{zeros / numel:.0%} of the weights are exactly zero already, and the optimizer holds no raw weights: a "
        f"sparse checkpoint seems to have come without its optimizer, or to have been saved after finalize(); load "
        f"optimizer.state_dict() too, use st3.keep_mask to fine-tune with the zeros fixed, or pass from_sparse=True "
        f"to go on from these weights"
    )
