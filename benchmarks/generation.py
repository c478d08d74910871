"""Tokens per second of a GPT with a key-value cache, one token at a time: the engine against torch and ONNX Runtime.

    python benchmarks/generation.py --output results/benchmarks/generation.json        # the shape of GPT-2 small
    python benchmarks/generation.py --run RUN --output results/benchmarks/generation-small.json

Weights are fresh, with random masks of the same sparsity in every linear layer; the head is dense, as where it is tied
to the embedding, or sparse like the others. With --run, the model is that of a run of `st3 train --data text`. All
contestants are in one process and take turns; before each turn they stand after the same prompt. Memory is measured in
processes of its own: what reading the model and a few tokens adds to one that has imported the library.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from generation_rivals import Growing, OnnxRuntime, Step, past_of, quantised, written
from safetensors.torch import load_file, save_file
from timing import ratio, record, take_turns

import st3
from st3.engine import native
from st3.models.gpt import GPT

SMALL = {"vocabulary": 50257, "context": 1024, "layers": 12, "heads": 12, "width": 768}  # GPT-2 small
PROMPT, TOKENS = 128, 8  # tokens read before a turn, tokens of a turn
FLOATS = ("torch float32", "ONNX Runtime float32")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--run", help="folder of a run, in place of the shape of GPT-2 small")
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--sparsities", type=float, nargs="+", default=[0.8, 0.9, 0.95, 0.98])
    options.add_argument("--no-files", action="store_true", help="do not measure files and memory")
    options.add_argument("--output")
    options.add_argument(
        "--memory", nargs=3, help=argparse.SUPPRESS
    )  # a process of its own: way, file, shape
    chosen = options.parse_args()
    if chosen.memory:
        print(_memory(*chosen.memory))
        return
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        models = _of_run(chosen.run) if chosen.run else _fresh(chosen.sparsities)
        plain = written(next(iter(models.values())), Path(folder) / "model.onnx")
        onnx = {"ONNX Runtime float32": plain, "ONNX Runtime int8": quantised(plain)}
        rows = [_measure(models, onnx, threads, chosen.rounds) for threads in chosen.threads]
        if not chosen.no_files:
            rows.append(_files(models, onnx, Path(folder)))
    spec = {
        "run": "a run" if chosen.run else None,
        "prompt": _prompt(next(iter(models.values()))),
        "tokens": TOKENS,
        "rounds": chosen.rounds,
    }
    record(chosen.output, spec | {"shape": _shape(next(iter(models.values())))}, rows)


def _fresh(sparsities: list[float]) -> dict[str, GPT]:
    """Return the models by what the table calls them; the rivals run the first, the dense one."""
    torch.manual_seed(0)
    dense = GPT(**SMALL).eval()
    made = {"dense": dense}
    for head in ("dense", "sparse"):
        for sparsity in sparsities:
            model = GPT(**SMALL).eval()
            model.load_state_dict(dense.state_dict())
            _mask(model, sparsity, keep="head" if head == "dense" else "")
            made[f"{sparsity:.0%}, {head} head"] = model
    return made


def _mask(model: GPT, sparsity: float, keep: str) -> None:
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != keep:
            weight = module.weight
            kept = torch.rand(weight.shape).flatten().topk(round((1 - sparsity) * weight.numel())).indices
            weight.copy_(torch.zeros_like(weight).flatten().index_fill(0, kept, 1).view_as(weight) * weight)


def _of_run(run: str) -> dict[str, GPT]:
    from st3.experiments.rebuilt import rebuild
    from st3.experiments.stored_model import read_stored_model

    stored = read_stored_model(Path(run))
    model = rebuild(stored, stored.made_by(None), stored.shape).network
    return {f"{st3.report(model).sparsity:.0%}": model}


def _shape(model: GPT) -> dict[str, int]:
    heads = model.blocks[0].heads
    rows, width = model.characters.weight.shape
    return dict(zip(SMALL, (rows, model.context, len(model.blocks), heads, width), strict=True))


# ---------------------------------------------------------------- speed


def _measure(models: dict[str, GPT], onnx: dict[str, Path], threads: int, rounds: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    first = next(iter(models.values()))
    prompt = torch.randint(0, first.characters.num_embeddings, (1, _prompt(first) + TOKENS))
    ways: dict[str, Any] = {FLOATS[0]: Growing(first)}
    ways |= {name: OnnxRuntime(file, threads) for name, file in onnx.items()}
    for name, model in models.items():
        ways[f"st3 engine, {name}"] = Engine(model.decoder().eval(), threads)
    past = past_of(first, prompt[:, :-TOKENS])
    turns = {name: _turn(way, prompt, past) for name, way in ways.items()}
    answers = {name: turn() for name, turn in turns.items()}
    seconds = take_turns(turns, rounds)
    rival = min(FLOATS, key=lambda name: min(seconds[name]))
    of_model = {f"st3 engine, {name}": _own_answer(model, prompt) for name, model in models.items()}
    return {
        "threads": threads,
        "fastest float32 rival": rival,
        "ways": {
            name: {
                "speed": ratio(seconds, rival, name),
                "tokens per second": round(TOKENS / min(each), 1),
                "difference": _difference(answers[name], of_model.get(name, answers[FLOATS[0]])),
            }
            for name, each in seconds.items()
        },
    }


def _prompt(model: GPT) -> int:
    return min(PROMPT, model.context - TOKENS)


def _turn(way: Any, text: torch.Tensor, past: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Return a function that reads the last tokens of a text, one at a time, and returns the last scores."""
    length = text.shape[1] - TOKENS
    way.start(text[:, :length], past)

    def turn() -> torch.Tensor:
        way.back()
        for place in range(length, text.shape[1]):
            scores = way.step(text[:, place : place + 1], torch.tensor([place]))
        return scores

    return turn


