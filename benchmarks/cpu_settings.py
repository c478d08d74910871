"""What threads, memory layout and allocator do to a training step on a CPU; `st3 train` takes what helps.

Settings of a whole process cannot take turns within one. So every contestant is a process of its own that waits until
it is asked for some steps; they take turns as in the other benchmarks.

    python benchmarks/cpu_settings.py --rounds 10 --output results/benchmarks/cpu-settings.json
"""

import argparse
import subprocess
import sys
from typing import Any

import torch
from timing import ratio, record, take_turns
from torch.nn import functional as F

from st3.models import MODELS
from st3.training.cpu import keep_freed_memory

# name -> (model, batch, side, threads, channels_last, keeps freed memory)
CONTESTANTS: dict[str, tuple[str, int, int, int, bool, bool]] = {
    "resnet20, contiguous": ("resnet20", 128, 32, 2, False, False),
    "resnet20, channels_last": ("resnet20", 128, 32, 2, True, False),
    "resnet20, channels_last, kept memory": ("resnet20", 128, 32, 2, True, True),
    "resnet20, contiguous, kept memory": ("resnet20", 128, 32, 2, False, True),
    "digits_cnn, 2 threads": ("digits_cnn", 64, 8, 2, True, True),
    "digits_cnn, 1 thread": ("digits_cnn", 64, 8, 1, True, True),
}
STEPS = {"resnet20": 3, "digits_cnn": 60}


def serve(name: str) -> None:
    """Be a contestant: train for some steps whenever a line comes in."""
    model_name, batch, side, threads, channels_last, keeps_memory = CONTESTANTS[name]
    torch.set_num_threads(threads)
    if keeps_memory and not keep_freed_memory():
        raise SystemExit("the C library cannot be told to keep freed memory here")
    torch.manual_seed(0)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = MODELS[model_name]().to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    channels = next(model.parameters()).shape[1]
    pictures = torch.randn(batch, channels, side, side).contiguous(memory_format=layout)
    labels = torch.randint(0, 10, (batch,))
    for _line in sys.stdin:
        for _ in range(STEPS[model_name]):
            F.cross_entropy(model(pictures), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        print("done", flush=True)


class Contestant:
    def __init__(self, name: str) -> None:
        command = [sys.executable, __file__, "--serve", name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            raise SystemExit(f"a contestant ended with code {self.process.wait()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--output", help="write the result as JSON")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    contestants = {name: Contestant(name) for name in CONTESTANTS}
    try:
        seconds = take_turns(contestants, options.rounds, warm_up=2)  # type: ignore[arg-type]
    finally:
        for contestant in contestants.values():
            contestant.process.kill()
    pairs = [
        ("resnet20, channels_last", "resnet20, contiguous"),
        ("resnet20, channels_last, kept memory", "resnet20, channels_last"),
        ("resnet20, contiguous, kept memory", "resnet20, contiguous"),
        ("digits_cnn, 1 thread", "digits_cnn, 2 threads"),
    ]
    rows: list[dict[str, Any]] = [
        {"of": of, "to": to, "time ratio": ratio(seconds, of, to)} for of, to in pairs
    ]
    spec = {"rounds": options.rounds, "steps": STEPS, "threads of resnet20": 2}
    record(options.output, spec, rows)


if __name__ == "__main__":
    main()
