"""Writes a network as a file of the engine, and compares the file's answers with the network's."""

import tempfile
from pathlib import Path

import torch

from ..engine import compile as compile_engine
from ..engine import load
from ..files.inputs import bind
from ..files.tracing import ExportedFile, Trial, list_tensors

__all__ = ["export_engine"]


def export_engine(network: torch.nn.Module, example: torch.Tensor, path: Path, threads: int) -> ExportedFile:
    """Write an .st3run file for inputs of the example's shape; raise if its answers are not the network's."""
    network = network.eval()
    with torch.no_grad():
        trial = Trial(bind(network, example), list_tensors(network(example)))
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        scratch = compile_engine(network, example, threads=threads).save(Path(folder) / path.name)
        loaded = load(scratch)
        difference = trial.difference(list_tensors(loaded(example)), "the file")
        scratch.replace(path)  # only a file that was checked gets the name
    kind = f"kernels for {loaded.isa} and less, inputs of {'x'.join(map(str, example.shape))}"
    return ExportedFile(path, path.stat().st_size, kind, "the engine", difference)
