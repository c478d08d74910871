"""One callback in the Hugging Face Trainer: sparse, resumed bit for bit, best only at the target."""

import contextlib
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.integrations.test_accelerate import accelerated, force_fsdp2
from tests.processes import on_ranks
from torch import Tensor

import st3


def load_tiny_trainer() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that transformers imports
        from tests.integrations import tiny_trainer

    return tiny_trainer


@pytest.fixture(scope="module")
def hf() -> ModuleType:
    return load_tiny_trainer()


def weights(trainer: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def assert_same(these: dict[str, Tensor], others: dict[str, Tensor]) -> None:
    assert these.keys() == others.keys()
    assert [name for name in these if not torch.equal(these[name], others[name])] == []


def stopped_early() -> Any:
    return pytest.warns(
        UserWarning, match="training ended at step . of 12 with a sparsity of 0.*, below the target"
    )


def names(callback: Any) -> list[str]:
    return [layer.name for layer in callback.sparsifier.layers]


# -------------------------------------------------------------------------------- a run


def test_a_run_ends_with_the_zeros_that_were_asked_for_and_prints_the_report(hf, tmp_path, capsys):
    callback = hf.sparse()
    trainer = hf.trainer(tmp_path, callback)
    trainer.train()
    assert hf.zeros(trainer.model.state_dict(), names(callback)) == 2102  # 0.9 of 2,336
    assert callback.sparsifier.is_finalized
    assert "89.98 % of 2,336 weights in 8 layers, target 90.00 %, step 12" in capsys.readouterr().out


def test_the_ramp_ends_with_the_last_update_step_of_an_accumulating_run(hf, tmp_path):
    # 4 batches in an epoch, 3 of them in a step: a whole step and an incomplete one.
    callback = hf.sparse(ramp=hf.FLAT_OUT)
    trainer = hf.trainer(tmp_path, callback, gradient_accumulation_steps=3, logging_steps=1)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["at_target"] for row in rows] == [0, 0, 0, 0, 0, 1]
    assert [row["sparsity_asked"] for row in rows] == pytest.approx([0.15, 0.3, 0.45, 0.6, 0.75, 0.9])


def test_evaluating_and_predicting_before_training_changes_nothing(hf, tmp_path):
    callback = hf.sparse()
    trainer = hf.trainer(tmp_path, callback)
    before = weights(trainer)
    trainer.evaluate()
    trainer.predict(trainer.eval_dataset)
    assert callback.sparsifier is None
    assert_same(weights(trainer), before)
    trainer.train()
    sparse = weights(trainer)
    trainer.evaluate()
    assert_same(weights(trainer), sparse)


def test_metrics_join_the_rows_of_loggers_that_come_first_and_add_none(hf, tmp_path):
    class Logger(hf.TrainerCallback):
        def __init__(self) -> None:
            self.rows: list[dict[str, float]] = []

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.rows.append(dict(kwargs["logs"]))

    logger, plain = Logger(), Logger()
    trainer = hf.trainer(tmp_path, logger, hf.sparse(), eval_strategy="epoch")
    trainer.train()
    hf.trainer(tmp_path, plain, eval_strategy="epoch").train()
    metrics = {"sparsity", "sparsity_asked", "threshold", "at_target", "collapsed_layers"}
    assert len(logger.rows) == len(plain.rows) == len(trainer.state.log_history)
    for row, dense, kept in zip(logger.rows, plain.rows, trainer.state.log_history, strict=True):
        assert row.keys() - dense.keys() == (metrics if "loss" in dense else set())
        assert kept.items() >= row.items()
    assert logger.rows[-4]["sparsity"] == 2102 / 2336


# -------------------------------------------------------------------------------- resuming


SAVING = {"save_strategy": "steps", "save_steps": 3}


@pytest.fixture(scope="module")
def whole(hf, tmp_path_factory) -> Any:
    """A run that nothing has interrupted."""
    trainer = hf.trainer(tmp_path_factory.mktemp("whole"), hf.sparse(), **SAVING)
    trainer.train()
    return trainer


@pytest.mark.parametrize("step", [3, 9], ids=["in the ramp", "after it"])
def test_a_run_resumes_bit_for_bit_from_the_trainers_checkpoint(hf, whole, tmp_path, step):
    with stopped_early() if step == 3 else contextlib.nullcontext():
        hf.trainer(tmp_path, hf.sparse(), hf.Script(stop=step), **SAVING).train()
    rest = hf.trainer(tmp_path, hf.sparse(), model=hf.bert(seed=5), **SAVING)
    rest.train(resume_from_checkpoint=True)
    assert_same(weights(rest), weights(whole))
    assert thresholds(rest) == thresholds(whole)


