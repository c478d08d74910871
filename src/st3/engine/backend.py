"""`torch.compile(model, backend="st3")`: the graphs that torch finds in a model run in the engine.

Torch splits a model where it cannot trace it and chooses among graphs by conditions that it checks at every call, so
models with control flow work. Each graph gets the model's weights as inputs; the engine compiles it for their present
values, and again when they have changed.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from .compiled import Compiled, compile

__all__ = ["st3"]

OPTIONS = ("threads", "tune")


def st3(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: Any = None,
) -> Callable[..., Any]:
    """Return what runs a graph; `options` are those of `st3.engine.compile`: threads, tune."""
    unknown = sorted(set(options or {}) - set(OPTIONS))
    if unknown:
        raise ValueError(
            f"the backend st3 has no option {unknown[0]!r}; its options are {', '.join(OPTIONS)}"
        )
    return _Graph(graph, options or {})


class _Bound(nn.Module):
    """A graph with the tensors that are part of the model in their places."""

    def __init__(self, graph: fx.GraphModule, fixed: dict[int, Tensor]) -> None:
        super().__init__()
        self.graph, self.places = graph, sorted(fixed)
        for place, tensor in fixed.items():
            self.register_buffer(f"fixed_{place}", tensor.detach())
        self.eval()

    def forward(self, *free: Any) -> Any:
        args = list(free)
        for place in self.places:
            args.insert(place, getattr(self, f"fixed_{place}"))
        return self.graph(*args)


class _Graph:
    """Runs one graph: in the engine, or in torch where it has to."""

    def __init__(self, graph: fx.GraphModule, options: dict[str, Any]) -> None:
        self.graph, self.options = graph, options
        inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self.fixed = [place for place, node in enumerate(inputs) if _is_of_the_model(node)]
        # The state of the weights and what was compiled for it, in one: another thread may be between the two.
        self.current: tuple[Any, Compiled | None] = (None, None)

    def __call__(self, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args):
            _warn(f"gradients are wanted, which the engine has none of: {UNDER_NO_GRAD}")
            return self.graph(*args)
        fixed = {place: args[place] for place in self.fixed}
        free = [arg for place, arg in enumerate(args) if place not in fixed]
        state = [_state(tensor) for tensor in fixed.values()]
        seen, compiled = self.current
        if state != seen:
            compiled = self._compile(fixed, free)
            self.current = (state, compiled)
        return compiled(*free) if compiled else self.graph(*args)

    def _compile(self, fixed: dict[int, Tensor], free: list[Any]) -> Compiled | None:
        if not any(isinstance(arg, Tensor) for arg in free):
            return None
        try:
            compiled = compile(_Bound(self.graph, fixed), tuple(free), **self.options)
            if (
                compiled.state
            ):  # a compiled model has its own copy, and the caller wants the change in the model's
                raise ValueError(f"it changes {len(compiled.state)} buffers of the model")
            return compiled
        except (TypeError, ValueError) as refusal:
            _warn(str(refusal))
            return None


UNDER_NO_GRAD = "call the model under torch.no_grad() or torch.inference_mode()"


def _is_of_the_model(node: fx.Node) -> bool:
    """Return whether an input of a graph is a parameter or a buffer."""
    return node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None


def _state(tensor: Tensor) -> tuple[int, int]:
    """Return numbers that change when somebody writes to a tensor or puts another in its place."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _warn(reason: str) -> None:
    warnings.warn(f'torch.compile(backend="st3") runs a graph in plain torch: {reason}', stacklevel=3)
