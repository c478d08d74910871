"""Writes a network as a file of the engine, and compares the file's answers with the network's.

Of a network that has a decoder, the file holds the decoder: a call reads one character.
"""

import tempfile
from pathlib import Path

import torch

from ..engine import Loaded, load
from ..engine import compile as compile_engine
from ..files.fit import shape_text
from ..files.inputs import bind
from ..files.tracing import TOLERANCE, ExportedFile, Trial, list_tensors
from ..models.decoding import HasDecoder
from .calibration import compile_in_int8

__all__ = ["export_engine"]

INT8_TOLERANCE = 0.5  # of the largest output; usual are 0.01 to 0.03


def export_engine(
    network: torch.nn.Module,
    example: torch.Tensor,
    path: Path,
    threads: int,
    typical: list[torch.Tensor] | None = None,
) -> ExportedFile:
    """Write an .st3run file for inputs of the example's shape; raise if its answers are not the network's.

    With `typical` inputs it computes in int8, and is tried on some of these: rounding changes answers.
    """
    network = network.eval()
    if typical and typical[0].shape[1:] == example.shape[1:]:
        every = torch.cat(typical)
        example = every[torch.arange(len(example)) % len(every)]
    with torch.no_grad():
        trial = Trial(bind(network, example), list_tensors(network(example)))
    inputs: tuple[torch.Tensor, ...] = (example,)
    module, takes = network, f"inputs of {shape_text(example.shape)}"
    if isinstance(network, HasDecoder):
        if typical:
            raise ValueError("--int8: a decoder changes its own buffers, so it cannot be computed in int8")
        if len(example) > 1:
            raise ValueError(
                f"--batch {len(example)}: the file of a decoder reads one text; leave out --batch"
            )
        module, inputs = network.decoder().eval(), _step(example, 0)
        takes = f"the next character and its position, up to {example.shape[1]} in all"
    compiled = (
        compile_in_int8(module, inputs[0], typical, threads=threads)
        if typical
        else compile_engine(module, inputs, threads=threads)
    )
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        scratch = compiled.save(Path(folder) / path.name)
        loaded = load(scratch)
        answer = list_tensors(loaded(example) if module is network else _read_on(loaded, example))
        difference = trial.difference(answer, "the file", INT8_TOLERANCE if typical else TOLERANCE)
        scratch.replace(path)  # only a file that was checked gets the name
    kind = f"kernels for {loaded.isa} and less{', in int8' if typical else ''}, {takes}"
    return ExportedFile(path, path.stat().st_size, kind, "the engine", difference)


def _read_on(loaded: Loaded, text: torch.Tensor) -> torch.Tensor:
    """Return the scores of a whole text, read one character after the other."""
    return torch.cat([loaded(*_step(text, number)) for number in range(text.shape[1])], dim=1)


def _step(text: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    return text[:, number : number + 1], torch.tensor([number])