def thresholds(trainer: Any) -> list[float]:
    return [row["threshold"] for row in trainer.state.log_history if "loss" in row]


def test_an_interrupted_run_resumes_bit_for_bit_in_the_same_process(hf, whole, tmp_path):
    callback, script = hf.sparse(), hf.Script(fail=5)
    trainer = hf.trainer(tmp_path, callback, script, **SAVING)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert callback.sparsifier.is_attached
    script.fail = None
    trainer.train(resume_from_checkpoint=True)
    assert_same(weights(trainer), weights(whole))


def test_a_step_that_an_overflow_has_skipped_does_not_shift_the_ramp_of_a_resumed_run(hf, tmp_path):
    class Overflow(hf.TrainerCallback):
        """Says what a gradient scaler says to a fused optimizer, in the second step."""

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            inner = kwargs["optimizer"].optimizer
            inner.grad_scale, inner.found_inf = torch.tensor(1.0), torch.tensor(float(state.global_step == 1))

    options = {"save_strategy": "steps", "save_steps": 4, "optim": "adamw_torch_fused"}
    ramp = st3.ramps.Linear(start=0.0, end=0.9)  # to the 11th step of 12, to the 10th of 11
    callback = hf.sparse(ramp=ramp)
    whole = hf.trainer(tmp_path / "whole", callback, Overflow(), **options)
    whole.train()
    assert callback.sparsifier.step == 11
    with stopped_early():
        hf.trainer(tmp_path / "parts", hf.sparse(ramp=ramp), Overflow(), hf.Script(stop=4), **options).train()
    rest = hf.trainer(tmp_path / "parts", hf.sparse(ramp=ramp), Overflow(), **options)
    rest.train(resume_from_checkpoint=True)
    assert_same(weights(rest), weights(whole))


def test_a_checkpoint_without_its_optimizer_is_refused(hf, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 4, "save_only_model": True}
    with stopped_early():
        hf.trainer(tmp_path, hf.sparse(), hf.Script(stop=4), **options).train()
    with pytest.raises(st3.errors.CheckpointError) as error:
        hf.trainer(tmp_path, hf.sparse(), **options).train(resume_from_checkpoint=True)
    assert str(error.value) == (
        "the checkpoint at step 4 of a sparse run brought no raw weights with its optimizer: save with "
        "save_only_model=False and train without FSDP, or start anew from these weights with from_sparse=True and "
        "without resume_from_checkpoint"
    )


def test_a_dense_run_that_is_resumed_sparse_has_its_ramp_in_the_steps_that_are_left(hf, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2}
    hf.trainer(tmp_path, hf.Script(stop=4), **options).train()
    with stopped_early():
        first = hf.trainer(tmp_path, hf.sparse(ramp=hf.FLAT_OUT), hf.Script(stop=8), **options)
        first.train(resume_from_checkpoint=True)
    trainer = hf.trainer(tmp_path, hf.sparse(ramp=hf.FLAT_OUT), **options)
    trainer.train(resume_from_checkpoint=True)
    asked = {row["step"]: row.get("sparsity_asked") for row in trainer.state.log_history if "loss" in row}
    assert asked == pytest.approx({2: None, 4: None, 6: 0.225, 8: 0.45, 10: 0.675, 12: 0.9})


def test_a_second_run_of_the_same_trainer_is_sparse_again(hf, tmp_path):
    callback = hf.sparse()
    trainer = hf.trainer(tmp_path, callback)
    trainer.train()
    first, once = callback.sparsifier, weights(trainer)
    trainer.train()
    assert callback.sparsifier is not first
    assert callback.sparsifier.step == 12
    assert hf.zeros(trainer.model.state_dict(), names(callback)) == 2102
    assert any(not torch.equal(once[name], tensor) for name, tensor in weights(trainer).items())


# -------------------------------------------------------------------------------- the best checkpoint


@pytest.mark.parametrize("is_first", [True, False], ids=["before early stopping", "after it"])
def test_best_checkpoint_and_patience_count_from_the_target_on(hf, tmp_path, is_first):
    """The ramp ends at step 6, and the model is evaluated after every second step."""
    callback = hf.sparse()
    both = [callback, hf.EarlyStoppingCallback(early_stopping_patience=1)]
    scores = [0.9, 0.8, 0.5, 0.6, 0.4]
    trainer = hf.trainer(tmp_path, *(both if is_first else both[::-1]), scores=scores, save_total_limit=1)
    trainer.train()
    assert trainer.state.global_step == 10
    assert trainer.state.best_metric == 0.6
    assert Path(trainer.state.best_model_checkpoint).name == "checkpoint-8"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-8"]
    assert_same(weights(trainer), hf.saved(tmp_path, 8))
    assert hf.zeros(hf.saved(tmp_path, 8), names(callback)) == 2102


