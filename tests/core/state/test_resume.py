"""Model and optimizer are the whole state: a resumed run equals one that was never interrupted."""

import copy
import io
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.tiny import (
    STEPS,
    TinyNet,
    adam,
    assert_same,
    batch,
    footprint,
    raw_weights,
    sgd,
    sparse_names,
    sparsify,
    train,
    zeros,
    zeros_asked,
)
from torch import nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

import st3

pytestmark = pytest.mark.filterwarnings(
    "ignore::st3.errors.LayerCollapseWarning"
)  # tiny layers lose filters easily

ORDERS = [", ".join(order) for order in itertools.permutations(["model", "optimizer", "sparsify"])]
LIGHTNINGS_ORDER = "model, sparsify, optimizer"
METHODS = {
    "ST-3": {},
    "not straight-through": {"method": st3.methods.ST3(straight_through=False)},
    "hard": {"method": st3.methods.ST3(soft=False, rescale=False)},
    "sigma": {"allocation": "sigma"},
    "Feather at 0.98": {"method": "feather", "sparsity": 0.98},  # above 0.95: gradients are damped
    "constant ramp": {"ramp": "constant"},
}
Checkpoint = dict[str, Any]
Make = Callable[..., Optimizer]


def plain_sgd(parameters: Any) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def through_a_file(*states: Any) -> list[Any]:
    """Return the states as they come back from disk, read the safe way."""
    file = io.BytesIO()
    torch.save(states, file)
    file.seek(0)
    return list(torch.load(file, weights_only=True))


def save(model: nn.Module, optimizer: Optimizer) -> Checkpoint:
    saved_model, saved_optimizer = through_a_file(model.state_dict(), optimizer.state_dict())
    return {"model": saved_model, "optimizer": saved_optimizer}


def resume(
    checkpoint: Checkpoint, order: str, make: Make = sgd, model: nn.Module | None = None, **changes: Any
) -> tuple[nn.Module, Optimizer, st3.Sparsifier]:
    """Build everything anew, as another process would, from other random weights."""
    model = TinyNet(seed=99) if model is None else model
    optimizer = make(model.parameters())
    sparsifier: st3.Sparsifier
    for action in order.split(", "):
        if action == "model":
            model.load_state_dict(checkpoint["model"])
        elif action == "optimizer":
            optimizer.load_state_dict(checkpoint["optimizer"])
        else:
            sparsifier = sparsify(model, optimizer, **changes)
    return model, optimizer, sparsifier


def start(
    make: Make = sgd, model: nn.Module | None = None, **changes: Any
) -> tuple[Any, Optimizer, st3.Sparsifier]:
    model = TinyNet() if model is None else model
    optimizer = make(model.parameters())
    return model, optimizer, sparsify(model, optimizer, **changes)


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[sgd, plain_sgd, adam], ids=["SGD", "SGD without momentum", "Adam"])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


# ---------------------------------------------------------------- bit for bit


def test_a_run_resumed_in_mid_ramp_goes_on_bit_for_bit(order: str, make: Make) -> None:
    assert_resumes(order, make)


@pytest.mark.parametrize(
    "order", ["model, optimizer, sparsify", LIGHTNINGS_ORDER, "sparsify, model, optimizer"]
)
@pytest.mark.parametrize("changes", METHODS.values(), ids=METHODS)
def test_every_kind_of_equation_resumes_bit_for_bit(order: str, changes: dict[str, Any]) -> None:
    assert_resumes(order, sgd, **changes)


def assert_resumes(order: str, make: Make, **changes: Any) -> None:
    model, optimizer, _ = start(make, **changes)
    train(model, optimizer, 4)
    checkpoint = save(model, optimizer)
    losses = train(model, optimizer, range(4, STEPS))

    other, its_optimizer, sparsifier = resume(checkpoint, order, make, **changes)
    assert sparsifier.step == 4
    assert train(other, its_optimizer, range(4, STEPS)) == losses
    assert_same(footprint(other, its_optimizer), footprint(model, optimizer))
    assert sparsifier.at_target


def test_a_resumed_model_is_what_was_saved_before_any_step(order: str, make: Make) -> None:
    model, optimizer, _ = start(make)
    train(model, optimizer, 4)
    checkpoint = save(model, optimizer)
    other, its_optimizer, _ = resume(checkpoint, order, make)
    assert_same(other.state_dict(), model.state_dict())
    assert_same(raw_weights(other, its_optimizer), raw_weights(model, optimizer))


