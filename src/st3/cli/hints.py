"""Hints for options that `st3 train` does not have, but that users of other programs try."""

from collections.abc import Iterator

__all__ = ["add_hint"]

# Option -> what to give instead. Settings of the spec under their own names are found without this table.
INSTEAD = {
    "--amp": "--precision bfloat16",
    "--arch": "--model NAME",
    "--batch": "--set batch_size=64",
    "--bf16": "--precision bfloat16",
    "--bs": "--set batch_size=64",
    "--checkpoint": "--run FOLDER --resume",
    "--cpu": "--device cpu",
    "--cuda": "--device cuda",
    "--dataset": "--data NAME",
    "--dense": "--method dense",
    "--fp16": "--precision float16",
    "--gpu": "--device cuda",
    "--gpus": "torchrun --nproc-per-node 2 -m st3 -- train",
    "--grad-clip": "--set clip_norm=3.0",
    "--learning-rate": "--set optimizer.lr=0.05",
    "--lr-scheduler": "--set rate.kind=cosine",
    "--network": "--model NAME",
    "--name": "--run FOLDER",
    "--num-epochs": "--epochs N",
    "--num-workers": "--workers N",
    "--optim": "--set optimizer.name=adamw",
    "--optimizer": "--set optimizer.name=adamw",
    "--out": "--run FOLDER",
    "--output": "--run FOLDER",
    "--output-dir": "--run FOLDER",
    "--ramp": "--set sparse.ramp=linear",
    "--scheduler": "--set rate.kind=cosine",
    "--warmup-epochs": "--set rate.warmup=5",
    "--wd": "--set optimizer.weight_decay=1e-4",
}
EXAMPLES = {"lr": "0.05", "batch_size": "64", "weight_decay": "1e-4", "warmup": "5", "clip_norm": "3.0"}


def add_hint(error: Exception) -> None:
    """Tell in a usage error of `st3 train` what to give instead of an option that it does not have."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if (
        option is None
        or getattr(context, "info_name", None) != "train"
        or not hasattr(error, "possibilities")
    ):
        return
    if instead := INSTEAD.get(option) or _setting(option):
        error.message = f"No such option: {option}; give {instead} instead."  # type: ignore[attr-defined]
        error.possibilities = None  # no guess beside the answer


def _setting(option: str) -> str:
    """Return how to change the setting of the spec that has the name of the option; empty if there is none.

    >>> _setting("--batch-size"), _setting("--momentum"), _setting("--colour")
    ('--set batch_size=64', '--set optimizer.momentum=VALUE', '')
    """
    name = option.lstrip("-").replace("-", "_")
    key = next((key for key in _keys() if key.rpartition(".")[2] == name), None)
    return "" if key is None else f"--set {key}={EXAMPLES.get(name, 'VALUE')}"


def _keys() -> Iterator[str]:
    """Yield the dotted keys of the recipe and of the section `sparse`, as `--set` takes them."""
    from ..experiments.spec import SparseSpec
    from ..training.rates import StepRate
    from ..training.recipe import OptimizerRecipe, Recipe
    from ..training.sections import Section

    sections: dict[str, type[Section]] = {
        "": Recipe,
        "optimizer.": OptimizerRecipe,
        "rate.": StepRate,
        "sparse.": SparseSpec,
    }
    for prefix, section in sections.items():
        yield from (f"{prefix}{name}" for name in section.model_fields)
