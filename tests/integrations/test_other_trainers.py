"""Averages, optimizers that step inside the backward pass, and trainers that own the loop."""

import copy
import io
import math

import pytest
import torch
import torch.nn.functional as F
from tests.tiny import STEPS, TinyNet, batch, raw_weights, sgd, sparsify, train, zeros, zeros_asked
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

import st3

# ---------------------------------------------------------------- averages


class Ema:
    """An average as timm and others keep it: a copy of the model, moved towards it entry by entry of the state dict."""

    def __init__(self, model, decay=0.9):
        self.module, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        state = model.state_dict()
        for name, value in self.module.state_dict().items():
            if value.is_floating_point():
                value.lerp_(state[name], 1 - self.decay)
            else:
                value.copy_(state[name])


@pytest.mark.parametrize("early", [True, False], ids=["copied before sparsify", "copied after"])
def test_an_average_that_copies_the_model_is_made_sparse(early):
    model = TinyNet()
    optimizer = sgd(model.parameters())
    ema = Ema(model) if early else None
    sparsifier = sparsify(model, optimizer)
    ema = ema or Ema(model)
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        ema.update(model)
    assert zeros(ema.module) < zeros_asked(model)
    sparsifier.apply_to(ema.module)
    assert zeros(ema.module) == zeros_asked(model)
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_stochastic_weight_averaging_by_torch_ends_sparse_with_new_batch_norms():
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    average, schedule = AveragedModel(model), SWALR(optimizer, swa_lr=0.01, anneal_epochs=2)
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        if sparsifier.at_target:
            average.update_parameters(model)
            schedule.step()
    assert int(average.n_averaged) > 1
    assert zeros(average.module) < zeros_asked(model)
    sparsifier.apply_to(average)
    before = average.module.norm.running_mean.clone()
    update_bn([batch(number)[0] for number in range(3)], average)
    assert zeros(average.module) == zeros_asked(model)
    assert not torch.equal(average.module.norm.running_mean, before)


# ---------------------------------------------------------------- steps inside the backward pass


def step_in_backward(model, make):
    """Give every parameter an optimizer that makes its step as soon as the gradient is there; no gradient is kept."""
    optimizers = {parameter: make([parameter]) for parameter in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    return list(optimizers.values())


def make_mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32, bias=False), nn.ReLU(), nn.Linear(32, 3, bias=False))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("method", ["st3", "feather", "gmp", "rigl"])
def test_steps_inside_the_backward_pass_train_the_same_sparse_model(method, make):
    models = [make_mlp(), make_mlp()]
    optimizers = [step_in_backward(models[0], make), [make(models[1].parameters())]]
    settings = {"sparsity": 0.8, "total_steps": 12, "method": method}
    sparsifiers = [st3.sparsify(m, o, **settings) for m, o in zip(models, optimizers, strict=True)]
    for number in range(12):
        inputs = torch.randn(8, 12, generator=torch.Generator().manual_seed(number))
        for model in models:
            F.cross_entropy(model(inputs), inputs[:, :3].argmax(1)).backward()
        optimizers[1][0].step()
        optimizers[1][0].zero_grad()
        assert all(p.grad is None for p in models[0].parameters())
    assert [sparsifier.step for sparsifier in sparsifiers] == [12, 12]
    first, second = ([*sparsifier.finalize().parameters()] for sparsifier in sparsifiers)
    assert all(torch.equal(p, q) for p, q in zip(first, second, strict=True))


# ---------------------------------------------------------------- a trainer that owns the loop


