"""One optimizer step: gradients are taken at the sparse weights and move the raw ones, whoever takes the step."""

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.tiny import (
    SPARSITY,
    STEPS,
    TinyNet,
    adam,
    assert_same,
    batch,
    raw_weights,
    sgd,
    sparse_names,
    sparsify,
    train,
    zeros,
    zeros_asked,
)
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

import st3
from st3.core.operators import BOUND, MASS_EPSILON

pytestmark = pytest.mark.filterwarnings(
    "ignore::st3.errors.LayerCollapseWarning"
)  # tiny layers lose filters easily

SOFT_ONLY = st3.methods.ST3(rescale=False)  # sparse weights that can be worked out by hand
NOT_STRAIGHT = st3.methods.ST3(straight_through=False)


# ---------------------------------------------------------------- a step by hand


def by_hand(**changes: Any) -> tuple[nn.Linear, Optimizer, st3.Sparsifier]:
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, -0.4, 0.1, 0.3]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {"sparsity": 0.5, "total_steps": 1, "ramp": "constant", "method": SOFT_ONLY}
    return model, optimizer, st3.sparsify(model, optimizer, **{**settings, **changes})


def assert_close(found: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(found.detach().flatten(), torch.tensor(expected))


def test_the_parameter_holds_the_sparse_weight_before_the_first_step_of_a_constant_ramp() -> None:
    model, _, sparsifier = by_hand()
    # The median of 0.1, 0.3, 0.4, 0.5 is 0.35.
    assert sparsifier.thresholds == {"weight": pytest.approx(0.35)}
    assert_close(model.weight, [0.15, -0.05, 0.0, 0.0])


def test_a_step_moves_the_raw_weight_by_the_gradient_at_the_sparse_one() -> None:
    model, optimizer, _ = by_hand()
    (model(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).square() / 2).sum().backward()
    # The output is 0.15 - 0.10 = 0.05, so the gradient is 0.05 * (1, 2, 3, 4), also where the weight is zeroed.
    assert_close(model.weight.grad, [0.05, 0.1, 0.15, 0.2])
    optimizer.step()
    raw = [0.495, -0.41, 0.085, 0.28]
    threshold = (0.28 + 0.41) / 2
    assert_close(optimizer.state[model.weight]["st3_raw"], raw)
    assert_close(model.weight, [raw[0] - threshold, raw[1] + threshold, 0.0, 0.0])


def test_a_zeroed_weight_returns_when_its_raw_weight_has_grown() -> None:
    model, optimizer, _ = by_hand()
    model(torch.tensor([[5.0, 0.0, 0.0, -2.0]])).sum().backward()
    optimizer.step()
    assert_close(optimizer.state[model.weight]["st3_raw"], [0.0, -0.4, 0.1, 0.5])
    assert_close(model.weight, [0.0, -0.15, 0.0, 0.25])


def test_weight_decay_acts_on_the_raw_weight() -> None:
    model, optimizer, _ = by_hand()
    optimizer.param_groups[0]["weight_decay"] = 1.0
    model.weight.grad = torch.zeros(1, 4)
    optimizer.step()
    assert_close(optimizer.state[model.weight]["st3_raw"], [0.45, -0.36, 0.09, 0.27])


def test_without_straight_through_a_zeroed_weight_gets_no_gradient() -> None:
    model, _, _ = by_hand(method=st3.methods.ST3(rescale=False, straight_through=False))
    model(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).sum().backward()
    assert_close(model.weight.grad, [1.0, 2.0, 0.0, 0.0])


# ---------------------------------------------------------------- what holds between steps


def test_between_steps_the_parameter_is_sparse_and_the_state_holds_the_raw_weight() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    for step in range(1, STEPS + 1):
        train(model, optimizer, range(step - 1, step))
        assert sparsifier.step == step
        assert zeros(model) == zeros_asked(model, sparsifier.asked(step))
        raws = raw_weights(model, optimizer)
        assert list(raws) == sparse_names(model)
        for name, raw in raws.items():
            sparse = model.get_parameter(name)
            threshold = sparsifier.thresholds[name]
            assert (raw != 0).all()
            assert torch.equal(sparse != 0, raw.abs() > threshold)
            assert (sparse * raw >= 0).all()


def test_the_optimizer_finds_raw_weights_and_only_its_own_keys() -> None:
    seen: list[tuple[set[str], int]] = []

    class Curious(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            keys = {key for state in self.state.values() for key in state}
            seen.append((keys, zeros(model)))
            return super().step(closure)

    model = TinyNet()
    optimizer = Curious(model.parameters(), lr=0.05, momentum=0.9)
    sparsify(model, optimizer)
    train(model, optimizer, 3)
    assert seen == [(set(), 0), ({"momentum_buffer"}, 0), ({"momentum_buffer"}, 0)]


def test_parameters_stay_the_same_objects_in_the_same_memory() -> None:
    model = TinyNet()
    before = [(p, p.data_ptr()) for p in model.parameters()]
    optimizer = sgd(model.parameters())
    sparsify(model, optimizer)
    train(model, optimizer, STEPS)
    after = list(model.parameters())
    assert all(p is q and p.data_ptr() == place for (p, place), q in zip(before, after, strict=True))


def test_biases_and_norms_train_as_without_us() -> None:
    def after_one_step(sparse: bool) -> dict[str, Tensor]:
        model = TinyNet()
        optimizer = sgd(model.parameters())
        if sparse:
            sparsify(model, optimizer)  # still dense in the first forward pass
        train(model, optimizer, 1)
        return {name: p.detach().clone() for name, p in model.named_parameters() if p.dim() == 1}

    assert_same(after_one_step(sparse=True), after_one_step(sparse=False))


def test_a_weight_that_requires_no_gradient_is_left_alone() -> None:
    model = TinyNet()
    model.deep.weight.requires_grad_(False)
    before = model.deep.weight.clone()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, STEPS)
    assert [layer.name for layer in sparsifier.layers] == ["conv.weight", "head.weight"]
    assert torch.equal(model.deep.weight, before)
    sparsifier.finalize()


def test_a_tied_weight_is_sparsified_once() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    model[2].weight = model[0].weight
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    for number in range(STEPS):
        model(torch.randn(8, 16, generator=torch.Generator().manual_seed(number))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert [layer.name for layer in sparsifier.layers] == ["0.weight"]
    assert model[2].weight is model[0].weight
    assert int((model[2].weight == 0).sum()) == int(255 * SPARSITY) + 1
    sparsifier.finalize()


def test_at_sparsity_zero_training_is_plain_training() -> None:
    plain, ours = TinyNet(), TinyNet()
    plain_optimizer, optimizer = sgd(plain.parameters()), sgd(ours.parameters())
    sparsifier = sparsify(ours, optimizer, sparsity=0.0)
    assert train(ours, optimizer, STEPS) == train(plain, plain_optimizer, STEPS)
    assert_same(ours.state_dict(), plain.state_dict())
    assert sparsifier.finalize() is ours


# ---------------------------------------------------------------- every optimizer equals the textbook form


class Textbook:
    """The same training written as in the paper: the parameters are raw, the forward path is a function of them.

    Autograd derives the backward pass; the threshold is torch's quantile.
    """

    def __init__(
        self, model: nn.Module, asked: Callable[[int], float], *, straight_through: bool = True
    ) -> None:
        self.model = model
        self.asked = asked
        self.straight_through = straight_through
        self.raws = {name: model.get_parameter(name) for name in sparse_names(model)}
        self.threshold: Tensor | None = None
        self.steps = 0
        self.move_threshold()

    def move_threshold(self) -> None:
        sparsity = self.asked(self.steps)
        magnitudes = torch.cat([raw.detach().abs().flatten() for raw in self.raws.values()])
        self.threshold = magnitudes.quantile(sparsity) if sparsity else None

    def sparse(self) -> dict[str, Tensor]:
        return (
            dict(self.raws)
            if self.threshold is None
            else {n: self._sparse(raw) for n, raw in self.raws.items()}
        )

    def _sparse(self, raw: Tensor) -> Tensor:
        magnitude, axes = raw.detach().abs(), tuple(range(1, raw.dim()))
        kept = (magnitude * (magnitude > self.threshold)).mean(axes, keepdim=True)
        share = (kept + MASS_EPSILON) / (magnitude.mean(axes, keepdim=True) + MASS_EPSILON)
        sparse = raw.sign() * F.relu(raw.abs() - self.threshold) * (1 + BOUND) / (share + BOUND)
        return raw + (sparse - raw).detach() if self.straight_through else sparse

    def loss(self, pictures: Tensor, classes: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(self.model, self.sparse(), (pictures,)), classes)

    def train(self, optimizer: Optimizer, steps: int | range) -> None:
        for number in range(steps) if isinstance(steps, int) else steps:
            self.loss(*batch(number, next(iter(self.raws.values())))).backward()
            optimizer.step()
            optimizer.zero_grad()
            self.steps += 1
            self.move_threshold()

    def assert_equals(self, model: nn.Module, optimizers: list[Optimizer]) -> None:
        sparse = self.sparse()
        for name in self.raws:
            parameter = model.get_parameter(name)
            raw = next(o.state[parameter]["st3_raw"] for o in optimizers if parameter in o.state)
            torch.testing.assert_close(raw, self.raws[name].detach(), rtol=0, atol=1e-10)
            torch.testing.assert_close(parameter.detach(), sparse[name].detach(), rtol=0, atol=1e-10)
            assert torch.equal(parameter == 0, sparse[name] == 0)


def groups_of(model: TinyNet) -> list[dict[str, Any]]:
    return [
        {"params": [model.conv.weight, model.deep.weight], "weight_decay": 0.01},
        {"params": [model.head.weight], "lr": 0.2},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]


OPTIMIZERS: dict[str, Callable[[TinyNet], Optimizer]] = {
    "SGD without momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    "SGD": lambda m: sgd(m.parameters()),
    "SGD foreach": lambda m: sgd(m.parameters(), foreach=True),
    "SGD fused": lambda m: sgd(m.parameters(), fused=True),
    "SGD with dampening": lambda m: sgd(m.parameters(), dampening=0.1),
    "Nesterov": lambda m: sgd(m.parameters(), nesterov=True),
    "Nesterov foreach": lambda m: sgd(m.parameters(), nesterov=True, foreach=True),
    "Adam": lambda m: adam(m.parameters(), foreach=False),
    "Adam foreach": lambda m: adam(m.parameters(), foreach=True),
    "Adam fused": lambda m: adam(m.parameters(), fused=True),
    "Adam with L2": lambda m: adam(m.parameters(), weight_decay=0.01),
    "AdamW": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, foreach=False),
    "AdamW foreach": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, foreach=True),
    "AdamW fused amsgrad": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, fused=True, amsgrad=True),
    "RMSprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=0.01, momentum=0.5),
    "several groups": lambda m: sgd(groups_of(m)),
    "several groups of AdamW": lambda m: torch.optim.AdamW(groups_of(m), lr=0.01),
}


