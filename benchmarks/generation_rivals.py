"""The rivals of generation.py: torch and ONNX Runtime, with keys and values that grow by one row per token."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from st3.models.gpt import GPT


@dataclass
class GrowingCache:
    """Keys and values of one block; a new row is appended, as in the caches of most programs."""

    keys: Tensor
    values: Tensor
    visible: None = None  # one token sees all before it

    def add(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys, self.values = torch.cat([self.keys, key], 2), torch.cat([self.values, value], 2)
        return self.keys, self.values


class Step(nn.Module):
    """One token: its scores, and all keys and values with its own."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, position: Tensor, past: list[Tensor]) -> tuple[Tensor, ...]:
        caches = [GrowingCache(*pair) for pair in zip(past[::2], past[1::2], strict=True)]
        scores = self.model.score(token, position, caches)  # type: ignore[arg-type]
        return scores, *(each for cache in caches for each in (cache.keys, cache.values))

    def empty(self, length: int = 0) -> list[Tensor]:
        """Return keys and values of no tokens, or zeros for a few."""
        heads, width = self.model.blocks[0].heads, self.model.characters.embedding_dim
        return [torch.zeros(1, heads, length, width // heads) for _ in range(2 * len(self.model.blocks))]


class Growing:
    """The model in torch."""

    def __init__(self, model: GPT) -> None:
        self.model = Step(model)

    def start(self, text: Tensor, past: list[Tensor]) -> None:
        """Stand after a text, whose keys and values are given."""
        self.begin = past

    def back(self) -> None:
        """Stand there again."""
        self.past = self.begin

    def step(self, token: Tensor, position: Tensor) -> Tensor:
        scores, *self.past = self.model(token, position, self.past)
        return scores


def past_of(model: GPT, text: Tensor) -> list[Tensor]:
    """Return the keys and values of a text."""
    way = Growing(model)
    way.past = way.model.empty()
    for place in range(text.shape[1]):
        way.step(text[:, place : place + 1], torch.tensor([place]))
    return way.past


def written(model: GPT, path: Path) -> Path:
    """Write one step to an ONNX file in which the length of the past is free."""
    step = Step(model).eval()
    past = step.empty(length=3)
    length = torch.export.Dim("length", min=1, max=model.context - 1)
    shapes = (None, None, [{2: length} for _ in past])
    names = [f"past_{number}" for number in range(len(past))]
    program = torch.onnx.export(
        step,
        (torch.zeros(1, 1, dtype=torch.int64), torch.tensor([3]), past),
        dynamo=True,
        dynamic_shapes=shapes,
        input_names=["token", "position", *names],
        output_names=["scores", *(f"present_{number}" for number in range(len(past)))],
        verbose=False,
    )
    assert program is not None
    program.save(path, external_data=True)
    return path


def quantised(path: Path) -> Path:
    """Write the file with int8 weights: dynamic quantisation, what ONNX Runtime advises for transformers."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = path.with_name(f"int8-{path.name}")
    quantize_dynamic(
        path, target, weight_type=QuantType.QInt8, per_channel=True, use_external_data_format=True
    )
    return target


class OnnxRuntime:
    """An ONNX file; keys and values stay in ONNX Runtime's memory from step to step."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.names = [each.name for each in self.session.get_inputs()]
        self.outputs = [each.name for each in self.session.get_outputs()]
        self.make = onnxruntime.OrtValue.ortvalue_from_numpy

    def start(self, text: Tensor, past: list[Tensor]) -> None:
        self.begin = [self.make(each.contiguous().numpy()) for each in past]

    def back(self) -> None:
        self.past = self.begin

    def step(self, token: Tensor, position: Tensor) -> Tensor:
        binding = self.session.io_binding()
        given = [self.make(token.numpy()), self.make(position.numpy()), *self.past]
        for name, value in zip(self.names, given, strict=True):
            binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        scores, *self.past = binding.get_outputs()
        return torch.from_numpy(scores.numpy())
