"""A tiny GPT-2 learns to write like docstrings of the standard library, dense and with 80 % zeros, and is reloaded."""

import ast
import math
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import st3
from st3.integrations.huggingface import SparseTrainingCallback

PACKAGES = ["asyncio", "json", "logging", "unittest"]
LENGTH, TEST, EPOCHS = 64, 100, 2  # characters of a piece, pieces held out


def pieces() -> list[dict[str, list[int]]]:
    """Return the docstrings of some packages, one after another, as pieces of bytes."""
    texts = []
    for package in PACKAGES:
        for path in sorted((Path(sysconfig.get_path("stdlib")) / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    texts.append(ast.get_docstring(node) or "")
    letters = "\n".join(filter(None, texts)).encode("ascii", "ignore")
    cut = [list(letters[i : i + LENGTH]) for i in range(0, len(letters) - LENGTH, LENGTH)]
    return [{"input_ids": piece, "labels": piece} for piece in cut]


def train(data: list[Any], callbacks: list[Any]) -> tuple[GPT2LMHeadModel, float]:
    """Return a trained model and its loss on held-out text, in bits per character."""
    set_seed(0)
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": LENGTH, "vocab_size": 128}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    usual = {"per_device_train_batch_size": 32, "learning_rate": 3e-3, "use_cpu": True, "report_to": "none"}
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, num_train_epochs=EPOCHS, save_strategy="no", **usual)
        trainer = Trainer(model, args, None, data[TEST:], data[:TEST], callbacks=callbacks)
        trainer.train()
        return model, trainer.evaluate()["eval_loss"] / math.log(2)


if __name__ == "__main__":
    data = pieces()
    _, dense = train(data, [])
    model, sparse = train(
        data, [SparseTrainingCallback(sparsity=0.8)]
    )  # Conv1D layers; embeddings stay dense
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = GPT2LMHeadModel.from_pretrained(folder)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
    print(f"zeros after reloading: {st3.report(again).zeros:,}")
    print(f"bits per character on {TEST} pieces: dense {dense:.2f}, 80 % zeros {sparse:.2f}")
