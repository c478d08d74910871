"""A Hugging Face Trainer whose whole run takes a moment: a BERT of 2,336 sparsifiable weights, 12 steps.

Not imported at the top of a test file: transformers takes seconds to import, and every process of the test run
collects all files.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_pt_utils import LayerWiseDummyOptimizer

import st3
from st3.integrations.huggingface import SparseTrainingCallback

__all__ = [
    "FLAT_OUT",
    "Continuations",
    "EarlyStoppingCallback",
    "LayerWiseDummyOptimizer",
    "Script",
    "Seq2SeqTrainer",
    "Seq2SeqTrainingArguments",
    "TrainerCallback",
    "bert",
    "gpt2",
    "llama",
    "saved",
    "sparse",
    "t5",
    "trainer",
    "zeros",
]

ENDS = {"bos_token_id": 0, "eos_token_id": 1}
FLAT_OUT = st3.ramps.Linear(start=0.0, end=1.0)  # at the target in the very last step only


class Words(Dataset[dict[str, Tensor]]):
    """Sequences of 8 words; the label says whether the first word comes after the second."""

    def __init__(self, count: int) -> None:
        self.words = torch.randint(0, 50, (count, 8), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        words = self.words[index]
        return {"input_ids": words, "labels": (words[0] > words[1]).long()}


class Continuations(Words):
    """The same sequences for a model that predicts every next word."""

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.words[index], "labels": self.words[index]}


class Script(TrainerCallback):
    """Does something at the end of some steps, such as to stop."""

    def __init__(self, stop: int | None = None, fail: int | None = None) -> None:
        self.stop, self.fail = stop, fail

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.fail:
            raise KeyboardInterrupt
        if state.global_step == self.stop:
            control.should_training_stop = True


class Scores:
    """Evaluation results that are known beforehand, one after the other."""

    def __init__(self, *scores: float) -> None:
        self.scores = list(scores)

    def __call__(self, predictions: Any) -> dict[str, float]:
        return {"score": self.scores.pop(0)}


def bert(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=8, **sizes))


def gpt2() -> nn.Module:
    """Return a model of Conv1D layers whose output layer is its embedding."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=1, n_head=2, **ENDS))


def llama() -> nn.Module:
    """Return a model of linear layers with a head of its own."""
    torch.manual_seed(0)
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 8}
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, **sizes, **heads, **ENDS))


def t5() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=50, decoder_start_token_id=0, **sizes))


def sparse(**options: Any) -> SparseTrainingCallback:
    return SparseTrainingCallback(**{"sparsity": 0.9, **options})


def trainer(
    folder: Path,
    *callbacks: TrainerCallback,
    model: nn.Module | None = None,
    scores: Sequence[float] = (),
    made_by: Any = Trainer,
    arguments: Any = TrainingArguments,
    data: Dataset[Any] | None = None,
    others: dict[str, Any] | None = None,
    **options: Any,
) -> Trainer:
    """Return a trainer of 3 epochs with 4 steps each; with `scores`, it evaluates and saves after every second step."""
    usual: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "num_train_epochs": 3,
        "learning_rate": 1e-3,
        "logging_steps": 2,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
    }
    if scores:
        best = {"metric_for_best_model": "score", "greater_is_better": True, "load_best_model_at_end": True}
        usual |= {
            "eval_strategy": "steps",
            "eval_steps": 2,
            "save_strategy": "steps",
            "save_steps": 2,
            **best,
        }
    data = Words(16) if data is None else data
    return made_by(
        model=bert() if model is None else model,
        args=arguments(**{**usual, **options}),
        train_dataset=data,
        eval_dataset=data,
        compute_metrics=Scores(*scores) if scores else None,
        callbacks=list(callbacks),
        **(others or {}),
    )


def zeros(tensors: dict[str, Tensor], names: Iterable[str]) -> int:
    return sum(int((tensors[name] == 0).sum()) for name in names)


def saved(folder: Path, step: int) -> dict[str, Tensor]:
    """Return the weights in the trainer's checkpoint."""
    return load_file(folder / f"checkpoint-{step}" / "model.safetensors")
