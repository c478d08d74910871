"""From a model to a program.

capture       the model as a graph of aten operators (torch.export)
translate     the graph as a program
aten_call     one operator's call, and the table of translators
layers, elementwise, shapes
              the translators
torch_call    calls that stay in torch
"""

from .capture import capture
from .torch_call import Read, TorchCall, to_float_bits
from .translate import Translation, translate

__all__ = ["Read", "TorchCall", "Translation", "capture", "to_float_bits", "translate"]