def test_saving_and_looking_disturb_nothing(make: Make) -> None:
    model, optimizer, sparsifier = start(make)
    other, its_optimizer, _ = start(make)
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        save(model, optimizer)
        copy.deepcopy((model, optimizer))
        str(sparsifier)
    train(other, its_optimizer, STEPS)
    assert_same(footprint(model, optimizer), footprint(other, its_optimizer))


def test_a_checkpoint_from_before_the_first_step_resumes(order: str, make: Make) -> None:
    model, optimizer, _ = start(make)
    checkpoint = save(model, optimizer)
    losses = train(model, optimizer, STEPS)
    other, its_optimizer, sparsifier = resume(checkpoint, order, make)
    assert sparsifier.step == 0
    assert_same(other.state_dict(), checkpoint["model"])
    assert train(other, its_optimizer, STEPS) == losses
    assert_same(footprint(other, its_optimizer), footprint(model, optimizer))


def test_a_frozen_run_resumes_frozen(order: str, make: Make) -> None:
    model, optimizer, sparsifier = start(make)
    train(model, optimizer, 7)
    sparsifier.freeze()
    train(model, optimizer, range(7, 9))
    checkpoint = save(model, optimizer)
    losses = train(model, optimizer, range(9, STEPS))

    other, its_optimizer, resumed = resume(checkpoint, order, make)
    assert resumed.is_frozen
    assert train(other, its_optimizer, range(9, STEPS)) == losses
    assert_same(other.state_dict(), model.state_dict())
    assert_same(
        {n: other.get_parameter(n) == 0 for n in sparse_names(other)}, zero_places(checkpoint["model"])
    )
    resumed.finalize()


def zero_places(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor == 0 for name, tensor in state.items() if tensor.dim() > 1}


def test_a_run_frozen_just_before_it_was_saved_resumes_frozen(order: str) -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 7)
    sparsifier.freeze()
    checkpoint = save(model, optimizer)
    train(model, optimizer, range(7, STEPS))
    other, its_optimizer, resumed = resume(checkpoint, order)
    train(other, its_optimizer, range(7, STEPS))
    assert resumed.is_frozen
    assert_same(other.state_dict(), model.state_dict())


@pytest.mark.parametrize(
    "order", ["model, optimizer, sparsify", LIGHTNINGS_ORDER, "sparsify, model, optimizer"]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(
    "method",
    [st3.methods.ST3(), st3.methods.ST3(soft=False), st3.methods.Feather()],
    ids=["soft", "hard", "Feather"],
)
def test_every_precision_resumes_bit_for_bit(
    order: str, dtype: torch.dtype, method: st3.methods.ST3 | st3.methods.Feather
) -> None:
    model, optimizer, _ = start(model=TinyNet().to(dtype), method=method)
    train(model, optimizer, 3)  # where weights are tied at the threshold in bfloat16
    checkpoint = save(model, optimizer)
    losses = train(model, optimizer, range(3, STEPS))
    other, its_optimizer, _ = resume(checkpoint, order, model=TinyNet(seed=99).to(dtype), method=method)
    assert train(other, its_optimizer, range(3, STEPS)) == losses
    assert_same(footprint(other, its_optimizer), footprint(model, optimizer))


def test_a_layer_that_had_no_gradient_yet_comes_back_from_the_model(order: str, make: Make) -> None:
    class WithSpare(TinyNet):
        def __init__(self, seed: int = 0) -> None:
            super().__init__(seed)
            torch.manual_seed(seed)
            self.spare = nn.Linear(5, 5)

    model, optimizer, _ = start(make, WithSpare())
    train(model, optimizer, 4)
    checkpoint = save(model, optimizer)
    other, _, _ = resume(checkpoint, order, make, WithSpare(seed=99))
    assert_same(other.state_dict(), checkpoint["model"])


def test_a_checkpoint_saved_after_a_step_was_interrupted_resumes(order: str) -> None:
    # Ctrl-C in the middle of a step, then save what there is: what every training script does.
    class Interrupted(torch.optim.Optimizer):
        interrupt = False

        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            if self.interrupt:
                raise KeyboardInterrupt
            for parameter in self.param_groups[0]["params"]:
                buffer = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                parameter.sub_(buffer.mul_(0.9).add_(parameter.grad), alpha=0.05)

    model, optimizer, _ = start(Interrupted)
    train(model, optimizer, 4)
    expected = raw_weights(model, optimizer), zeros(model)
    optimizer.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        train(model, optimizer, range(4, 5))
    checkpoint = save(model, optimizer)

    other, its_optimizer, sparsifier = resume(checkpoint, order, Interrupted)
    assert sparsifier.report().zeros == expected[1]
    assert_same(raw_weights(other, its_optimizer), expected[0])
    train(other, its_optimizer, range(4, STEPS))
    sparsifier.finalize()


# ---------------------------------------------------------------- within one process


def test_going_back_to_an_earlier_checkpoint_repeats_the_run(order: str) -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 4)
    checkpoint = save(model, optimizer)
    losses = train(model, optimizer, range(4, STEPS))
    expected = footprint(model, optimizer)
    for action in order.replace(", sparsify", "").replace("sparsify, ", "").split(", "):
        (model if action == "model" else optimizer).load_state_dict(checkpoint[action])
    assert sparsifier.step == 4
    assert train(model, optimizer, range(4, STEPS)) == losses
    assert_same(footprint(model, optimizer), expected)


