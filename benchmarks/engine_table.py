"""Rows of benchmarks/engine.py as Markdown tables."""

from collections.abc import Collection, Iterable
from statistics import median
from typing import Any

NETWORKS = {
    "resnet50": "ResNet-50",
    "mobilenet_v1": "MobileNetV1",
    "efficientnet_b0": "EfficientNet-B0",
    "mobilenet_v3_large": "MobileNetV3-Large",
    "convnext_tiny": "ConvNeXt-T",
    "bert_base": "BERT-base",
    "gpt2": "GPT-2",
}
MASKS = {
    "uniform": "uniform masks",
    "st3": "masks as ST-3's",
    "sigma": "masks as ST-3 sigma's",
    "blocks": "uniform masks in blocks of four",
}
OWN, OWN_INT8 = "st3 engine float32", "st3 engine int8"
DENSE = ("OpenVINO bfloat16", "OpenVINO int8", "ONNX Runtime int8")
GAIN = 1.05  # a smaller lead is not one, as in st3 bench
SHORT = {("uniform", OWN), ("st3", OWN), ("st3", OWN_INT8), ("blocks", OWN_INT8)}  # of the short table
NEAR = 0.012  # a published sparsity such as 89 % stands in the column of 90 %

Rows = list[dict[str, Any]]
Ratio = tuple[float, float]  # of minima and of medians


