"""What a compiled model holds: one copy of its weights, whatever the number of shapes and of calls at once."""

import os
import sys
from threading import Barrier, Thread

import pytest
import torch
from tests.processes import run_python
from torch import nn

import st3
from st3.engine import native
from st3.engine.compact import CompactModel
from st3.engine.program import Linear, Program
from st3.engine.run import Runtime

needs_kernels = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")


def sparse_layers(count: int, width: int, density: float = 0.05) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(width, width) for _ in range(count)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.mul_(torch.rand_like(layer.weight) < density)
    return nn.Sequential(*layers).eval()


SCRIPT = """
import gc, sys, torch, st3
from tests.engine.test_memory import sparse_layers

def resident():
    gc.collect()
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096 / 1e6

st3.engine.compile(torch.nn.Linear(8, 8).eval(), torch.randn(4, 8), tune=False)  # imports, caches
model, x = sparse_layers(4, 2000), torch.randn(16, 2000)
model(x)
before = resident()
fast = st3.engine.compile(model, x, threads=1, tune=False)
fast(x)
print(resident() - before)
"""


@needs_kernels
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="it keeps memory that was given back")
def test_a_sparse_model_takes_less_memory_than_half_its_dense_weights():
    done = run_python(SCRIPT)
    assert done.returncode == 0, done.stderr
    dense = 4 * 4 * 2000 * 2000 / 1e6  # 64 MB
    assert float(done.stdout) < dense / 2


def test_weights_are_kept_as_lists_and_given_back_whole():
    model = sparse_layers(2, 100)
    compact = CompactModel(model)
    assert all(parameter.numel() == 0 for parameter in compact._model.parameters() if parameter.dim() > 1)
    for _ in range(2):
        with compact.whole() as whole:
            for name, parameter in whole.named_parameters():
                assert torch.equal(parameter, model.get_parameter(name))
    assert compact._model[0].weight.numel() == 0


@needs_kernels
def test_equal_arrays_of_several_shapes_are_kept_once():
    model = sparse_layers(1, 200)
    fast = st3.engine.compile(model, torch.randn(1, 200), tune=False)
    before = sum(array.bytes for array in fast._store.known.values())
    for rows in (2, 3):  # a matrix times a few rows: the lists do not depend on their number
        fast(torch.randn(rows, 200))
    after = sum(array.bytes for array in fast._store.known.values())
    assert after < 1.1 * before


@needs_kernels
def test_calls_at_once_have_memory_of_their_own_and_share_the_weights():
    torch.manual_seed(0)
    weight = torch.randn(300, 300).numpy()
    step = Linear(name="y", sources=("x",), target="y", weight=weight, bias=None)
    shapes = {"x": (64, 300), "y": (64, 300)}
    runtime = Runtime(Program(steps=(step,), shapes=shapes, inputs=("x",), outputs=("y",)), tune=False)
    inside, wrong = Barrier(3, timeout=60), []
    run = native.Session.run

    def waits(session: native.Session, *steps: int) -> None:
        inside.wait()  # until three calls are under way
        run(session, *steps)

    def call(seed: int) -> None:
        x = torch.full((64, 300), float(seed))
        if not torch.allclose(runtime.run(x)[0], x @ torch.from_numpy(weight).T, rtol=1e-3, atol=1e-2):
            wrong.append(seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native.Session, "run", waits)
        threads = [Thread(target=call, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert len(runtime.sessions) == 3
    assert len({session.arena.data_ptr() for session in runtime.sessions}) == 3
    assert all(session.plan is runtime.planned.plan for session in runtime.sessions)