def test_a_run_that_never_reaches_the_target_has_no_best_checkpoint_and_says_so(hf, tmp_path):
    callback = hf.sparse()
    trainer = hf.trainer(tmp_path, callback, hf.Script(stop=4), scores=[0.9, 0.8])
    with stopped_early() as caught:
        trainer.train()
    assert [str(warning.message) for warning in caught] == [
        "training ended at step 4 of 12 with a sparsity of 0.8664, below the target: the model is not finalized, and "
        "no checkpoint counts as the best; go on with train(resume_from_checkpoint=True), or train anew with fewer "
        "steps"
    ]
    state = trainer.state
    assert state.best_metric is state.best_global_step is state.best_model_checkpoint is None
    assert_same(weights(trainer), hf.saved(tmp_path, 4))  # the last, not the best of the dense ones
    assert callback.sparsifier.is_attached


@pytest.mark.parametrize("stop", [4, 8], ids=["below the target", "at the target"])
def test_a_resumed_run_remembers_only_a_best_checkpoint_at_the_target(hf, tmp_path, stop):
    scores = [0.9, 0.8, 0.5, 0.6, 0.4, 0.3]
    with contextlib.nullcontext() if stop == 8 else stopped_early():
        hf.trainer(tmp_path, hf.sparse(), hf.Script(stop=stop), scores=scores[: stop // 2]).train()
    said = json.loads((tmp_path / f"checkpoint-{stop}" / "trainer_state.json").read_text())["best_metric"]
    assert said == scores[stop // 2 - 1]
    trainer = hf.trainer(tmp_path, hf.sparse(), scores=scores[stop // 2 :])
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.best_metric == 0.6
    assert Path(trainer.state.best_model_checkpoint).name == "checkpoint-8"


def test_the_best_checkpoint_of_a_dense_run_is_forgotten_when_it_is_resumed_sparse(hf, tmp_path):
    early = hf.EarlyStoppingCallback(early_stopping_patience=1)
    hf.trainer(tmp_path, hf.Script(stop=4), early, scores=[0.8, 0.9]).train()
    callback = hf.sparse(ramp="constant")  # at the target from the beginning
    scores = [0.1, 0.5, 0.6, 0.4]
    trainer = hf.trainer(tmp_path, callback, early, scores=scores, eval_on_start=True)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 10
    assert trainer.state.best_metric == 0.6
    assert hf.zeros(weights(trainer), names(callback)) == 2102


# -------------------------------------------------------------------------------- optimizers and models


@pytest.mark.parametrize("optim", ["adamw_torch", "adafactor", "sgd", "rmsprop", "adagrad"])
def test_optimizers_of_the_trainer_train_sparse(hf, tmp_path, optim):
    trains_sparse(hf, tmp_path, optim)


@pytest.mark.slow  # compiles its step
def test_an_optimizer_with_a_state_of_8_bits_trains_sparse(hf, tmp_path):
    trains_sparse(hf, tmp_path, "adamw_torch_8bit")


def trains_sparse(hf: Any, folder: Path, optim: str) -> None:
    callback = hf.sparse()
    trainer = hf.trainer(folder, callback, optim=optim, num_train_epochs=1)
    trainer.train()
    assert hf.zeros(trainer.model.state_dict(), names(callback)) == 2102


class AdamWScheduleFree(torch.optim.AdamW):
    """Looks like the optimizer that the trainer makes for optim="schedule_free_adamw"."""

    def train(self) -> None: ...

    def eval(self) -> None: ...


def test_schedule_free_optimizers_are_refused_before_the_first_step(hf, tmp_path):
    made = {"optimizer_cls_and_kwargs": (AdamWScheduleFree, {"lr": 1e-3})}
    with pytest.raises(
        ValueError, match=r"^AdamWScheduleFree averages weights and puts the average into the model"
    ):
        hf.trainer(tmp_path, hf.sparse(), others=made).train()


def test_optimizers_that_step_in_the_backward_pass_are_refused(hf, tmp_path):
    made = {"optimizer_cls_and_kwargs": (hf.LayerWiseDummyOptimizer, {"optimizer_dict": {}})}
    with pytest.raises(
        ValueError, match=r"^the optimizer does not own 'bert.encoder.layer.0.attention.self.query"
    ):
        hf.trainer(tmp_path, hf.sparse(), others=made).train()


def test_a_language_model_is_sparse_and_its_tied_embedding_is_counted_once(hf, tmp_path):
    callback = hf.sparse(include=[st3.USUAL, "*.wte.weight"])
    model, data = hf.gpt2(), hf.Continuations(16)
    trainer = hf.trainer(tmp_path, callback, model=model, data=data, gradient_checkpointing=True)
    trainer.train()
    assert {type(module).__name__ for module in model.transformer.h[0].mlp.children()} >= {"Conv1D"}
    assert len(names(callback)) == 5
    assert (
        hf.zeros(model.state_dict(), names(callback)) == 3484
    )  # 0.9 of 3,072 in Conv1D and 800 in the embedding
    assert model.lm_head.weight is model.transformer.wte.weight


def test_a_subclass_of_the_trainer_trains_an_encoder_with_a_decoder(hf, tmp_path):
    callback = hf.sparse()
    kinds = {"made_by": hf.Seq2SeqTrainer, "arguments": hf.Seq2SeqTrainingArguments}
    trainer = hf.trainer(tmp_path, callback, model=hf.t5(), data=hf.Continuations(16), **kinds)
    trainer.train()
    assert hf.zeros(trainer.model.state_dict(), names(callback)) == 4608  # 0.9 of 5,120


# -------------------------------------------------------------------------------- mistakes


def test_without_transformers_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "st3.integrations.huggingface", raising=False)
    with pytest.raises(ImportError) as error:
        import st3.integrations.huggingface  # noqa: F401
    assert str(error.value) == (
        "st3.integrations.huggingface needs transformers and accelerate: pip install 'st3[huggingface]'"
    )


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("total_steps", "it comes from the trainer"),
        (
            "sparsty",
            "it takes sparsity, method, ramp, allocation, block, include, exclude, layer_sparsity, min_weights, ",
        ),
    ],
)
def test_an_option_that_does_not_belong_here_is_refused_at_once(hf, option, why):
    with pytest.raises(TypeError) as error:
        hf.sparse(**{option: 1})
    assert str(error.value).startswith(f"SparseTrainingCallback takes no argument {option!r}: {why}")


# -------------------------------------------------------------------------------- two processes


@contextlib.contextmanager
def distributed_trainer() -> Iterator[ModuleType]:
    with accelerated():
        yield load_tiny_trainer()


@pytest.mark.slow  # every process imports transformers
@on_ranks(2)
def test_two_processes_train_the_same_sparse_model_and_resume_bit_for_bit(tmp_path: Path) -> None:
    with distributed_trainer() as hf:
        whole, rest = hf.sparse(), hf.sparse()
        trainer = hf.trainer(tmp_path / "whole", whole, **SAVING)
        assert trainer.state.max_steps == 0
        trainer.train()
        assert trainer.state.max_steps == 6  # half of the batches each
        assert hf.zeros(trainer.model.state_dict(), names(whole)) == 2102
        first = weights(trainer)
        for tensor in first.values():
            theirs = tensor.clone()
            dist.broadcast(theirs, src=0)
            assert torch.equal(tensor, theirs)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hf.trainer(tmp_path / "parts", hf.sparse(), hf.Script(stop=3), **SAVING).train()
        trainer = hf.trainer(tmp_path / "parts", rest, model=hf.bert(seed=5), **SAVING)
        trainer.train(resume_from_checkpoint=True)
        assert_same(weights(trainer), first)


@pytest.mark.slow  # every process imports transformers
@on_ranks(2)
def test_sharded_weights_are_sparse_over_all_processes_and_cannot_be_resumed(tmp_path: Path) -> None:
    with distributed_trainer() as hf:
        callback = hf.sparse()
        trainer = sharded(hf.trainer(tmp_path, callback, **SAVING))
        expected = pytest.warns(
            UserWarning, match="this run cannot be resumed from its checkpoints: under FSDP"
        )
        with expected if dist.get_rank() == 0 else contextlib.nullcontext():
            trainer.train()
        assert all(layer.is_distributed for layer in callback.sparsifier.layers)
        assert callback.sparsifier.report().zeros == 2102
        with pytest.raises(st3.errors.CheckpointError, match="brought no raw weights with its optimizer"):
            sharded(hf.trainer(tmp_path, hf.sparse(), **SAVING)).train(tmp_path / "checkpoint-3")


def sharded(trainer: Any) -> Any:
    force_fsdp2(trainer.accelerator)
    trainer.is_fsdp_enabled = True
    return trainer