@pytest.fixture(params=OPTIMIZERS.values(), ids=OPTIMIZERS)
def make_optimizer(request: pytest.FixtureRequest) -> Callable[[TinyNet], Optimizer]:
    return request.param


def test_every_optimizer_equals_the_textbook_form(make_optimizer: Callable[[TinyNet], Optimizer]) -> None:
    model, reference = TinyNet().double(), TinyNet().double()
    optimizer = make_optimizer(model)
    sparsifier = sparsify(model, optimizer)
    textbook = Textbook(reference, sparsifier.asked)
    train(model, optimizer, STEPS)
    textbook.train(make_optimizer(reference), STEPS)
    textbook.assert_equals(model, [optimizer])
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


@pytest.mark.parametrize("name", ["SGD without momentum", "SGD", "Adam", "AdamW fused amsgrad"])
def test_attached_after_the_optimizers_first_steps_it_equals_the_textbook_form(name: str) -> None:
    model, reference = TinyNet().double(), TinyNet().double()
    optimizer, reference_optimizer = OPTIMIZERS[name](model), OPTIMIZERS[name](reference)
    train(model, optimizer, 2)
    train(reference, reference_optimizer, 2)
    textbook = Textbook(reference, sparsify(model, optimizer).asked)
    train(model, optimizer, range(2, STEPS + 2))
    textbook.train(reference_optimizer, range(2, STEPS + 2))
    textbook.assert_equals(model, [optimizer])