@pytest.mark.parametrize("first", ["model", "optimizer"])
@pytest.mark.parametrize("frozen", [False, True])
def test_going_back_to_a_checkpoint_from_before_the_first_step_repeats_the_run(
    first: str, frozen: bool
) -> None:
    model, optimizer, sparsifier = start()
    checkpoint = save(model, optimizer)
    losses = train(model, optimizer, STEPS)
    if frozen:
        sparsifier.freeze()
    if first == "model":
        model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    if first == "optimizer":
        model.load_state_dict(checkpoint["model"])
    assert sparsifier.step == 0
    assert not sparsifier.is_frozen
    assert train(model, optimizer, STEPS) == losses


def test_a_frozen_run_thaws_when_it_goes_back_to_a_checkpoint_from_before_freezing() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 4)
    checkpoint = save(model, optimizer)
    losses = train(model, optimizer, range(4, STEPS))
    sparsifier.freeze()
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert not sparsifier.is_frozen
    assert train(model, optimizer, range(4, STEPS)) == losses


def test_a_copy_of_model_and_optimizer_is_resumed_by_sparsifying_it(make: Make) -> None:
    model, optimizer, sparsifier = start(make)
    train(model, optimizer, 4)
    twin, its_optimizer = copy.deepcopy((model, optimizer))
    resumed = sparsify(twin, its_optimizer)
    assert resumed.step == 4
    losses = train(model, optimizer, range(4, STEPS))
    assert train(twin, its_optimizer, range(4, STEPS)) == losses
    assert_same(footprint(twin, its_optimizer), footprint(model, optimizer))
    assert sparsifier.finalize() is model
    assert resumed.finalize() is twin


def test_a_pickled_optimizer_is_resumed_by_sparsifying_it(make: Make) -> None:
    model, optimizer, _ = start(make)
    train(model, optimizer, 4)
    twin, its_optimizer = pickle.loads(pickle.dumps((model, optimizer)))
    sparsify(twin, its_optimizer)
    losses = train(model, optimizer, range(4, STEPS))
    assert train(twin, its_optimizer, range(4, STEPS)) == losses


@pytest.mark.parametrize(
    "method", [st3.methods.ST3(), st3.methods.ST3(straight_through=False)], ids=["straight", "not straight"]
)
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"]
)
def test_a_duplicate_of_the_model_in_mid_training_is_sparse_and_plain(
    method: st3.methods.ST3, duplicate: Callable[[nn.Module], nn.Module]
) -> None:
    model, optimizer, _ = start(method=method)
    train(model, optimizer, 4)
    twin = duplicate(model)
    assert type(twin) is TinyNet
    assert zeros(twin) == zeros(model) > 0
    assert_same(twin.state_dict(), model.state_dict())
    plain = TinyNet()
    assert list(twin.state_dict()) == list(plain.state_dict())
    assert footprint(twin)["hooks"] == footprint(plain)["hooks"]
    plain.load_state_dict(model.state_dict())
    for one in (twin, plain):
        F.cross_entropy(one(batch(4)[0]), batch(4)[1]).backward()
    assert_same([p.grad for p in twin.parameters()], [p.grad for p in plain.parameters()])


# ---------------------------------------------------------------- copies of the sparsifier


