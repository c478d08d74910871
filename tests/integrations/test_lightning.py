"""Lightning: one callback makes a trainer's model sparse; its checkpoints, best models and averages follow."""

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import (
    EarlyStopping,
    GradientAccumulationScheduler,
    ModelCheckpoint,
    OnExceptionCheckpoint,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import ModelParallelStrategy, SingleDeviceStrategy
from lightning.pytorch.tuner import Tuner
from tests.processes import on_ranks
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import st3
from st3.integrations.lightning import SparseTraining

SPARSITY, EPOCHS, BATCHES = 0.8, 6, 4
AT_TARGET = 3  # the first epoch that ends at the target: the ramp is over at half of the run
ZEROS = 461  # floor((576 - 1) * 0.8) + 1, as a linear quantile zeroes

QUIET = [  # what Lightning says about small data and old interfaces
    "ignore:.isinstance.treespec, LeafSpec:FutureWarning",
    "ignore:The '.*_dataloader' does not have many workers",
    "ignore:The number of training batches",
    "ignore:Checkpoint directory",
    "ignore:You're resuming from a checkpoint that ended before the epoch ended",
    "ignore:You defined a `validation_step` but have no `val_dataloader`",
    "ignore:The dirpath has changed",
    "ignore:Be aware that when using `ckpt_path`, callbacks used",
]
pytestmark = [pytest.mark.filterwarnings(line) for line in QUIET]


class Net(L.LightningModule):
    """512 + 64 weights in two layers; the loss that validation reports rises all the time, as if denser were better."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
        self.seen: list[int] = []  # zeros in validations

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.seen.append(zeros(self.state_dict()))
        self.log("val_loss", float(self.global_step))

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("test_loss", F.cross_entropy(self(batch[0]), batch[1]))

    def predict_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class Stop(L.Callback):
    """Asks the trainer to stop, or raises, at the end of an epoch."""

    def __init__(self, epoch: int, error: BaseException | None = None) -> None:
        self.epoch, self.error = epoch, error

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch == self.epoch:
            trainer.should_stop = True
            if self.error is not None:
                raise self.error


def loader(batches: int = BATCHES) -> DataLoader:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8 * batches, 16, generator=generator)
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=8)


def make_trainer(*callbacks: Any, **options: Any) -> L.Trainer:
    settings = {"max_epochs": EPOCHS, "accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    settings |= {"enable_progress_bar": False, "enable_model_summary": False, **options}
    if any(isinstance(callback, ModelCheckpoint) for callback in callbacks):
        settings["enable_checkpointing"] = True
    return L.Trainer(callbacks=list(callbacks), **settings)


def fit(
    *callbacks: Any, model: L.LightningModule | None = None, ckpt_path: Any = None, **options: Any
) -> Net:
    """Train a new network (or `model`) with these callbacks; return it."""
    model = Net() if model is None else model
    make_trainer(*callbacks, **options).fit(model, loader(), loader(1), ckpt_path=ckpt_path)
    return model


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def zeros(state: dict[str, Tensor]) -> int:
    return sum(int((tensor == 0).sum()) for name, tensor in state.items() if name.endswith("weight"))


def stored(path: Any) -> dict[str, Any]:
    return torch.load(path, weights_only=False)


def best(folder: Path, **options: Any) -> ModelCheckpoint:
    return ModelCheckpoint(folder, monitor="val_loss", **options)


# -------------------------------------------------------------------- a run


def test_a_trainer_with_the_callback_trains_sparse_and_prints_the_report(capsys):
    sparse = SparseTraining(sparsity=SPARSITY)
    model = fit(sparse)
    assert zeros(model.state_dict()) == ZEROS
    assert sparse.sparsifier.is_finalized
    assert sparse.sparsifier.step == EPOCHS * BATCHES
    assert "80.03 % of 576 weights in 2 layers" in capsys.readouterr().out


def test_the_arguments_are_those_of_sparsify(capsys):
    sparse = SparseTraining(sparsity=SPARSITY, exclude=["net.2"], method="gmp", ramp="linear", min_weights=2)
    model = fit(sparse)
    assert [layer.name for layer in sparse.sparsifier.layers] == ["net.0.weight"]
    assert sparse.sparsifier.method == st3.methods.GMP()
    assert (model.net[2].weight != 0).all()


@pytest.mark.parametrize(
    ("name", "why"),
    [("total_steps", "it comes from the trainer"), ("excluded", "it takes sparsity, method, ramp, ")],
)
def test_an_argument_that_sparsify_does_not_take_is_refused(name, why):
    with pytest.raises(TypeError, match=f"^SparseTraining takes no argument '{name}': {why}"):
        SparseTraining(sparsity=0.9, **{name: 3})


@pytest.mark.parametrize(
    ("every", "steps"), [(2, range(1, 24, 2)), (50, range(3, 24, 4))], ids=["steps", "epochs"]
)
def test_metrics_reach_the_logger_and_callbacks_that_monitor_them(tmp_path, every, steps):
    monitor = EarlyStopping("st3/sparsity", patience=9)  # raises where there is no such metric
    fit(monitor, SparseTraining(sparsity=SPARSITY), logger=CSVLogger(tmp_path), log_every_n_steps=every)
    lines = next(tmp_path.rglob("metrics.csv")).read_text().splitlines()
    header = lines[0].split(",")
    rows = [dict(zip(header, line.split(","), strict=True)) for line in lines[1:]]
    rows = [row for row in rows if row["st3/sparsity"]]
    assert {row["step"] for row in rows} == {str(step) for step in steps}
    names = ["sparsity", "sparsity_asked", "threshold", "at_target", "collapsed_layers"]
    last = {name: float(rows[-1][f"st3/{name}"]) for name in names}
    assert last["sparsity"] == pytest.approx(ZEROS / 576)
    assert last["sparsity_asked"] == pytest.approx(SPARSITY)
    assert last["threshold"] > 0
    assert last["at_target"] == 1.0
    assert last["collapsed_layers"] == 0.0
    assert float(rows[0]["st3/at_target"]) == 0.0


# -------------------------------------------------------------------- the best model


@pytest.mark.parametrize(
    ("checkpoint", "trainer"),
    [
        ({}, {}),
        ({"save_on_train_epoch_end": False}, {}),
        ({}, {"val_check_interval": 0.5}),
        ({"every_n_train_steps": 3}, {}),  # also between validations, with the metrics of the last one
    ],
    ids=["epoch", "validation", "twice an epoch", "every 3 steps"],
)
def test_the_best_checkpoint_is_the_best_of_those_at_the_target(tmp_path, checkpoint, trainer):
    checkpoint = best(tmp_path, **checkpoint)
    sparse = SparseTraining(sparsity=SPARSITY)
    fit(checkpoint, sparse, **trainer)
    found = stored(checkpoint.best_model_path)
    assert zeros(found["state_dict"]) == ZEROS
    assert found["global_step"] >= sparse.sparsifier.ramp.end * EPOCHS * BATCHES
    # The validation at the end of the ramp, in the middle of the run, reports the lowest loss of those that count.
    assert checkpoint.best_model_score == EPOCHS * BATCHES / 2
    assert all(zeros(stored(path)["state_dict"]) == ZEROS for path in checkpoint.best_k_models)


@pytest.mark.parametrize("method", ["acdc", "probmask"])
def test_the_best_checkpoint_of_other_methods_is_at_the_target(tmp_path, method):
    checkpoint = best(tmp_path)
    fit(
        checkpoint, SparseTraining(sparsity=SPARSITY, method=method), max_epochs=20
    )  # AC/DC: dense phases between
    assert zeros(stored(checkpoint.best_model_path)["state_dict"]) == ZEROS


def test_several_best_checkpoints_are_all_at_the_target(tmp_path):
    checkpoint = best(tmp_path, save_top_k=3)
    fit(checkpoint, SparseTraining(sparsity=SPARSITY))
    assert len(checkpoint.best_k_models) == 3
    assert {zeros(stored(path)["state_dict"]) for path in checkpoint.best_k_models} == {ZEROS}
    assert len(list(tmp_path.iterdir())) == 3


def test_without_validation_the_best_by_a_training_metric_is_at_the_target(tmp_path):
    class Logs(Net):
        def training_step(self, batch, batch_idx):
            self.log("loss", float(self.global_step), on_step=False, on_epoch=True)
            return super().training_step(batch, batch_idx)

    checkpoint = ModelCheckpoint(tmp_path, monitor="loss")
    fit(checkpoint, SparseTraining(sparsity=SPARSITY), model=Logs(), limit_val_batches=0)
    assert zeros(stored(checkpoint.best_model_path)["state_dict"]) == ZEROS
    assert stored(checkpoint.best_model_path)["epoch"] == AT_TARGET - 1


def test_a_run_that_never_reaches_the_target_has_no_best_checkpoint_and_says_so(tmp_path, recwarn):
    checkpoint, sparse = best(tmp_path, save_last=True), SparseTraining(sparsity=SPARSITY)
    with pytest.warns() as said:
        model = fit(checkpoint, sparse, Stop(epoch=1))
    assert checkpoint.best_model_path == ""
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]
    texts = [str(warning.message) for warning in said]
    asked = f"{zeros(model.state_dict()) / 576:.4g}"
    assert (
        f"training ended at step 8 of 24 with a sparsity of {asked} of 0.8: the model is not finalized; go on with "
        "fit(ckpt_path=...), or train anew with fewer steps"
    ) in texts
    assert "there is no best checkpoint by 'val_loss': no validation was at the target sparsity" in texts
    assert not sparse.sparsifier.is_finalized
    assert sparse.sparsifier.is_attached


@pytest.mark.parametrize("save_last", [True, "link"])
def test_the_last_checkpoint_is_saved_below_the_target_too(tmp_path, save_last):
    class Look(L.Callback):
        steps: list[int] = []  # noqa: RUF012

        def on_train_epoch_start(self, trainer, pl_module):
            if (tmp_path / "last.ckpt").exists():
                self.steps.append(stored(tmp_path / "last.ckpt")["global_step"])

    fit(best(tmp_path, save_last=save_last), SparseTraining(sparsity=SPARSITY), Look())
    assert Look.steps[:3] == [4, 8, 12]


def test_resuming_without_the_callback_is_warned_of(tmp_path):
    fit(ModelCheckpoint(tmp_path, save_last=True), SparseTraining(sparsity=SPARSITY))
    with pytest.warns(UserWarning, match=r"Please add the following callbacks: .*'SparseTraining'"):
        fit(ckpt_path=tmp_path / "last.ckpt", max_epochs=EPOCHS + 1)


def test_a_rehearsal_saves_nothing_and_warns_of_nothing(tmp_path):
    sparse = SparseTraining(sparsity=SPARSITY)
    fit(best(tmp_path), sparse, EarlyStopping("val_loss"), fast_dev_run=True)
    assert sparse.sparsifier.is_finalized
    assert not list(tmp_path.iterdir())


def test_checkpoints_that_are_all_kept_are_kept_below_the_target_too(tmp_path):
    checkpoint = best(tmp_path, save_top_k=-1, filename="{epoch}")
    fit(checkpoint, SparseTraining(sparsity=SPARSITY))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"epoch={n}.ckpt" for n in range(EPOCHS)]
    assert zeros(stored(checkpoint.best_model_path)["state_dict"]) == ZEROS


def test_checkpoints_without_a_metric_stay_as_they_are(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, save_top_k=-1, filename="{epoch}")
    fit(checkpoint, SparseTraining(sparsity=SPARSITY))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"epoch={n}.ckpt" for n in range(EPOCHS)]


@pytest.mark.parametrize("when", [True, False], ids=["epoch", "validation"])
def test_patience_counts_from_the_target(when):
    stopping = EarlyStopping("val_loss", patience=2, check_on_train_epoch_end=when)
    sparse = SparseTraining(sparsity=SPARSITY)
    fit(stopping, sparse, max_epochs=8)
    # The ramp is over at the end of epoch 3 (counted from 0); the loss rises in 4 and 5.
    assert stopping.stopped_epoch == 5
    assert sparse.sparsifier.is_finalized


def test_a_threshold_stops_the_run_only_at_the_target():
    stopping = EarlyStopping("val_loss", stopping_threshold=1000.0)  # at once
    fit(stopping, SparseTraining(sparsity=SPARSITY))
    assert stopping.stopped_epoch == AT_TARGET - 1


# -------------------------------------------------------------------- resume


class Resumable(DataLoader):
    """A loader that continues in the middle of an epoch."""

    start = 0

    def __iter__(self) -> Iterator[Any]:
        first, self.start = self.start, 0
        for self.position, batch in enumerate(super().__iter__()):
            if self.position >= first:
                yield batch

    def state_dict(self) -> dict[str, int]:
        return {"start": self.position + 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["start"]


def resumable() -> Resumable:
    return Resumable(loader().dataset, batch_size=8)


@pytest.mark.parametrize("method", ["st3", "rigl"])
@pytest.mark.parametrize("step", [8, 20], ids=["in the ramp", "after it"])
def test_a_run_resumed_from_lightnings_checkpoint_continues_bit_for_bit(tmp_path, step, method):
    options = {"sparsity": SPARSITY, "method": method}
    checkpoint = ModelCheckpoint(tmp_path, save_top_k=-1, filename="{step}")
    whole = fit(checkpoint, SparseTraining(**options))
    again = SparseTraining(**options)
    resumed = fit(again, ckpt_path=tmp_path / f"step={step}.ckpt")
    assert again.sparsifier.step == EPOCHS * BATCHES
    assert again.sparsifier.is_finalized
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


def test_a_run_resumed_within_an_epoch_continues_bit_for_bit(tmp_path):
    def run(folder: Path, ckpt_path: Any = None) -> Net:
        checkpoint = ModelCheckpoint(folder, save_top_k=-1, every_n_train_steps=1, filename="{step}")
        model = Net()
        trainer = make_trainer(checkpoint, SparseTraining(sparsity=SPARSITY), max_epochs=3)
        trainer.fit(model, resumable(), ckpt_path=ckpt_path)
        return model

    whole = run(tmp_path / "whole")
    resumed = run(tmp_path / "resumed", tmp_path / "whole" / "step=6.ckpt")
    assert not (tmp_path / "resumed" / "step=6.ckpt").exists()
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), OSError("disk full")])
def test_an_interrupted_run_goes_on_with_the_same_objects(tmp_path, error):
    whole = fit(SparseTraining(sparsity=SPARSITY))
    checkpoint, sparse, model = best(tmp_path, save_last=True), SparseTraining(sparsity=SPARSITY), Net()
    with quiet(), pytest.raises((SystemExit, OSError)) if error else contextlib.nullcontext():
        fit(checkpoint, sparse, Stop(1, error), model=model)
    assert "check_monitor_top_k" not in vars(checkpoint)  # it is itself again
    assert sparse.sparsifier.is_attached
    assert zeros(model.state_dict()) > 100
    fit(checkpoint, sparse, model=model, ckpt_path=tmp_path / "last.ckpt")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_a_checkpoint_saved_on_an_exception_resumes_bit_for_bit(tmp_path):
    whole = fit(SparseTraining(sparsity=SPARSITY))
    saving = OnExceptionCheckpoint(tmp_path, "broken")
    with quiet(), pytest.raises(OSError, match="disk full"):
        fit(
            saving,
            SparseTraining(sparsity=SPARSITY),
            Stop(1, OSError("disk full")),
            enable_checkpointing=True,
        )
    resumed = fit(SparseTraining(sparsity=SPARSITY), ckpt_path=tmp_path / "broken.ckpt")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


def test_a_checkpoint_without_raw_weights_is_refused_and_the_remedy_named(tmp_path):
    fit(ModelCheckpoint(tmp_path, filename="dense"), max_epochs=1)
    with pytest.raises(st3.errors.CheckpointError) as error:
        fit(SparseTraining(sparsity=SPARSITY), ckpt_path=tmp_path / "dense.ckpt")
    assert str(error.value) == (
        "this optimizer state holds no raw weights: the checkpoint was saved without st3, or after finalize(); load "
        "its model weights alone, or load all of it before calling sparsify"
    )


# -------------------------------------------------------------------- how many steps


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"accumulate_grad_batches": 3}, 2 * EPOCHS),  # a step after batches 3 and 4
        ({"max_steps": 10}, 10),
        ({"max_epochs": -1, "max_steps": 10}, 10),
        ({"limit_train_batches": 2}, 2 * EPOCHS),
        ({"fast_dev_run": True}, 1),
        ({"max_time": "00:01:00:00"}, EPOCHS * BATCHES),
        ({"callbacks": GradientAccumulationScheduler({0: 1, 2: 4})}, 2 * BATCHES + (EPOCHS - 2)),
    ],
    ids=lambda value: "" if isinstance(value, int) else " ".join(value),
)
def test_the_ramp_ends_in_the_middle_of_the_steps_that_the_trainer_makes(options, steps):
    sparse, seen = SparseTraining(sparsity=SPARSITY), []

    class Watch(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            seen.append((trainer.global_step, sparse.sparsifier.at_target))

    options = dict(options)
    fit(*filter(None, [options.pop("callbacks", None)]), Watch(), sparse, **options)
    assert sparse.sparsifier.step == steps
    assert min(step for step, at_target in seen if at_target) == max(1, steps // 2)


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield torch.ones(16), torch.tensor(1)


@pytest.mark.parametrize(
    ("data", "options"),
    [(loader(), {"max_epochs": -1}), (DataLoader(Endless(), batch_size=8), {})],
    ids=["no last epoch", "no last batch"],
)
def test_a_run_without_an_end_is_refused(data, options):
    with pytest.raises(ValueError) as error:
        make_trainer(SparseTraining(sparsity=SPARSITY), **options).fit(Net(), data)
    assert str(error.value) == (
        f"SparseTraining must know the number of steps, but max_epochs={options.get('max_epochs', EPOCHS)} and "
        f"max_steps=-1 leave it open with this data: give Trainer(max_steps=...)"
    )


def test_data_without_an_end_trains_for_max_steps():
    sparse = SparseTraining(sparsity=SPARSITY)
    make_trainer(sparse, max_steps=10).fit(Net(), DataLoader(Endless(), batch_size=8))
    assert sparse.sparsifier.step == 10


class TwoOptimizers(Net):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        loss = super().training_step(batch, batch_idx)
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.SGD(self.net[0].parameters(), lr=0.05),
            torch.optim.Adam(self.net[2].parameters()),
        ]


@pytest.mark.parametrize(("options", "steps"), [({}, EPOCHS * BATCHES), ({"max_steps": 20}, 10)])
def test_several_optimizers_step_by_hand(options, steps):
    sparse = SparseTraining(sparsity=SPARSITY, ramp=st3.ramps.Linear(start=0.0, end=1.0))
    model = fit(sparse, model=TwoOptimizers(), **options)
    assert sparse.sparsifier.step == steps
    assert zeros(model.state_dict()) == ZEROS


# -------------------------------------------------------------------- averages


class Mean(WeightAveraging):
    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return True  # after steps, and after epochs


@pytest.mark.parametrize("order", [1, -1])
def test_an_average_is_as_sparse_as_the_model_wherever_it_goes(tmp_path, order):
    checkpoint, sparse = best(tmp_path), SparseTraining(sparsity=SPARSITY)
    callbacks = [Mean(), sparse][::order]
    model = fit(*callbacks, checkpoint)
    assert model.seen[AT_TARGET - 1 :] == [ZEROS] * (EPOCHS - AT_TARGET + 1)  # validated
    assert zeros(stored(checkpoint.best_model_path)["state_dict"]) == ZEROS  # saved
    assert zeros(model.state_dict()) == ZEROS  # what the user gets
    assert sparse.sparsifier.is_finalized
    model = fit(*[Mean(), SparseTraining(sparsity=SPARSITY)][::order])
    assert zeros(model.state_dict()) == ZEROS  # without a checkpoint of the last average, too
    alone = fit(SparseTraining(sparsity=SPARSITY))
    assert not torch.equal(model.net[0].weight, alone.net[0].weight)  # it is the average indeed


def test_a_run_with_an_average_resumes_bit_for_bit(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, save_top_k=-1, filename="{step}")
    whole = fit(Mean(), checkpoint, SparseTraining(sparsity=SPARSITY))
    # With the same callbacks: what is saved is made sparse first, so that saving changes the average.
    saving = ModelCheckpoint(tmp_path / "again", save_top_k=-1)
    resumed = fit(Mean(), saving, SparseTraining(sparsity=SPARSITY), ckpt_path=tmp_path / "step=8.ckpt")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


class AdamWScheduleFree(torch.optim.AdamW):
    """Known by its name."""


class ScheduleFree(Net):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return AdamWScheduleFree(self.parameters())


@pytest.mark.parametrize(
    ("callbacks", "model", "why"),
    [
        ([StochasticWeightAveraging(0.1)], Net, "use Lightning's WeightAveraging beside st3.integrations."),
        (
            [SparseTraining(sparsity=0.5)],
            Net,
            "the trainer has two SparseTraining callbacks: keep one of them",
        ),
        (
            [],
            ScheduleFree,
            "AdamWScheduleFree averages weights and puts the average into the model at eval()",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_step(callbacks, model, why):
    model = model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError) as error:
        fit(*callbacks, SparseTraining(sparsity=SPARSITY), model=model)
    assert why in str(error.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


# -------------------------------------------------------------------- fit, validate, test, predict in any order


def test_evaluation_before_and_after_fit_changes_nothing():
    sparse, model = SparseTraining(sparsity=SPARSITY), Net()
    trainer = make_trainer(sparse)

    def evaluate() -> None:
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for run in (trainer.validate, trainer.test, trainer.predict):
            run(model, loader(1), **({} if run == trainer.predict else {"verbose": False}))
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())

    evaluate()
    assert sparse.sparsifier is None
    trainer.fit(model, loader(), loader(1))
    finished = sparse.sparsifier
    evaluate()
    assert sparse.sparsifier is finished
    assert zeros(model.state_dict()) == ZEROS


def test_a_fit_with_nothing_left_to_train_changes_nothing():
    sparse, model = SparseTraining(sparsity=SPARSITY, ramp="constant"), Net()
    trainer = make_trainer(sparse)
    trainer.fit(model, loader())
    finished, weight = sparse.sparsifier, model.net[0].weight.detach().clone()
    trainer.fit(model, loader())
    assert sparse.sparsifier is finished
    assert torch.equal(model.net[0].weight, weight)


def test_a_second_fit_has_a_ramp_of_its_own_over_the_remaining_steps():
    sparse, model = SparseTraining(sparsity=SPARSITY), Net()
    trainer = make_trainer(sparse)
    trainer.fit(model, loader())
    trainer.fit_loop.max_epochs += 2
    trainer.fit(model, loader())
    assert sparse.sparsifier.step == 2 * BATCHES
    assert sparse.sparsifier.is_finalized
    assert zeros(model.state_dict()) == ZEROS


def test_a_search_for_the_learning_rate_before_fit_changes_nothing(tmp_path):
    whole = fit(SparseTraining(sparsity=SPARSITY))

    class Tuned(Net):
        def __init__(self) -> None:
            super().__init__()
            self.lr = 0.05

    sparse, model = SparseTraining(sparsity=SPARSITY), Tuned()
    trainer = make_trainer(sparse, default_root_dir=tmp_path)  # for the checkpoint that it goes back to
    Tuner(trainer).lr_find(model, loader(), num_training=3, update_attr=False)
    assert sparse.sparsifier is None
    trainer.fit(model, loader(), loader(1))
    assert torch.equal(model.net[0].weight, whole.net[0].weight)


def test_another_model_is_trained_by_the_same_callback():
    sparse = SparseTraining(sparsity=SPARSITY)
    first, second = fit(sparse), fit(sparse)
    assert sparse.sparsifier.model is second
    assert torch.equal(first.net[0].weight, second.net[0].weight)


def test_a_second_fit_resumes_an_earlier_checkpoint_bit_for_bit(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, save_top_k=-1, filename="{step}")
    sparse, model = SparseTraining(sparsity=SPARSITY), Net()
    trainer = make_trainer(sparse, checkpoint)
    trainer.fit(model, loader(), loader(1))
    whole = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trainer.fit(model, loader(), loader(1), ckpt_path=tmp_path / "step=8.ckpt")
    assert sparse.sparsifier.step == EPOCHS * BATCHES
    for name, tensor in whole.items():
        assert torch.equal(model.state_dict()[name], tensor), name


class RestoresLate(SingleDeviceStrategy):
    """Restores a checkpoint after the model is set up, as strategies for sharded models do."""

    restore_checkpoint_after_setup = True


def test_a_checkpoint_of_an_earlier_fit_can_be_tested(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, save_top_k=-1, filename="{step}")
    sparse, model = SparseTraining(sparsity=SPARSITY), Net()
    trainer = make_trainer(sparse, checkpoint, strategy=RestoresLate("cpu"))
    trainer.fit(model, loader(), loader(1))
    trainer.fit_loop.max_epochs += 2
    trainer.fit(model, loader(), loader(1))
    trainer.test(model, loader(1), ckpt_path=tmp_path / "step=8.ckpt", verbose=False)
    with pytest.raises(
        st3.errors.CheckpointError, match="this Trainer has trained before, and its RestoresLate"
    ):
        trainer.fit(model, loader(), loader(1), ckpt_path=tmp_path / "step=8.ckpt")


# -------------------------------------------------------------------- several processes


def same_everywhere(tensor: Tensor) -> bool:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return all(torch.equal(part, parts[0]) for part in parts)


@on_ranks(2)
def test_ddp_trains_sparse_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    options = {"strategy": "ddp", "devices": 2, "max_epochs": EPOCHS}
    checkpoint = best(tmp_path, save_last=True)
    with quiet():
        whole = SparseTraining(sparsity=SPARSITY)
        model = fit(
            checkpoint, whole, ModelCheckpoint(tmp_path, save_top_k=-1, filename="{epoch}"), **options
        )
        again = SparseTraining(sparsity=SPARSITY)
        resumed = fit(again, ckpt_path=tmp_path / "epoch=1.ckpt", **options)
    assert whole.sparsifier.step == EPOCHS * BATCHES // 2  # each process has half of the batches
    assert zeros(model.state_dict()) == ZEROS
    assert zeros(stored(checkpoint.best_model_path)["state_dict"]) == ZEROS
    for name, tensor in model.state_dict().items():
        assert same_everywhere(tensor)
        assert torch.equal(resumed.state_dict()[name], tensor), name


class Sharded(Net):
    def configure_model(self) -> None:
        if isinstance(self.net, FSDPModule):
            return
        fully_shard(self.net[0], mesh=self.device_mesh["data_parallel"])
        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self(batch[0])
        self.log("val_loss", float(self.global_step))


@on_ranks(2)
def test_fsdp2_trains_sparse_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    def train(*callbacks: Any, ckpt_path: Any = None) -> tuple[L.Trainer, Sharded]:
        strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
        trainer, model = make_trainer(*callbacks, strategy=strategy, devices=2), Sharded()
        trainer.fit(model, loader(), loader(1), ckpt_path=ckpt_path)
        return trainer, model

    def whole(model: Sharded) -> dict[str, Tensor]:
        return {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}

    checkpoint, sparse = best(tmp_path), SparseTraining(sparsity=SPARSITY)
    early = tmp_path / "epoch=1.ckpt"
    with quiet():
        trainer, model = train(
            checkpoint, sparse, ModelCheckpoint(tmp_path, save_top_k=-1, filename="{epoch}")
        )
        weights = whole(model)
        _, resumed = train(SparseTraining(sparsity=SPARSITY), ckpt_path=early)
        with pytest.raises(
            st3.errors.CheckpointError, match="this Trainer has trained before, and its ModelPar"
        ):
            trainer.fit(model, loader(), loader(1), ckpt_path=early)
    assert sparse.sparsifier.is_finalized
    assert checkpoint.best_model_score == EPOCHS * BATCHES / 4
    assert zeros(weights) == ZEROS
    for name, tensor in whole(resumed).items():
        assert torch.equal(weights[name], tensor), name


@pytest.mark.slow
@pytest.mark.distributed
def test_ddp_spawn_trains_sparse_and_leaves_no_sparsifier_in_the_parent(tmp_path):
    sparse, checkpoint, model = SparseTraining(sparsity=SPARSITY), best(tmp_path), Net()
    trainer = make_trainer(sparse, checkpoint, strategy="ddp_spawn", devices=2)
    trainer.fit(model, loader(), loader(1))
    assert sparse.sparsifier is None
    assert zeros(model.state_dict()) == ZEROS
    assert zeros(stored(checkpoint.best_model_path)["state_dict"]) == ZEROS


# -------------------------------------------------------------------- packages


def test_the_other_package_name_works_as_well(tmp_path):
    other = pytest.importorskip("pytorch_lightning")
    namespace = {
        key: value for key, value in vars(Net).items() if key in vars(Net) and not key.startswith("__")
    }

    def init(self: Any) -> None:
        other.LightningModule.__init__(self)
        torch.manual_seed(0)
        self.net, self.seen = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)), []

    model = type("OtherNet", (other.LightningModule,), {**namespace, "__init__": init})()
    checkpoint = other.callbacks.ModelCheckpoint(tmp_path, monitor="val_loss")
    sparse = SparseTraining(sparsity=SPARSITY)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = other.Trainer(max_epochs=EPOCHS, accelerator="cpu", callbacks=[sparse, checkpoint], **quiet)
    trainer.fit(model, loader(), loader(1))
    assert zeros(model.state_dict()) == ZEROS
    assert zeros(stored(checkpoint.best_model_path)["state_dict"]) == ZEROS


def test_without_lightning_the_import_says_what_to_install(monkeypatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "st3.integrations.lightning")
    with pytest.raises(ImportError) as error:
        importlib.import_module("st3.integrations.lightning")
    assert str(error.value) == "st3.integrations.lightning needs Lightning: pip install 'st3[lightning]'"
