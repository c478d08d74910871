"""A tiny BERT learns which package of the standard library a docstring is from, then is fine-tuned to 90 % zeros."""

import ast
import random
import re
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from st3.integrations.huggingface import SparseTrainingCallback

PACKAGES = ["asyncio", "email", "importlib", "logging", "multiprocessing", "unittest"]
WORDS, KNOWN, TEST = 32, 2000, 300  # words of a text, words in the vocabulary, texts held out
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}


def docstrings() -> list[tuple[list[str], int]]:
    """Return the words of every docstring, without the package's name, and the number of its package."""
    found = []
    for label, package in enumerate(PACKAGES):
        for path in sorted((Path(sysconfig.get_path("stdlib")) / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    text = (ast.get_docstring(node) or "").lower().replace(package, "")
                    found.append((re.findall(r"\w+", text)[:WORDS], label))
    found = [row for row in found if len(row[0]) >= 4]
    return random.sample(found, len(found))


def encode(words: list[str], label: int, numbers: dict[str, int]) -> dict[str, Any]:
    ids = [numbers.get(word, 1) for word in words] + [0] * (WORDS - len(words))  # 1: a rare word, 0: none
    return {"input_ids": ids, "attention_mask": [int(i > 0) for i in ids], "labels": label}


def train(model: Any, data: list[Any], epochs: int, callbacks: list[Any]) -> float:
    each = {"eval_strategy": "epoch", "save_strategy": "epoch", "logging_strategy": "epoch"}
    best = {"metric_for_best_model": "accuracy", "load_best_model_at_end": True, "save_total_limit": 1}
    usual = {"per_device_train_batch_size": 32, "learning_rate": 1e-3, "use_cpu": True, "report_to": "none"}
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, num_train_epochs=epochs, **each, **best, **usual)
        score = {"compute_metrics": lambda p: {"accuracy": float((p[0].argmax(1) == p[1]).mean())}}
        trainer = Trainer(model, args, None, data[TEST:], data[:TEST], callbacks=callbacks, **score)
        trainer.train()
        return trainer.evaluate()["eval_accuracy"]


if __name__ == "__main__":
    set_seed(0)
    rows = docstrings()
    counts = Counter(word for words, _ in rows[TEST:] for word in words).most_common(KNOWN - 2)
    numbers = {word: i for i, (word, _) in enumerate(counts, start=2)}
    data = [encode(*row, numbers) for row in rows]
    model = BertForSequenceClassification(BertConfig(vocab_size=KNOWN, num_labels=len(PACKAGES), **SIZES))
    dense = train(model, data, 6, [])
    sparse = train(model, data, 10, [SparseTrainingCallback(sparsity=0.9, exclude=["classifier"])])
    print(f"accuracy on {TEST} docstrings: dense {dense:.3f}, 90 % zeros {sparse:.3f}")
