"""Made-up runs: the files of a run without the training."""

import json
import math
from pathlib import Path
from typing import Any

__all__ = ["spec", "write_run"]

STEPS_PER_EPOCH = 352


def spec(*, epochs: int, method: str | None = "st3", sparsity: float = 0.95, **model: Any) -> dict[str, Any]:
    sparse = {
        "method": method,
        "arguments": {},
        "sparsity": sparsity,
        "allocation": "global",
        "ramp": "cubic",
    }
    return {
        "data": {"name": "cifar10", "dir": "data", "download": False, "options": {"padding": "zero"}},
        "model": {"name": "resnet20", "arguments": {}, **model},
        "sparse": {**sparse, "exclude": [], "keep_dense": [], "min_weights": 0} if method else None,
        "recipe": {
            "name": "cifar",
            "epochs": epochs,
            "batch_size": 128,
            "clip_norm": 3.0,
            "label_smoothing": 0.0,
            "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 1e-4},
            "rate": {"kind": "step", "drops": [epochs // 2, 3 * epochs // 4], "factor": 0.1},
            "ramp": {"start": 0.25, "end": epochs / 2},
        },
        "seeds": {"init": 0, "data": 0},
        "machine": {"device": "auto", "precision": "float32", "channels_last": True, "threads": None},
        "protocol": {"name": "single", "arguments": {}},
        "part": None,
    }


def write_run(
    folder: Path,
    epochs: int = 8,
    *,
    planned: int | None = None,
    layers: int = 5,
    names: list[str] | None = None,
    method: str | None = "st3",
    sparsity: float = 0.95,
    with_twin: bool = False,
    **model: Any,
) -> Path:
    """Write a run of `epochs` epochs, finished unless more are `planned`, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    planned = planned or epochs
    names = names or [f"layer{i // 4}.{i % 4}.conv{i % 2 + 1}.weight" for i in range(layers)]
    sizes = {name: 432 * 2 ** min(number // 3, 10) for number, name in enumerate(names)}
    _write(folder / "spec.json", spec(epochs=planned, method=method, sparsity=sparsity, **model))
    _write(folder / "versions.json", _versions(folder))
    records = [
        _epoch(number, planned, sizes, sparsity if method else None) for number in range(1, epochs + 1)
    ]
    _write_lines(folder / "epochs.jsonl", [epoch for epoch, _ in records])
    _write_lines(folder / "steps.jsonl", _steps(epochs, planned, sparsity if method else None))
    if method:
        _write_lines(
            folder / "layers.jsonl", [{"epoch": e["epoch"], "layers": found} for e, found in records]
        )
    if epochs == planned:
        _write(folder / "summary.json", _summary(records, sizes, method, sparsity))
    if with_twin:
        asked = json.loads((folder / "spec.json").read_text())
        _write(folder / "spec.json", {**asked, "protocol": {"name": "twin", "arguments": {}}})
        write_run(folder / "dense", epochs, planned=planned, layers=layers, method=None, **model)
    return folder


def _versions(folder: Path) -> dict[str, Any]:
    command = ["st3", "train", "cifar10", "--run", str(folder)]
    found = {"st3": "0.1.0", "torch": "2.13.0", "numpy": "2.3.1", "python": "3.11.2", "platform": "Linux"}
    return {**found, "commit": None, "command": command, "cpu": "made up", "threads": 1, "processes": 1}


def _ramp(epoch: float, planned: int, final: float) -> float:
    return float(final * (1 - (1 - min(1.0, epoch / (planned / 2))) ** 3))


def _rate(epoch: float, planned: int) -> float:
    return 0.1 * 0.1 ** ((epoch >= planned / 2) + (epoch >= 3 * planned / 4))


def _wave(*numbers: float) -> float:
    """Return noise that is the same whenever the tests run."""
    return math.sin(12.9898 * sum(n * (i + 1) for i, n in enumerate(numbers)))


def _epoch(
    number: int, planned: int, sizes: dict[str, int], final: float | None
) -> tuple[dict[str, Any], Any]:
    reach = (0.925 if final is None else 0.912) * (1 - 0.6 * math.exp(-4 * number / planned))
    accuracy = reach + 0.01 * _wave(number, final or 0) * (1 - number / (planned + 1))
    layers = _layers(number, planned, sizes, final) if final else {}
    total = {
        key: sum(layer[key] or 0 for layer in layers.values())
        for key in ("weights", "zeros", "revived", "zeroed")
    }
    epoch = {
        "epoch": number,
        "step": number * STEPS_PER_EPOCH,
        "seconds": 61.2 * number,
        "rate": _rate(number - 0.5, planned),
        "train": {"loss": 2.2 * (1 - reach) + 0.05, "accuracy": min(reach + 0.06 * number / planned, 1.0)},
        "validation": {"loss": 2.4 * (1 - accuracy) + 0.1, "accuracy": accuracy},
        "sparsity": total["zeros"] / total["weights"] if final else None,
        "sparsity_asked": _ramp(number, planned, final) if final else None,
        "at_target": final is None or number >= planned / 2,
        "threshold": 0.02 * _ramp(number, planned, 1) if final else None,
        "switches": {key: total[key] for key in ("revived", "zeroed")} if final and number > 1 else None,
        "gradient_norm": 1.3 + 0.2 * _wave(number),
        "is_best": number == planned,
    }
    return epoch, layers


def _layers(number: int, planned: int, sizes: dict[str, int], final: float) -> dict[str, Any]:
    asked = _ramp(number, planned, final)
    # Later layers are sparser; all together are about as sparse as asked.
    densities = {name: (1 - asked) ** (0.6 + 0.8 * place / len(sizes)) for place, name in enumerate(sizes)}
    share = (1 - asked) * sum(sizes.values()) / sum(densities[name] * sizes[name] for name in sizes)
    found = {}
    for place, (name, weights) in enumerate(sizes.items()):
        density = densities[name] * share * (1 + 0.1 * _wave(number, place))
        zeros = min(weights, max(0, round(weights * (1 - density))))
        moved = weights * (1.05 - asked) / (4 * number)
        found[name] = {
            "weights": weights,
            "zeros": zeros,
            "threshold": 0.02 * _ramp(number, planned, 1),
            "revived": round(moved * 0.3) if number > 1 else None,
            "zeroed": round(moved) if number > 1 else None,
        }
    return found


def _steps(epochs: int, planned: int, final: float | None) -> list[dict[str, Any]]:
    count = 500 * epochs // planned
    every = [max(1, round(STEPS_PER_EPOCH * epochs * number / count)) for number in range(1, count + 1)]
    return [
        {
            "step": step,
            "epoch": round(step / STEPS_PER_EPOCH, 4),
            "loss": 2.3 * math.exp(-3 * step / STEPS_PER_EPOCH / planned) + 0.02 * _wave(step),
            "rate": _rate(step / STEPS_PER_EPOCH, planned),
            "sparsity_asked": _ramp(step / STEPS_PER_EPOCH, planned, final) if final else None,
            "threshold": 0.02 * _ramp(step / STEPS_PER_EPOCH, planned, 1) if final else None,
        }
        for step in every
    ]


def _summary(records: Any, sizes: dict[str, int], method: str | None, sparsity: float) -> dict[str, Any]:
    last, layers = records[-1]
    rows = [
        _row(name, weights, layers.get(name, {}), place)
        for place, (name, weights) in enumerate(sizes.items())
    ]
    weights, zeros = sum(sizes.values()), sum(row["zeros"] for row in rows)
    macs = {key: sum(row[key] for row in rows) for key in ("dense_macs", "sparse_macs")}
    return {
        "test": {
            "loss": last["validation"]["loss"] + 0.01,
            "accuracy": last["validation"]["accuracy"] - 0.004,
        },
        "validation": last["validation"],
        "best_epoch": last["epoch"],
        "epochs": last["epoch"],
        "steps": last["step"],
        "seconds": last["seconds"],
        "sparsity": zeros / weights if method else None,
        "target": sparsity if method else None,
        "parameters": weights + 1_376,
        "active_parameters": weights - zeros + 1_376,
        **macs,
        "model": "model.safetensors",
        "model_bytes": 4 * weights + 9_000,
        "sparse_model": "model.sparse.safetensors" if method else None,
        "sparse_model_bytes": 4 * (weights - zeros) + 9_000 if method else None,
        "report": {"sparsity": zeros / weights, "weights": weights, "zeros": zeros, **macs, "layers": rows},
    }


def _row(name: str, weights: int, found: dict[str, Any], place: int) -> dict[str, Any]:
    zeros, macs = found.get("zeros", 0), weights * 1024 // 4 ** (place // 8)
    return {
        "name": name,
        "shape": [16, weights // 432 * 3, 3, 3],
        "weights": weights,
        "zeros": zeros,
        "sparsity": zeros / weights,
        "target": None,
        "threshold": found.get("threshold"),
        "empty_filters": 1 if zeros > 0.97 * weights else 0,
        "filters": 16,
        "dense_macs": macs,
        "sparse_macs": round(macs * (weights - zeros) / weights),
    }


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def _write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