def rows_table(rows: Rows) -> str:
    """Return all rows, one line each, against the fastest other engine in float32."""
    lines = [
        "| row | zeros | engine ms | fastest other | its ms | times as fast (min / median) | at least / aim |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        own, rival = row["engines"][0], _timing(row, row["rival"])
        bar = f"{row['at least']} / {row['aim']}" if row["at least"] else ""
        lines.append(
            f"| {row['row']} | {100 * row['zeros']:.1f} % | {own['min_ms']:.2f} ({own['median_ms']:.2f}) "
            f"| {rival['name']} | {rival['min_ms']:.2f} ({rival['median_ms']:.2f}) "
            f"| {row['speed_up']['min']:.2f} / {row['speed_up']['median']:.2f} | {bar} |"
        )
    return "\n".join(lines)


def rivals_table(rows: Rows, shown: Collection[tuple[str, str]] = ()) -> str:
    """Return one line for each network, kind of mask and precision: speeds relative to the fastest float32 engine.

    `shown` selects kinds of masks and engines; all are shown by default.
    """
    columns = sorted({_sparsity(row) for row in rows if _masks(row) == "uniform"})
    measured = {each["name"] for row in rows for each in row["engines"]}
    dense = [name for name in DENSE if name in measured]
    heads = [
        "network",
        *(f"dense, {name}" for name in dense),
        *(f"st3, {_percent(each)}" for each in columns),
        "ahead of dense int8",
    ]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for network, masks in dict.fromkeys(map(_kind, rows)):
        mine = [row for row in rows if _kind(row) == (network, masks)]
        cells = [_dense([row for row in rows if _network(row) == network], name) for name in dense]
        cells = cells if masks == "uniform" else [""] * len(dense)
        for own, note in ((OWN, ""), (OWN_INT8, ", in int8")):
            speeds = [_own(mine, column, own) for column in columns]
            if any(speeds) and (not shown or (masks, own) in shown):
                ends = [*cells, *speeds, overtaking([row for row in mine if _has(row, own)], own)]
                lines.append(f"| {NETWORKS[network]}, {MASKS[masks]}{note} | {' | '.join(ends)} |")
            cells = [""] * len(dense)
    return "\n".join(lines)


def remarks(rows: Rows) -> str:
    """Return which engines are absent and why, how far answers are from torch's, and which processor it was."""
    absent = {name: why for row in rows for name, why in row["absent"].items()}
    sentences = [f"{name} was not measured: {why}." for name, why in absent.items()]
    sentences += [_differences(rows), _steps_in_torch(rows)]
    rounds = sorted({row["rounds"] for row in rows})
    sentences.append(
        f"Each engine was called {' to '.join(map(str, rounds[:: max(1, len(rounds) - 1)]))} times."
    )
    processors = " or ".join(sorted({row["processor"] for row in rows}))
    sentences.append(f"The processor: {processors}.")
    if any(row["clock"] == "processor" for row in rows):
        sentences.append(
            "Times are those of the process, not of the clock: the machine was busy with other work."
        )
    return "\n".join(filter(None, sentences))


def _differences(rows: Rows) -> str:
    """Return how far outputs are from torch's, as shares of the largest value."""
    own = max(_timing(row, OWN)["difference"] for row in rows)
    text = f"The engine's outputs differ from torch's by at most {own:.0e} of the largest value"
    every = [each for row in rows for each in row["engines"] if each["precision"] == "int8"]
    for whose, is_own in (("its own in int8", True), ("those of dense int8 engines", False)):
        found = [each["difference"] for each in every if (each["name"] == OWN_INT8) == is_own]
        if found:
            text += f", {whose} by {_percent(min(found), 2)} to {_percent(max(found), 2)}"
    return f"{text}."


def _steps_in_torch(rows: Rows) -> str:
    """Return how many steps of each network torch computes."""
    counts = {_network(row): sum(row["in torch"].values()) for row in rows if row["in torch"]}
    some = [f"{count} in {NETWORKS[network]}" for network, count in counts.items()]
    return f"Steps in torch: {', '.join(some)}." if some else ""


def overtaking(rows: Rows, name: str = OWN) -> str:
    """Return from which sparsity on the engine is ahead of dense int8 by 5 %, in minimum and in median."""
    if not any(_rivals(row) for row in rows):
        return ""
    ahead = None
    for row in sorted(rows, key=_sparsity, reverse=True):
        if not _is_ahead(row, name):
            break
        ahead = _sparsity(row)
    if ahead is None:
        return f"not up to {_percent(max(map(_sparsity, rows)))}"
    is_lowest = ahead == min(map(_sparsity, rows))
    return "at all measured" if is_lowest else f"from {_percent(ahead)} on"


def _is_ahead(row: dict[str, Any], name: str) -> bool:
    own, rivals = _timing(row, name), _rivals(row)
    return bool(rivals) and all(
        GAIN * own[key] <= min(each[key] for each in rivals) for key in ("min_ms", "median_ms")
    )


def _rivals(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the timings of dense engines in int8."""
    return [each for each in row["engines"] if each["name"] in DENSE and each["precision"] == "int8"]


def _dense(rows: Rows, name: str) -> str:
    """Return a dense engine's speed: the medians of its ratios in all rows, which differ in their zeros alone."""
    ratios = [_ratio(row, name) for row in rows if _has(row, name)]
    if not ratios:
        return "not measured"
    return _pair((median(least for least, _ in ratios), median(middle for _, middle in ratios)))


def _own(rows: Rows, column: float, name: str) -> str:
    near = [row for row in rows if abs(_sparsity(row) - column) < NEAR and _has(row, name)]
    if not near:
        return ""
    sparsity = _sparsity(near[0])
    note = "" if sparsity == column else f" ({_percent(sparsity)})"
    return _pair(_ratio(near[0], name)) + note


def _ratio(row: dict[str, Any], name: str) -> Ratio:
    base, own = _timing(row, row["rival"]), _timing(row, name)
    return base["min_ms"] / own["min_ms"], base["median_ms"] / own["median_ms"]


def _has(row: dict[str, Any], name: str) -> bool:
    return any(each["name"] == name for each in row["engines"])


def _timing(row: dict[str, Any], name: str) -> dict[str, Any]:
    engines: Iterable[dict[str, Any]] = row["engines"]
    return next(each for each in engines if each["name"] == name)


def _network(row: dict[str, Any]) -> str:
    return str(row["row"].split(":")[1])


def _sparsity(row: dict[str, Any]) -> float:
    return float(row["row"].split(":")[2])


def _masks(row: dict[str, Any]) -> str:
    return str(row["row"].split(":")[3])


def _kind(row: dict[str, Any]) -> tuple[str, str]:
    return _network(row), _masks(row)


def _pair(ratio: Ratio) -> str:
    return f"{ratio[0]:.2f} / {ratio[1]:.2f}"


def _percent(share: float, digits: int = 4) -> str:
    return f"{100 * share:.{digits}g} %"