DUPLICATES = {"copy": copy.deepcopy, "pickle": lambda thing: pickle.loads(pickle.dumps(thing))}
every_duplicate = pytest.mark.parametrize("duplicate", DUPLICATES.values(), ids=DUPLICATES)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_sparsifier_at_work_is_neither_copied_nor_pickled(duplicate: Callable[[Any], Any]) -> None:
    model, optimizer, sparsifier = start()
    for _ in range(2):
        with pytest.raises(TypeError) as error:
            duplicate(sparsifier)
        assert str(error.value) == (
            "a sparsifier at work cannot be copied or pickled: copy model and optimizer together and call sparsify on "
            "the copies, or save model.state_dict() and optimizer.state_dict(), which hold everything"
        )
        train(model, optimizer, 1)  # neither before nor after a step, and no step is disturbed by it
    assert sparsifier.step == 2


@every_duplicate
@pytest.mark.parametrize("method", ["st3", "gmp", "sr_ste", "probmask"])
def test_a_finalized_sparsifier_is_copied_and_pickled_with_its_model_and_optimizer(
    duplicate: Callable[[Any], Any], method: str
) -> None:
    changes = {"method": method, "ramp": None, **({"sparsity": None} if method == "sr_ste" else {})}
    model, optimizer, sparsifier = start(**changes)
    train(model, optimizer, STEPS)
    sparsifier.finalize()
    held = {"model": model, "optimizer": optimizer, "sparsifier": sparsifier}
    twin = duplicate(held)
    copied = twin["sparsifier"]
    assert copied.model is twin["model"]
    assert_same(twin["model"].state_dict(), model.state_dict())
    assert {id(layer.parameter) for layer in copied.layers} <= {id(p) for p in twin["model"].parameters()}
    assert copied.is_finalized
    assert copied.at_target
    assert copied.step == STEPS
    assert copied.finalize() is twin["model"]
    assert repr(copied) == repr(sparsifier)
    assert str(copied.report()) == str(sparsifier.report())
    with pytest.raises(RuntimeError, match="cannot freeze: this sparsifier is finalized"):
        copied.freeze()
    duplicate(copied)  # again and again
    with torch.no_grad():
        twin["model"].head.weight.zero_()
    assert (model.head.weight != 0).any()  # the copy has weights of its own


@every_duplicate
def test_the_copy_of_a_detached_sparsifier_is_detached(duplicate: Callable[[Any], Any]) -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 3)
    sparsifier.detach()
    copied = duplicate(sparsifier)
    assert not copied.is_attached
    assert not copied.at_target
    assert copied.step == 3


def test_a_finalized_sparsifier_may_be_an_attribute_of_what_is_averaged() -> None:
    """AveragedModel, skorch and others copy the module with everything that hangs on it."""
    model, optimizer, sparsifier = start()
    model.sparsifier = sparsifier
    train(model, optimizer, STEPS)
    sparsifier.finalize()
    average = AveragedModel(model)
    assert average.module.sparsifier.model is average.module
    assert_same(average.module.state_dict(), model.state_dict())
    assert average.module.sparsifier.apply_to(average) == zeros_asked(model) / 1456


def test_an_optimizer_whose_sparsifier_was_copied_still_refuses_to_fill_the_zeros() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, STEPS)
    sparsifier.finalize()
    copy.deepcopy(sparsifier)
    with pytest.raises(RuntimeError, match="would fill its zeros"):
        train(model, optimizer, 1)


# ---------------------------------------------------------------- several optimizers


@pytest.mark.parametrize("steps", [0, 4])
def test_several_optimizers_resume(order: str, steps: int) -> None:
    def build(seed: int) -> tuple[TinyNet, list[Optimizer]]:
        model = TinyNet(seed)
        body = [p for name, p in model.named_parameters() if not name.startswith("head")]
        return model, [sgd(body), adam(model.head.parameters())]

    def go_on(model: TinyNet, optimizers: list[Optimizer], steps: range) -> None:
        for number in steps:
            pictures, classes = batch(number)
            F.cross_entropy(model(pictures), classes).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    model, optimizers = build(0)
    sparsify(model, optimizers)
    go_on(model, optimizers, range(steps))
    saved_model, *saved = through_a_file(model.state_dict(), *(o.state_dict() for o in optimizers))
    go_on(model, optimizers, range(steps, STEPS))

    other, its_optimizers = build(99)
    for action in order.split(", "):
        if action == "model":
            other.load_state_dict(saved_model)
        elif action == "optimizer":
            for optimizer, state in zip(its_optimizers, saved, strict=True):
                optimizer.load_state_dict(state)
        else:
            sparsify(other, its_optimizers)
    go_on(other, its_optimizers, range(steps, STEPS))
    assert_same(footprint(other, *its_optimizers), footprint(model, *optimizers))


