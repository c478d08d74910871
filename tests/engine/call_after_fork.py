"""Compile a model, call it, fork, call in child and parent: python call_after_fork.py "MODEL BATCH THREADS [busy]" ...

Each case runs in a process of its own, forked before anything was compiled.
With `busy` another thread calls the model all the time, so that it holds the model's lock when the process forks.

A separate program, run by test_forks.py with OMP_NUM_THREADS=1, since torch's own threads do not survive a fork.
"""

import os
import signal
import sys
from threading import Event, Thread

import torch
import torch._dynamo
import torch.export._trace
from torch import nn

import st3

MODELS = {
    "classifier": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)), (3, 8, 8)),
    "pictures": (
        nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3)),
        (3, 150, 150),
    ),
}


def main(name: str, batch: int, threads: int, is_busy: bool) -> None:
    torch.manual_seed(0)
    model, shape = MODELS[name]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(torch.rand_like(parameter) < 0.2)
    x = torch.randn(batch, *shape)
    fast = st3.engine.compile(model.eval(), x, threads=threads, tune=False)
    want = fast(x)
    done, called = Event(), Event()

    def call() -> None:
        while not done.is_set():
            fast(x)
            called.set()

    other = Thread(target=call)
    if is_busy:
        other.start()
        called.wait()
    child = os.fork()
    if child == 0:
        right = False
        try:
            signal.alarm(60)  # in case it waits for a thread that does not exist
            right = torch.equal(fast(x), want)
        finally:
            os._exit(0 if right else 1)
    status = os.waitpid(child, 0)[1]
    done.set()
    if is_busy:
        other.join()
    assert status == 0, "the child's output is wrong or it hung"
    assert torch.equal(fast(x), want), "the parent's output is wrong after the fork"
    print(f"{name} {batch} {threads}{' busy' * is_busy}: the same output in both processes")


if __name__ == "__main__":
    for case in sys.argv[1:]:
        process = os.fork()
        if process == 0:
            name, batch, threads, *busy = case.split()
            main(name, int(batch), int(threads), bool(busy))
            sys.exit()
        if os.waitpid(process, 0)[1]:
            sys.exit(f"{case}: failed")
