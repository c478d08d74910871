"""Every kind of step that has kernels has a rule: without one it would be left to torch, right but slow."""

from st3.engine import program
from st3.engine.lowering import lower

IN_TORCH = {program.Softmax, program.InTorch}


def test_every_kind_of_step_but_two_has_a_rule():
    kinds = set(program.Step.__subclasses__())
    assert {kind for kind in kinds if lower.dispatch(kind) is lower.dispatch(program.Step)} == IN_TORCH