# ---------------------------------------------------------------- checkpoints that do not fit


def assert_untouched_by(
    load: Callable[[], Any], model: nn.Module, optimizer: Optimizer, message: str
) -> None:
    before = footprint(model, optimizer)
    with pytest.raises(st3.errors.CheckpointError, match=message):
        load()
    assert_same(footprint(model, optimizer), before)


@pytest.mark.parametrize("steps", [0, 4])
def test_an_optimizer_state_saved_without_st3_is_refused(make: Make, steps: int) -> None:
    plain = TinyNet()
    plain_optimizer = make(plain.parameters())
    train(plain, plain_optimizer, steps)
    model, optimizer, _ = start(make)
    assert_untouched_by(
        lambda: optimizer.load_state_dict(plain_optimizer.state_dict()),
        model,
        optimizer,
        r"saved without st3, or after finalize\(\); load its model weights alone, or load all of it before",
    )
    train(model, optimizer, 1)


@pytest.mark.parametrize("steps", [0, 4], ids=["before the first gradient", "in mid-ramp"])
@pytest.mark.parametrize("order", ["model, sparsify, optimizer", "model, optimizer, sparsify"])
def test_a_checkpoint_whose_keys_have_no_prefix_is_refused(order: str, steps: int) -> None:
    model, optimizer, _ = start()
    train(model, optimizer, steps)
    checkpoint = save(model, optimizer)
    saved = checkpoint["optimizer"]
    waiting = [
        tensors for group in saved["param_groups"] for tensors in group.get("st3_waiting", {}).values()
    ]
    for tensors in [*saved["state"].values(), *waiting]:
        if "st3_raw" in tensors:
            tensors["raw"] = tensors.pop("st3_raw")
    with pytest.raises(st3.errors.CheckpointError) as error:
        resume(checkpoint, order)
    assert str(error.value) == (
        "the optimizer state keeps layer 'conv.weight' under 'raw', as earlier versions of st3 did, and this one reads "
        "'st3_raw': finish the run with the version that began it"
    )


def test_a_dense_checkpoint_is_loaded_before_sparsifying() -> None:
    plain = TinyNet()
    plain_optimizer = sgd(plain.parameters())
    train(plain, plain_optimizer, 4)
    model, optimizer, sparsifier = resume(save(plain, plain_optimizer), "model, optimizer, sparsify")
    assert sparsifier.step == 0
    assert_same(model.state_dict(), plain.state_dict())
    train(model, optimizer, STEPS)
    sparsifier.finalize()


def test_a_checkpoint_with_other_layers_sparsified_is_refused_and_the_layer_named() -> None:
    model, optimizer, _ = start(exclude="deep")
    train(model, optimizer, 4)
    checkpoint = save(model, optimizer)
    other, its_optimizer, _ = start()
    assert_untouched_by(
        lambda: its_optimizer.load_state_dict(checkpoint["optimizer"]),
        other,
        its_optimizer,
        r"no raw weight for layer 'deep\.weight'.*use the same include and exclude",
    )


