"""What the sparsifier keeps and sends under fully_shard with 100 M weights, on gloo: counted, and by the formula.

Every rank trains the same transformer for 4 steps, the last with the look that else comes every 20 steps. Collectives
are counted around `sparsify` and `optimizer.step` alone, where AdamW itself sends nothing. `sent` is what the kernel
has written for all ranks, without gloo's headers.
"""

import argparse
import tempfile
from typing import Any

import psutil
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from networks import Block
from timing import record
from torch import nn
from torch.distributed.fsdp import fully_shard
from wire import Wire

import st3
from st3.core.costs import Traffic, sharded_costs
from st3.core.layers.shards import local
from st3.core.step import conductor

STEPS, WIDTH = 4, 1024
SPARSITY = 0.9
CASES = [("st3", "global"), ("st3", "erk"), ("gmp", "global")]


def one_rank(rank: int, ranks: int, blocks: int, meeting_point: str, output: Any) -> None:
    torch.set_num_threads(1)
    conductor.LOOK_EVERY = STEPS
    dist.init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=ranks)
    for method, allocation in CASES:
        row = measure(method, allocation, blocks, ranks)
        if rank == 0:
            output.put(row)


def measure(method: str, allocation: str, blocks: int, ranks: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(WIDTH, heads=16) for _ in range(blocks)))
    for block in model:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    costs = sharded_costs(st3.layers(model), ranks, sparsity=SPARSITY, method=method, allocation=allocation)
    options = {"method": method, "allocation": allocation, "ramp": st3.ramps.Constant(start=1 / STEPS)}
    wires = [Wire() for _ in range(STEPS + 1)]
    with wires[0]:
        sparsifier = st3.sparsify(model, optimizer, sparsity=SPARSITY, total_steps=STEPS, **options)
    for step in range(STEPS):
        model(torch.randn(1, 8, WIDTH)).square().mean().backward()
        with wires[step + 1]:
            optimizer.step()
        optimizer.zero_grad()
    events = {
        "attach": (wires[0], costs.attach),
        "first cut": (wires[1], costs.first_cut),
        "cut": (wires[3], costs.cut),
        "cut and look": (wires[STEPS], costs.cut + costs.look),
    }
    kept = [
        v
        for layer in sparsifier.layers
        for k, v in optimizer.state[layer.parameter].items()
        if k.startswith("st3_")
    ]
    found = {
        "method": method,
        "allocation": allocation,
        "ranks": ranks,
        "weights": sum(layer.numel for layer in sparsifier.layers),
        "kept": {"measured": sum(local(tensor).nbytes for tensor in kept), "formula": costs.kept},
        "zeros": sparsifier.report().zeros,
        "resident bytes of rank 0": psutil.Process().memory_info().rss,
        **{event: compare(wire, traffic, ranks) for event, (wire, traffic) in events.items()},
    }
    sparsifier.detach()
    return found


def compare(wire: Wire, traffic: Traffic, ranks: int) -> dict[str, Any]:
    sent = torch.tensor(wire.sent)
    dist.all_reduce(sent)
    return {
        "collectives": {"measured": len(wire.names), "formula": traffic.collectives},
        "payload": {"measured": wire.payload, "formula": traffic.payload},
        "sent by all": {"measured": int(sent), "formula": round(traffic.sent(ranks) * ranks)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="repetitions: the counts of all must be the same"
    )
    parser.add_argument("--blocks", type=int, default=8, help="blocks of 12.6 M weights each")
    parser.add_argument("--output", help="write the rows to this JSON file")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for ranks in (2, 4) * given.rounds:
        with tempfile.TemporaryDirectory() as folder:
            output = mp.get_context("spawn").SimpleQueue()
            mp.spawn(one_rank, (ranks, given.blocks, f"{folder}/meeting-point", output), nprocs=ranks)
            found = [output.get() for _ in CASES]
        rows += found
        spec = {"rounds": given.rounds, "steps": STEPS, "sparsity": SPARSITY, "backend": "gloo"}
        record(given.output, spec, rows, shown=found)


if __name__ == "__main__":
    main()