class Trainer:
    """Builds model, optimizer and average itself, and offers callbacks by name: as trainers of detectors do."""

    epochs, batches, warm_up, accumulate = 6, 8, 6, 2

    def __init__(self):
        self.callbacks: dict[str, list] = {}
        self.best_fitness, self.files = None, {}

    def add_callback(self, event, function):
        self.callbacks.setdefault(event, []).append(function)

    def run_callbacks(self, event):
        for function in self.callbacks.get(event, ()):
            function(self)

    def train(self, resume=None):
        self.model = TinyNet()
        self.optimizer = sgd(self.model.parameters())
        self.ema = Ema(self.model)
        first = 0
        if resume is not None:
            saved = torch.load(io.BytesIO(resume), weights_only=True)
            self.model.load_state_dict({name: value.float() for name, value in saved["ema"].items()})
            self.ema.module.load_state_dict(self.model.state_dict())
            self.optimizer.load_state_dict(saved["optimizer"])
            first = saved["epoch"] + 1
        self.run_callbacks("on_train_start")
        for epoch in range(first, self.epochs):
            self.epoch, waiting = epoch, 0
            for number in range(self.batches):
                done = self.epoch * self.batches + number
                accumulate = 1 if done < self.warm_up else self.accumulate
                rate = 0.05 * min(1.0, (done + 1) / self.warm_up)
                for group in self.optimizer.param_groups:
                    group["lr"] = rate
                inputs, classes = batch(done)
                (F.cross_entropy(self.model(inputs), classes) / accumulate).backward()
                waiting += 1
                if waiting >= accumulate:
                    nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    self.ema.update(self.model)
                    waiting = 0
            self.run_callbacks("on_train_epoch_end")
            self.validate_and_save()
        self.run_callbacks("on_train_end")

    def validate_and_save(self):
        inputs, classes = batch(-1)
        with torch.no_grad():
            fitness = -F.cross_entropy(self.ema.module(inputs), classes).item()
        file = io.BytesIO()
        half = copy.deepcopy(self.ema.module).half().state_dict()
        state = copy.deepcopy(self.optimizer.state_dict())
        for tensors in state["state"].values():  # such trainers keep the optimizer in half precision
            tensors.update(
                {key: value.half() for key, value in tensors.items() if value.dtype == torch.float32}
            )
        torch.save({"ema": half, "optimizer": state, "epoch": self.epoch}, file)
        self.files["last"] = file.getvalue()
        if self.best_fitness is None or fitness > self.best_fitness:
            self.best_fitness, self.files["best"] = fitness, file.getvalue()


def add_sparsity(trainer):
    """The hook that docs/frameworks/others.md shows."""

    def start(trainer):
        total = math.ceil(Trainer.epochs * trainer.batches / trainer.accumulate)
        trainer.sparsifier = sparsify(trainer.model, trainer.optimizer, total_steps=total, ramp="cubic")

    def before_validation(trainer):
        trainer.sparsifier.apply_to(trainer.ema.module)
        if not trainer.sparsifier.at_target:
            trainer.best_fitness = None

    trainer.add_callback("on_train_start", start)
    trainer.add_callback("on_train_epoch_end", before_validation)
    trainer.add_callback("on_train_end", lambda trainer: trainer.sparsifier.finalize())
    return trainer


def stored(file):
    model = TinyNet()
    model.load_state_dict(torch.load(io.BytesIO(file), weights_only=True)["ema"])
    return model


def test_three_callbacks_make_a_trainer_sparse_its_average_and_its_best_file_included():
    trainer = add_sparsity(Trainer())
    trainer.train()
    assert zeros(trainer.model) == zeros_asked(trainer.model)
    for name in ("last", "best"):
        assert zeros(stored(trainer.files[name])) >= zeros_asked(trainer.model), (
            name
        )  # half precision may add some


def test_such_a_trainer_resumes_from_raw_weights_in_the_half_precision_of_its_file():
    stopped, resumed = add_sparsity(Trainer()), add_sparsity(Trainer())
    stopped.epochs = 2  # in mid-ramp; total_steps is that of the whole run
    stopped.callbacks = {**stopped.callbacks, "on_train_end": []}
    stopped.train()
    left = raw_weights(stopped.model, stopped.optimizer)
    found = []
    resumed.add_callback("on_train_start", lambda t: found.append(raw_weights(t.model, t.optimizer)))
    resumed.add_callback("on_train_start", lambda t: found.append(t.sparsifier.step))
    resumed.train(resume=stopped.files["last"])
    assert found[1] == stopped.sparsifier.step > 0
    assert all(torch.equal(found[0][name], left[name].half().float()) for name in left)
    assert zeros(resumed.model) == zeros_asked(resumed.model)
    assert zeros(stored(resumed.files["best"])) >= zeros_asked(resumed.model)
