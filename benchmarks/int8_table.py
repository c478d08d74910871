"""The rows of int8_blocks.py as a Markdown table: the layers of a network together, and the range of its cases."""

from typing import Any

DENSE = ("ONNX Runtime", "OpenVINO")
# What is compared with what: the first is so many times as fast as the second.
PAIRS = (
    ("int8 blocks", "float32 single"),
    ("int8 blocks", "float32 blocks"),
    ("int8 blocks", "dense int8"),
    ("int8 single", "float32 single"),
    ("float32 single", "dense int8"),
)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table; each row counts as often as the network has layers of its size."""
    lines = ["| network | zeros | " + " | ".join(f"{a} over {b}" for a, b in PAIRS) + " |"]
    lines += ["|---" * (2 + len(PAIRS)) + "|"]
    for network in dict.fromkeys(row["row"].split(":")[0] for row in rows):
        for zeros in ("0.8", "0.9", "0.95"):
            some = [
                row for row in rows if row["row"].startswith(network) and row["row"].endswith(f":{zeros}")
            ]
            if some:
                cells = [compared(some, *pair) for pair in PAIRS]
                lines.append(f"| {network} | {100 * float(zeros):g} % | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compared(rows: list[dict[str, Any]], fast: str, slow: str) -> str:
    """Return the ratio of the sums (of minima / of medians) and in brackets the range of the cases, by minima."""
    totals = [
        sum(row["count"] * time(row, slow, kind) for row in rows)
        / sum(row["count"] * time(row, fast, kind) for row in rows)
        for kind in ("min", "median")
    ]
    each = [time(row, slow, "min") / time(row, fast, "min") for row in rows]
    return f"{totals[0]:.2f} / {totals[1]:.2f} ({min(each):.2f} to {max(each):.2f})"


def time(row: dict[str, Any], name: str, kind: str) -> float:
    """Return the time of a contestant; dense int8 is the faster of its engines."""
    times = row["microseconds per layer"]
    return float(
        min(times[each][kind] for each in (DENSE if name == "dense int8" else (name,)) if each in times)
    )