class WiderNet(TinyNet):
    """The same names, other shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.Conv2d(8, 24, 3, padding=1)
        self.head = nn.Linear(24, 10)


ANOTHER_MODEL = (
    r"layer 'deep\.weight' has shape \(16, 8, 3, 3\), the model's is \(24, 8, 3, 3\).*another model"
)


def test_a_checkpoint_of_another_model_is_refused_with_both_shapes(make: Make) -> None:
    model, optimizer, _ = start(make)
    train(model, optimizer, 4)
    checkpoint = save(model, optimizer)
    other, its_optimizer, _ = start(make, WiderNet())
    assert_untouched_by(
        lambda: its_optimizer.load_state_dict(checkpoint["optimizer"]), other, its_optimizer, ANOTHER_MODEL
    )
    train(other, its_optimizer, 1)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_checkpoint_of_another_model_loaded_before_sparsifying_is_refused(make: Make, steps: int) -> None:
    model, optimizer, _ = start(make)
    train(model, optimizer, steps)
    other = WiderNet()
    its_optimizer = make(other.parameters())
    its_optimizer.load_state_dict(save(model, optimizer)["optimizer"])
    assert_untouched_by(lambda: sparsify(other, its_optimizer), other, its_optimizer, ANOTHER_MODEL)


NO_RAW_WEIGHTS = (
    "80% of the weights are exactly zero already, and the optimizer holds no raw weights: a sparse checkpoint seems to "
    "have come without its optimizer, or to have been saved after finalize(); load optimizer.state_dict() too, use "
    "st3.keep_mask to fine-tune with the zeros fixed, or pass from_sparse=True to go on from these weights"
)


def sparse_model_alone() -> tuple[nn.Module, Optimizer, Checkpoint]:
    """Return a model full of zeros with a new optimizer, and the checkpoint that it came from."""
    model, optimizer, _ = start()
    train(model, optimizer, STEPS)
    checkpoint = save(model, optimizer)
    other = TinyNet(seed=99)
    other.load_state_dict(checkpoint["model"])
    return other, sgd(other.parameters()), checkpoint


def test_a_sparse_model_without_its_optimizer_is_refused_by_every_step_and_by_finalize() -> None:
    model, optimizer, checkpoint = sparse_model_alone()
    sparsifier = sparsify(model, optimizer)
    assert_same(model.state_dict(), checkpoint["model"])
    F.cross_entropy(model(batch(0)[0]), batch(0)[1]).backward()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for call in (optimizer.step, optimizer.step, sparsifier.finalize):
        with pytest.raises(ValueError) as error:
            call()
        assert str(error.value) == NO_RAW_WEIGHTS
    assert_same({name: p.detach() for name, p in model.named_parameters()}, before)
    assert sparsifier.step == 0
    assert not optimizer.state


def test_a_sparse_model_loaded_after_sparsifying_without_its_optimizer_is_refused_likewise() -> None:
    sparse, _, checkpoint = sparse_model_alone()
    model = TinyNet(seed=99)
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    model.load_state_dict(sparse.state_dict())
    for _ in range(2):
        with pytest.raises(ValueError) as error:
            train(model, optimizer, 1)
        assert str(error.value) == NO_RAW_WEIGHTS
    optimizer.load_state_dict(checkpoint["optimizer"])
    train(model, optimizer, range(STEPS, STEPS + 1))
    assert sparsifier.step == STEPS + 1


@pytest.mark.parametrize("how", ["from_sparse", "adopt"])
def test_a_sparse_model_loaded_after_sparsifying_may_go_on_when_asked_to(how: str) -> None:
    sparse, _, _ = sparse_model_alone()
    model = TinyNet(seed=99)
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer, from_sparse=how == "from_sparse")
    model.load_state_dict(sparse.state_dict())
    if how == "adopt":
        sparsifier.adopt()
    train(model, optimizer, STEPS)
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_raw_weights_that_come_after_a_refused_step_are_taken() -> None:
    model, optimizer, checkpoint = sparse_model_alone()
    sparsifier = sparsify(model, optimizer)
    with pytest.raises(ValueError, match="the optimizer holds no raw weights"):
        optimizer.step()
    optimizer.load_state_dict(checkpoint["optimizer"])
    train(model, optimizer, range(STEPS, STEPS + 1))
    assert sparsifier.step == STEPS + 1
    sparsifier.finalize()


def test_adopt_takes_the_zeros_for_raw_weights() -> None:
    model, optimizer, _ = sparse_model_alone()
    sparsifier = sparsify(model, optimizer)
    sparsifier.adopt()
    train(model, optimizer, STEPS)
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_a_sparse_model_may_go_on_as_raw_weights_when_asked_to() -> None:
    model, optimizer, _ = start()
    train(model, optimizer, STEPS)
    other = TinyNet(seed=99)
    other.load_state_dict(model.state_dict())
    fresh = sgd(other.parameters())
    sparsifier = sparsify(other, fresh, from_sparse=True)
    assert_same(other.state_dict(), model.state_dict())
    train(other, fresh, 1)
    # The zeros are raw weights like the others: they get gradients and may return.
    raws = raw_weights(other, fresh).values()
    assert sum(int((raw == 0).sum()) for raw in raws) < zeros(model) / 2
    train(other, fresh, range(1, STEPS))
    assert zeros(sparsifier.finalize()) == zeros_asked(other)


def test_layers_that_start_at_zero_do_not_look_like_a_sparse_checkpoint() -> None:
    model = TinyNet()
    nn.init.zeros_(
        model.deep.weight
    )  # as the last layer of a residual branch often does; 79 % of all weights
    optimizer = sgd(model.parameters())
    sparsify(model, optimizer)
