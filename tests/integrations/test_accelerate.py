"""Accelerate needs no callback: prepare, sparsify, and a count of the steps that is right."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin, PartialState
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration, DistributedType, GradientAccumulationPlugin
from tests.processes import on_ranks
from tests.tiny import zeros_asked
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, IterableDataset

import st3
from st3.integrations.accelerate import total_steps

ROWS = torch.randn(22, 8, generator=torch.Generator().manual_seed(0))
FLAT_OUT = st3.ramps.Linear(start=0.0, end=1.0)  # at the target in the very last step only


@contextlib.contextmanager
def accelerated(**options: Any) -> Iterator[Accelerator]:
    """Accelerate keeps its state in globals and environment variables: give them back."""
    environment = dict(os.environ)
    os.environ["LOCAL_WORLD_SIZE"] = os.environ.get("WORLD_SIZE", "1")  # one machine
    try:
        yield Accelerator(cpu=True, **options)
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
        os.environ.clear()
        os.environ.update(environment)


def force_fsdp2(accelerator: Accelerator) -> None:
    """Accelerate keeps FSDP for GPUs and makes DDP of it on CPUs, where it works as well."""
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap")
    PartialState().distributed_type = accelerator.state.distributed_type = DistributedType.FSDP


class Job:
    """A network, its optimizer and its data, prepared and made sparse."""

    def __init__(
        self,
        accelerator: Accelerator,
        epochs: int,
        loader: Any = None,
        load: Path | None = None,
        is_sharded: bool = False,
    ) -> None:
        if is_sharded:
            force_fsdp2(accelerator)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        loader = DataLoader(ROWS, batch_size=2) if loader is None else loader
        self.accelerator = accelerator
        self.model, self.optimizer, self.loader = accelerator.prepare(model, optimizer, loader)
        if load is not None:
            accelerator.load_state(str(load))
        self.total = total_steps(accelerator, self.loader, epochs)
        options = {"sparsity": 0.8, "ramp": FLAT_OUT}
        self.sparsifier = st3.sparsify(self.model, self.optimizer, total_steps=self.total, **options)

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            for rows in self.loader:
                with self.accelerator.accumulate(self.model):
                    self.accelerator.backward((self.model(rows) - rows).square().mean())
                    self.optimizer.step()
                    self.optimizer.zero_grad()

    def weights(self) -> list[Tensor]:
        return [whole_tensor(parameter.detach()).clone() for parameter in self.model.parameters()]


def whole_tensor(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def assert_counted(**options: Any) -> None:
    """Train an epoch more or less than a whole number of accumulated batches: the last step is the last of the ramp."""
    shared = DataLoaderConfiguration(split_batches=options.pop("split_batches", False))
    rows, drop = options.pop("rows", 22), options.pop("drop_last", False)
    with accelerated(dataloader_config=shared, **options) as accelerator:
        job = Job(accelerator, epochs=3, loader=DataLoader(ROWS[:rows], batch_size=2, drop_last=drop))
        steps: list[bool] = []
        job.optimizer.optimizer.register_step_post_hook(lambda *call: steps.append(job.sparsifier.at_target))
        job.train(3)
        assert steps == [False] * (job.total - 1) + [True]
        assert job.sparsifier.step == job.total


@pytest.mark.parametrize("every", [1, 3, 4, 20])
def test_the_ramp_ends_with_the_last_step_whatever_is_accumulated(every):
    assert_counted(gradient_accumulation_steps=every)


def test_batches_left_over_may_join_the_next_epoch():
    plugin = GradientAccumulationPlugin(num_steps=4, sync_with_dataloader=False)
    assert_counted(gradient_accumulation_plugin=plugin)


@pytest.mark.parametrize(
    ("rows", "every", "options"),
    [(22, 1, {}), (22, 4, {}), (21, 2, {"drop_last": True}), (22, 4, {"split_batches": True})],
    ids=["uneven", "accumulated", "incomplete batch dropped", "batches split"],
)
@on_ranks(2)
def test_steps_are_counted_right_in_two_processes(rows: int, every: int, options: dict[str, bool]) -> None:
    assert_counted(rows=rows, gradient_accumulation_steps=every, **options)


@pytest.mark.parametrize(
    ("loads_first", "is_sharded"),
    [(True, False), (False, False), (False, True)],  # FSDP2 restores only what the optimizer has room for
    ids=["DDP, loaded before sparsify", "DDP, loaded after it", "FSDP2"],
)
@on_ranks(2)
def test_save_state_and_load_state_resume_bit_for_bit(
    loads_first: bool, is_sharded: bool, tmp_path: Path
) -> None:
    options = {"gradient_accumulation_steps": 4}
    with accelerated(**options) as accelerator:
        whole = Job(accelerator, epochs=4, is_sharded=is_sharded)
        whole.train(2)
        assert not whole.sparsifier.at_target
        accelerator.save_state(str(tmp_path))
        accelerator.wait_for_everyone()
        whole.train(2)
    with accelerated(**options) as accelerator:
        rest = Job(accelerator, epochs=4, is_sharded=is_sharded, load=tmp_path if loads_first else None)
        if not loads_first:
            accelerator.load_state(str(tmp_path))
        assert rest.sparsifier.step == 4
        rest.train(2)
        for one, other in zip(rest.weights(), whole.weights(), strict=True):
            assert torch.equal(one, other)
            assert torch.equal(accelerator.gather(one[None])[0], one)  # the first process's
        rest.sparsifier.finalize()
        assert rest.sparsifier.report().zeros == zeros_asked(rest.model, 0.8)


def test_a_loader_that_was_not_prepared_is_refused():
    with accelerated() as accelerator, pytest.raises(TypeError) as error:
        total_steps(accelerator, DataLoader(ROWS), epochs=2)
    assert str(error.value) == (
        "total_steps needs the loader that accelerator.prepare has returned, got an unprepared DataLoader: only that "
        "one is shared among the processes"
    )


def test_a_loader_without_a_length_is_refused():
    class Stream(IterableDataset[Tensor]):
        def __iter__(self) -> Iterator[Tensor]:
            return iter(ROWS)

    with accelerated() as accelerator, pytest.raises(TypeError) as error:
        total_steps(accelerator, accelerator.prepare(DataLoader(Stream())), epochs=2)
    assert str(error.value) == (
        "total_steps cannot count the batches of a loader without a length: give sparsify the number of steps that "
        "your loop makes"
    )