class Engine:
    """A decoder in the engine, compiled or loaded; the cache is overwritten where a turn begins again."""

    def __init__(self, decoder: torch.nn.Module | Path, threads: int) -> None:
        one = (torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
        if isinstance(decoder, Path):
            self.run: Any = st3.engine.load(decoder, threads=threads)
        else:
            self.run = st3.engine.compile(decoder, one, threads=threads)

    def start(self, text: torch.Tensor, past: list[torch.Tensor]) -> None:
        for place in range(text.shape[1]):
            self.step(text[:, place : place + 1], torch.tensor([place]))

    def back(self) -> None:
        pass

    def step(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.run(token, position)
        return scores


def _own_answer(model: GPT, text: torch.Tensor) -> torch.Tensor:
    return model(text)[:, -1:]


def _difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


# ---------------------------------------------------------------- files and memory


def _files(models: dict[str, GPT], onnx: dict[str, Path], folder: Path) -> dict[str, Any]:
    first = next(iter(models.values()))
    weights = {name: tensor.contiguous() for name, tensor in first.state_dict().items()}
    save_file(weights, folder / "dense.safetensors")
    files = {"torch float32": folder / "dense.safetensors"} | onnx
    found: dict[str, Any] = {}
    one = (torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    best = native.usable_instruction_sets()[:1]
    for name, model in models.items():
        path = folder / f"{len(files)}.st3run"
        st3.engine.compile(model.decoder().eval(), one, threads=1, tune=False).save(
            path, instruction_sets=best
        )
        files[f"st3 engine, {name}"] = path
        size = st3.save_sparse(model.state_dict(), folder / "model.sparse.safetensors")
        found[f"st3 sparse file, {name}"] = {"file MB": _megabytes(size.file_bytes)}
    gc.collect()
    shape = json.dumps(_shape(first))
    for name, path in files.items():
        sizes = [each.stat().st_size for each in path.parent.glob(f"{path.name}*")]
        command = [sys.executable, __file__, "--memory", name, str(path), shape]
        grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
        found[name] = {"file MB": _megabytes(sum(sizes)), "memory MB": grown}
    return {"files": found}


def _memory(name: str, file: str, shape: str) -> float:
    """Return the megabytes that a process grows by when it reads a model and a few tokens, with one thread."""
    torch.set_num_threads(1)
    if name.startswith("st3"):
        native.library()
    elif name.startswith("ONNX"):
        import onnxruntime  # noqa: F401
    with torch.device("meta"):  # before the count: it imports much
        model = GPT(**json.loads(shape))
    before = _resident()
    with torch.no_grad():
        if name.startswith("st3"):
            way: Any = Engine(Path(file), 1)
        elif name.startswith("ONNX"):
            way = OnnxRuntime(Path(file), 1)
        if not name.startswith(("st3", "ONNX")):
            model.load_state_dict(load_file(file), assign=True)
            way = Growing(model.eval())
        _turn(way, torch.zeros(1, 2 * TOKENS, dtype=torch.int64), Step(model).empty(TOKENS))()
    return _megabytes(_resident() - before)


def _resident() -> int:
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")
    )
    return 1024 * int(line.split()[1])


def _megabytes(size: int) -> float:
    return round(size / 1e6, 1)


if __name__ == "__main__":
    main()