def test_the_form_without_straight_through_equals_the_textbook_form(
    make_optimizer: Callable[[TinyNet], Optimizer],
) -> None:
    model, reference = TinyNet().double(), TinyNet().double()
    optimizer = make_optimizer(model)
    textbook = Textbook(
        reference, sparsify(model, optimizer, method=NOT_STRAIGHT).asked, straight_through=False
    )
    train(model, optimizer, STEPS)
    textbook.train(make_optimizer(reference), STEPS)
    textbook.assert_equals(model, [optimizer])


# ---------------------------------------------------------------- when the raw weight joins the state


def test_raw_weights_join_the_state_with_the_first_gradient() -> None:
    # Adam refuses to load or to copy a state that lacks its own keys.
    model = TinyNet()
    optimizer = adam(model.parameters())
    sparsify(model, optimizer)
    assert not optimizer.state
    train(model, optimizer, 1)
    assert set(optimizer.state[model.conv.weight]) == {"step", "exp_avg", "exp_avg_sq", "st3_raw"}


def test_raw_weights_join_at_once_where_the_optimizer_has_stepped_before() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    train(model, optimizer, 1)
    sparsify(model, optimizer)
    assert set(optimizer.state[model.conv.weight]) == {"momentum_buffer", "st3_raw"}


class LateNet(TinyNet):
    """With a branch that joins in when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Linear(32, 10, bias=False)
        self.joined = False

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (self.branch(x.flatten(1)) if self.joined else 0.0)


@pytest.mark.parametrize("make", [sgd, adam])
def test_a_layer_without_a_gradient_is_as_sparse_as_the_others(make: Callable[..., Optimizer]) -> None:
    model = LateNet()
    optimizer = make(model.parameters())
    sparsifier = sparsify(model, optimizer)
    before = model.branch.weight.clone()
    train(model, optimizer, 4)
    (waiting,) = optimizer.param_groups[0]["st3_waiting"].values()
    assert torch.equal(waiting["st3_raw"], before)
    assert model.branch.weight not in optimizer.state
    assert zeros(model) == zeros_asked(model, sparsifier.asked(4))
    model.joined = True
    train(model, optimizer, range(4, 5))
    assert zeros(model) == zeros_asked(model, sparsifier.asked(5))
    assert (model.branch.weight == 0).any()
    train(model, optimizer, range(5, STEPS))
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_a_layer_follows_the_threshold_in_steps_without_a_gradient() -> None:
    model = LateNet()
    model.joined = True
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, 2)
    raw = raw_weights(model, optimizer)["branch.weight"]
    model.joined = False
    for number in range(2, STEPS):
        train(model, optimizer, range(number, number + 1))
        assert zeros(model) == zeros_asked(model, sparsifier.asked(number + 1))
    assert torch.equal(raw_weights(model, optimizer)["branch.weight"], raw)
    sparsifier.finalize()


@pytest.mark.parametrize("make", [sgd, adam])
def test_a_layer_that_never_gets_a_gradient_leaves_a_state_that_a_plain_optimizer_can_load(
    make: Callable[..., Optimizer],
) -> None:
    model, other = LateNet(), LateNet()
    optimizer = make(model.parameters())
    sparsify(model, optimizer)
    train(model, optimizer, STEPS)
    assert zeros(model) == zeros_asked(model)
    plain = make(other.parameters())
    plain.load_state_dict(optimizer.state_dict())
    train(other, plain, 1)


# ---------------------------------------------------------------- optimizers made of optimizers


class Noisy(torch.optim.SGD):
    """A user's own variant: torch runs step hooks around its step and again around that of its base class."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def test_an_optimizer_that_calls_the_step_of_its_base_class_counts_each_step_once() -> None:
    model, plain = TinyNet(), TinyNet()
    plain_optimizer = sgd(plain.parameters())  # the existence of a plain one makes torch hook the base class
    optimizer = Noisy(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    sparsifier = sparsify(model, optimizer)
    sparsify(plain, plain_optimizer)
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        assert sparsifier.step == number + 1
    train(plain, plain_optimizer, STEPS)
    assert_same(model.state_dict(), plain.state_dict())


# ---------------------------------------------------------------- several optimizers


def test_optimizers_that_step_together_equal_a_single_one() -> None:
    single, split = TinyNet(), TinyNet()
    optimizer = sgd(single.parameters())
    convolutions = [p for name, p in split.named_parameters() if not name.startswith("head")]
    both = [sgd(convolutions), sgd(split.head.parameters())]
    sparsify(single, optimizer)
    sparsifier = sparsify(split, both)
    train(single, optimizer, STEPS)
    for number in range(STEPS):
        pictures, classes = batch(number)
        F.cross_entropy(split(pictures), classes).backward()
        for one in both:
            one.step()
            one.zero_grad()
        assert sparsifier.step == number + 1
        assert zeros(split) == zeros_asked(split, sparsifier.asked(number + 1))
    assert_same(split.state_dict(), single.state_dict())
    sparsifier.finalize()


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.artist = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
        self.critic = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def rounds(
        self, artist: Optimizer, critic: Optimizer, rounds: int, critic_steps: int = 1
    ) -> Iterator[None]:
        """The usual loop: the graph of the fakes lives on while the critic steps."""
        for number in range(rounds):
            noise = torch.randn(16, 4, generator=torch.Generator().manual_seed(number))
            fakes = self.artist(noise)
            for _ in range(critic_steps):
                (self.critic(torch.ones(16, 8)) - self.critic(fakes.detach())).square().mean().backward()
                critic.step()
                critic.zero_grad()
            self.critic(fakes).square().mean().backward()
            artist.step()
            artist.zero_grad()
            critic.zero_grad()
            yield


@pytest.mark.parametrize("method", [st3.methods.ST3(), NOT_STRAIGHT], ids=["straight", "not straight"])
def test_a_step_of_one_network_leaves_a_waiting_graph_of_the_other_alone(method: st3.methods.ST3) -> None:
    model = Gan()
    artist, critic = sgd(model.artist.parameters(), lr=0.01), sgd(model.critic.parameters(), lr=0.01)
    sparsifier = sparsify(model, [artist, critic], method=method)
    for number, _ in enumerate(model.rounds(artist, critic, STEPS)):
        assert sparsifier.step == number + 1
        assert zeros(model) == zeros_asked(model, sparsifier.asked(number + 1))
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_optimizers_may_step_at_different_rates() -> None:
    model = Gan()
    artist, critic = sgd(model.artist.parameters(), lr=0.01), sgd(model.critic.parameters(), lr=0.01)
    sparsifier = sparsify(model, [artist, critic], total_steps=12)
    list(model.rounds(artist, critic, 6, critic_steps=2))
    assert sparsifier.step == 12  # of the one that made the most
    assert sparsifier.at_target
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


@pytest.fixture
def alone() -> Iterator[Any]:
    """A mesh of this process only, on which tensors are sharded into one part."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.distributed
def test_gradients_of_sharded_weights_are_mapped_once_with_several_optimizers(alone: Any) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    def raws_after_a_step(sharded: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False))
        grad = torch.full((6, 6), 0.01)
        if sharded:
            for layer in model:
                layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), alone, [Shard(0)]))
        both = [torch.optim.SGD(layer.parameters(), lr=1.0) for layer in model]
        sparsify(model, both, sparsity=0.5, ramp="constant", method=NOT_STRAIGHT)
        for layer in model:  # no tensor hook is called for a sharded weight
            if sharded:
                layer.weight.grad = distribute_tensor(grad, alone, [Shard(0)])
            else:
                layer.weight.backward(grad)
        for optimizer in both:
            optimizer.step()
        raws = [o.state[layer.weight]["st3_raw"] for o, layer in zip(both, model, strict=True)]
        return [raw.to_local() if sharded else raw for raw in raws]

    for found, expected in zip(raws_after_a_step(True), raws_after_a_step(False), strict=True):
        torch.testing.assert_close(found, expected)


# ---------------------------------------------------------------- what counts as a step


@pytest.mark.parametrize("method", [st3.methods.ST3(), NOT_STRAIGHT], ids=["straight", "not straight"])
def test_gradients_accumulate_as_in_the_textbook_form_and_count_as_one_step(method: st3.methods.ST3) -> None:
    model, reference = TinyNet().double(), TinyNet().double()
    optimizer, reference_optimizer = sgd(model.parameters()), sgd(reference.parameters())
    sparsifier = sparsify(model, optimizer, method=method)
    textbook = Textbook(reference, sparsifier.asked, straight_through=method.straight_through)
    for number in range(STEPS):
        for micro_batch in (batch(2 * number, model.conv.weight), batch(2 * number + 1, model.conv.weight)):
            (F.cross_entropy(model(micro_batch[0]), micro_batch[1]) / 2).backward()
            (textbook.loss(*micro_batch) / 2).backward()
        for one in (optimizer, reference_optimizer):
            one.step()
            one.zero_grad()
        textbook.steps += 1
        textbook.move_threshold()
    assert sparsifier.step == STEPS
    textbook.assert_equals(model, [optimizer])


SCALED: dict[str, Callable[[TinyNet], Optimizer]] = {
    "SGD": lambda m: sgd(m.parameters()),
    "SGD fused": lambda m: sgd(m.parameters(), fused=True),
    "Adam": lambda m: adam(m.parameters()),
    "Adam fused": lambda m: adam(m.parameters(), fused=True),
}


@pytest.mark.parametrize("method", [st3.methods.ST3(), NOT_STRAIGHT], ids=["straight", "not straight"])
@pytest.mark.parametrize(
    ("name", "overflow_at"),
    # Not SGD fused at 0: torch itself then goes on from a momentum buffer that was never filled.
    [(name, at) for name in SCALED for at in (0, 3) if (name, at) != ("SGD fused", 0)],
)
def test_a_step_that_the_gradient_scaler_skips_never_happened(
    name: str, overflow_at: int, method: st3.methods.ST3
) -> None:
    plain, scaled = TinyNet(), TinyNet()
    plain_optimizer, optimizer = SCALED[name](plain), SCALED[name](scaled)
    sparsify(plain, plain_optimizer, method=method)
    sparsifier = sparsify(scaled, optimizer, method=method)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)  # powers of two: scaling costs no precision
    for number in range(6):
        pictures, classes = batch(number)
        loss = F.cross_entropy(scaled(pictures), classes)
        before = {name: p.detach().clone() for name, p in scaled.named_parameters()}, sparsifier.step
        scaler.scale(loss * float("inf") if number == overflow_at else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if number == overflow_at:
            after = {name: p.detach().clone() for name, p in scaled.named_parameters()}, sparsifier.step
            assert_same(after, before)
        else:
            train(plain, plain_optimizer, range(number, number + 1))
    assert sparsifier.step == 5
    found, expected = dict(scaled.named_parameters()), dict(plain.named_parameters())
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-7)
    assert_same({n: p == 0 for n, p in found.items()}, {n: p == 0 for n, p in expected.items()})


def test_unscaled_gradients_can_be_clipped_under_the_gradient_scaler() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer, method=NOT_STRAIGHT)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for number in range(STEPS):
        pictures, classes = batch(number)
        scaler.scale(F.cross_entropy(model(pictures), classes)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_a_warm_up_that_starts_at_rate_zero_counts_its_steps() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 3))
    for number in range(3):
        train(model, optimizer, range(number, number + 1))
        scheduler.step()
        assert sparsifier.step == number + 1


@pytest.mark.parametrize("scheduler_first", [True, False])
def test_learning_rate_schedulers_work_in_either_order(scheduler_first: bool) -> None:
    model, reference = TinyNet().double(), TinyNet().double()
    optimizer, reference_optimizer = sgd(model.parameters()), sgd(reference.parameters())

    def schedule(one: Optimizer) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(one, max_lr=0.2, total_steps=STEPS + 1)

    scheduler = schedule(optimizer) if scheduler_first else None
    asked = sparsify(model, optimizer).asked
    scheduler = scheduler or schedule(optimizer)
    textbook, reference_scheduler = Textbook(reference, asked), schedule(reference_optimizer)
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        textbook.train(reference_optimizer, range(number, number + 1))
        scheduler.step()
        reference_scheduler.step()
    textbook.assert_equals(model, [optimizer])


# ---------------------------------------------------------------- closures


@pytest.mark.parametrize("by_keyword", [True, False])
@pytest.mark.parametrize("make", [sgd, adam])
def test_a_closure_runs_once_and_at_the_sparse_weights(
    make: Callable[..., Optimizer], by_keyword: bool
) -> None:
    model, plain = TinyNet(), TinyNet()
    optimizer, plain_optimizer = make(model.parameters()), make(plain.parameters())
    sparsifier = sparsify(model, optimizer)
    sparsify(plain, plain_optimizer)
    seen: list[int] = []
    losses = []
    for number in range(STEPS):
        pictures, classes = batch(number)

        def closure(pictures: Tensor = pictures, classes: Tensor = classes) -> Tensor:
            seen.append(zeros(model))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(pictures), classes)
            loss.backward()
            return loss

        loss = optimizer.step(closure=closure) if by_keyword else optimizer.step(closure)
        losses.append(loss.item())
    assert seen == [zeros_asked(model, sparsifier.asked(step)) for step in range(STEPS)]
    assert losses == train(plain, plain_optimizer, STEPS)
    assert_same(model.state_dict(), plain.state_dict())


class Twice(torch.optim.SGD):
    """Like optimizers that look at the loss at a second point."""

    def step(self, closure: Callable[[], Tensor] | None = None) -> Any:
        if closure is not None:
            with torch.enable_grad():
                closure()
                closure()
        return super().step()


def test_an_optimizer_that_runs_its_closure_twice_is_refused() -> None:
    model = TinyNet()
    optimizer = Twice(model.parameters(), lr=0.05, momentum=0.9)
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, 3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}, sparsifier.step
    pictures, classes = batch(3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures), classes)
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match=r"evaluates its closure several times per step.*use an optimizer"):
        optimizer.step(closure)
    sparsifier.report()  # any call puts things right
    assert_same(({name: p.detach().clone() for name, p in model.named_parameters()}, sparsifier.step), before)


def test_an_error_in_the_closure_changes_nothing() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, 3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}, sparsifier.step

    def closure() -> Tensor:
        raise ArithmeticError("the loss went away")

    with pytest.raises(ArithmeticError, match="the loss went away"):
        optimizer.step(closure)
    assert_same(({name: p.detach().clone() for name, p in model.named_parameters()}, sparsifier.step), before)


# ---------------------------------------------------------------- gradients that somebody looks at


def mapped_pair() -> tuple[TinyNet, Textbook, Tensor]:
    """Return a model in mid-ramp without straight-through, its textbook form, and a tensor of their precision."""
    model, reference = TinyNet().double(), TinyNet().double()
    optimizer = sgd(model.parameters())
    asked = sparsify(model, optimizer, method=NOT_STRAIGHT).asked
    textbook = Textbook(reference, asked, straight_through=False)
    train(model, optimizer, 3)
    textbook.train(sgd(reference.parameters()), 3)
    textbook.assert_equals(model, [optimizer])
    return model, textbook, model.conv.weight.detach()


def assert_same_gradients(model: nn.Module, reference: nn.Module) -> None:
    expected = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=0, atol=1e-10, msg=name)


def test_gradient_clipping_sees_the_gradient_that_will_be_applied() -> None:
    model, textbook, like = mapped_pair()
    pictures, classes = batch(3, like)
    F.cross_entropy(model(pictures), classes).backward()
    textbook.loss(pictures, classes).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    expected = nn.utils.clip_grad_norm_(textbook.model.parameters(), 0.01)
    assert expected > 0.01  # it does clip
    torch.testing.assert_close(norm, expected, rtol=0, atol=1e-10)
    assert_same_gradients(model, textbook.model)


def test_gradients_are_mapped_once_under_activation_checkpointing() -> None:
    model, textbook, like = mapped_pair()
    pictures, classes = batch(3, like)
    features = checkpoint(lambda x: F.relu(model.norm(model.conv(x))), pictures, use_reentrant=False)
    features = checkpoint(lambda x: F.relu(model.deep(x)).mean((2, 3)), features, use_reentrant=False)
    F.cross_entropy(model.head(features), classes).backward()
    textbook.loss(pictures, classes).backward()
    assert_same_gradients(model, textbook.model)


def test_a_gradient_penalty_goes_through_the_mapped_gradient() -> None:
    model, textbook, like = mapped_pair()

    def penalty(loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        pictures, classes = batch(3, like)
        pictures.requires_grad_()
        (slope,) = torch.autograd.grad(loss(pictures, classes), pictures, create_graph=True)
        return slope.square().sum()

    penalty(lambda x, y: F.cross_entropy(model(x), y)).backward()
    penalty(textbook.loss).backward()
    for name in textbook.raws:
        torch.testing.assert_close(
            model.get_parameter(name).grad, textbook.raws[name].grad, rtol=0, atol=1e-10
        )


def test_an_infinite_gradient_of_a_zeroed_weight_does_not_become_nan() -> None:
    model, _, _ = by_hand(method=st3.methods.ST3(rescale=False, straight_through=False))
    model.weight.backward(torch.tensor([[1.0, 2.0, float("inf"), float("nan")]]))
    assert_close(model.weight.grad, [1.0, 2.0, 0.0, 0.0])


# ---------------------------------------------------------------- an exception inside a step


class Failing(Optimizer):
    """SGD with momentum that runs out of memory when told to, after updating some parameters."""

    fail_after: int | None = None

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for i, parameter in enumerate(self.param_groups[0]["params"]):
            if self.fail_after == i:
                raise MemoryError("no memory left")
            buffer = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
            parameter.sub_(buffer.mul_(0.9).add_(parameter.grad), alpha=0.05)


def failing() -> tuple[TinyNet, Failing, st3.Sparsifier]:
    model = TinyNet()
    optimizer = Failing(model.parameters())
    return model, optimizer, sparsify(model, optimizer)


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("at", [0, 3])
def test_a_step_that_failed_can_be_taken_again(at: int, failures: int) -> None:
    model, optimizer, sparsifier = failing()
    train(model, optimizer, at)
    optimizer.fail_after = 0
    with pytest.raises(MemoryError):
        train(model, optimizer, range(at, at + 1))
    for _ in range(failures - 1):
        with pytest.raises(MemoryError):
            optimizer.step()
    optimizer.fail_after = None
    assert sparsifier.step == at
    optimizer.step()  # the gradients are still there
    optimizer.zero_grad()
    assert sparsifier.step == at + 1
    train(model, optimizer, range(at + 1, STEPS))

    undisturbed, its_optimizer, _ = failing()
    train(undisturbed, its_optimizer, STEPS)
    assert_same(model.state_dict(), undisturbed.state_dict())
    assert_same(raw_weights(model, optimizer), raw_weights(undisturbed, its_optimizer))


def test_the_model_is_sparse_again_after_any_look_at_a_failed_step() -> None:
    model, optimizer, sparsifier = failing()
    train(model, optimizer, 3)
    before = model.conv.weight.detach().clone()
    optimizer.fail_after = 0
    with pytest.raises(MemoryError):
        train(model, optimizer, range(3, 4))
    repr(sparsifier)
    assert torch.equal(model.conv.weight, before)
    assert zeros(model) == zeros_asked(model, sparsifier.asked(3))


def test_what_a_failed_step_has_already_updated_is_kept_in_the_raw_weights() -> None:
    model, optimizer, sparsifier = failing()
    train(model, optimizer, 3)
    before = raw_weights(model, optimizer)
    optimizer.fail_after = 1
    with pytest.raises(MemoryError):
        train(model, optimizer, range(3, 4))
    optimizer.fail_after = None
    moved = before["conv.weight"].sub(optimizer.state[model.conv.weight]["momentum"], alpha=0.05)
    assert sparsifier.report().zeros == zeros_asked(model, sparsifier.asked(3)) == zeros(model)
    after = raw_weights(model, optimizer)
    assert torch.equal(after["conv.weight"], moved)
    assert torch.equal(after["head.weight"], before["head.weight"])
    optimizer.zero_grad()
    train(model, optimizer, range(3, STEPS))
    sparsifier.finalize()


def test_the_next_step_keeps_what_a_failed_one_has_updated_and_begins_at_the_sparse_weights() -> None:
    model, optimizer, sparsifier = failing()
    train(model, optimizer, 3)
    before = raw_weights(model, optimizer)["conv.weight"]
    optimizer.fail_after = 1
    with pytest.raises(MemoryError):
        train(model, optimizer, range(3, 4))
    moved = before.sub(optimizer.state[model.conv.weight]["momentum"], alpha=0.05)
    assert not torch.equal(moved, before)
    optimizer.fail_after = None
    optimizer.zero_grad()
    seen = []

    def closure() -> Tensor:
        seen.append((zeros(model), raw_weights(model, optimizer)["conv.weight"]))
        pictures, classes = batch(3)
        loss = F.cross_entropy(model(pictures), classes)
        loss.backward()
        return loss

    optimizer.step(closure)  # without any look at the model in between
    assert_same(seen, [(zeros_asked(model, sparsifier.asked(3)), moved)])


def test_a_failed_step_keeps_nothing_of_its_caller_alive() -> None:
    # What ran out of memory needs all of it for the next try.
    model, optimizer, _ = failing()
    optimizer.fail_after = 0
    watched = []

    def attempt() -> None:
        activations = nn.Identity()
        watched.append(weakref.ref(activations))
        train(model, optimizer, 1)

    with contextlib.suppress(MemoryError):
        attempt()
    gc.collect()
    assert watched[0]() is None


# ---------------------------------------------------------------- precisions and layouts


def test_under_autocast_raw_weights_stay_in_full_precision() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    for number in range(STEPS):
        pictures, classes = batch(number)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(pictures), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(raw.dtype == torch.float32 for raw in raw_weights(model, optimizer).values())
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


ALLOCATIONS = ["global", "sigma", "uniform", "erk", "lamp"]


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_precision_hits_the_exact_count(dtype: torch.dtype, allocation: str) -> None:
    model = TinyNet().to(dtype)
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer, allocation=allocation)
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        assert zeros(model) == zeros_asked(model, sparsifier.asked(number + 1))
    assert all(raw.dtype == dtype for raw in raw_weights(model, optimizer).values())
    sparsifier.finalize()


@pytest.mark.parametrize(
    "method",
    [st3.methods.ST3(), st3.methods.ST3(soft=False), NOT_STRAIGHT, st3.methods.Feather(theta=0.5)],
    ids=str,
)
@pytest.mark.parametrize("allocation", ["global", "sigma", "uniform", "erk"])
def test_pure_bfloat16_weights_hit_the_exact_count_although_many_are_tied(
    allocation: str, method: st3.methods.ST3 | st3.methods.Feather
) -> None:
    model = TinyNet().bfloat16()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer, allocation=allocation, method=method)
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        assert zeros(model) == zeros_asked(model, sparsifier.asked(number + 1))
    sparsifier.finalize()


def test_ties_among_bfloat16_weights_are_broken_in_their_own_layer_only() -> None:
    # Scores are weight * sqrt(sum of shape). Six are tied at 141 * sqrt(5) / 128; one of the other layer lies just
    # below, at 182 * sqrt(3) / 128, nearer than two half-precision numbers of one layer ever are.
    model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(1, 2, bias=False)).bfloat16()
    with torch.no_grad():
        model[0].weight.fill_(141 / 128)
        model[1].weight.copy_(torch.tensor([[182 / 128], [6.25]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = st3.methods.ST3(soft=False, rescale=False)
    st3.sparsify(
        model, optimizer, sparsity=0.15, total_steps=1, ramp="constant", allocation="sigma", method=method
    )
    assert zeros(model) == 2 == int(7 * 0.15) + 1
    assert model[1].weight.flatten().tolist() == [0.0, 6.25]


def test_there_are_ties_among_bfloat16_weights_to_be_broken() -> None:
    model = TinyNet().bfloat16()
    magnitudes = torch.cat(
        [model.get_parameter(name).detach().abs().flatten() for name in sparse_names(model)]
    )
    assert magnitudes.unique().numel() < magnitudes.numel() / 2


@pytest.mark.parametrize("converted_first", [True, False])
def test_channels_last_equals_contiguous(converted_first: bool) -> None:
    contiguous, other = TinyNet().double(), TinyNet().double()
    if converted_first:
        other.to(memory_format=torch.channels_last)
    optimizers = sgd(contiguous.parameters()), sgd(other.parameters())
    sparsifiers = [sparsify(m, o) for m, o in zip((contiguous, other), optimizers, strict=True)]
    if not converted_first:
        other.to(memory_format=torch.channels_last)
    train(contiguous, optimizers[0], STEPS)
    train(other, optimizers[1], STEPS)
    assert other.deep.weight.is_contiguous(memory_format=torch.channels_last)
    for expected, found in zip(contiguous.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
        assert torch.equal(found == 0, expected == 0)
    for sparsifier in sparsifiers:
        assert sparsifier.report().zeros == zeros_asked(contiguous, SPARSITY)
