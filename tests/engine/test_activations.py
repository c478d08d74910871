"""Activations in the kernels keep their digits."""

import numpy as np
import pytest
import torch

from st3.engine import native
from st3.engine.program import Activation, Conv, Function, Program
from st3.engine.run import Runtime

WIDTH = 1 << 15


@pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")
@pytest.mark.parametrize("isa", ["avx512", "avx2", "baseline"])
def test_tanh_is_right_to_some_units_in_the_last_place_for_numbers_of_every_size(isa):
    try:
        native.kernels(isa)
    except native.NativeError as missing:
        pytest.skip(str(missing))
    conv = Conv(
        name="conv",
        sources=("x",),
        target="y",
        weight=np.ones((1, 1, 1, 1), np.float32),
        bias=None,
        activation=Activation(Function.TANH),
    )
    shape = (1, 1, 1, 2 * WIDTH)
    program = Program(steps=(conv,), shapes={"x": shape, "y": shape}, inputs=("x",), outputs=("y",))
    sizes = torch.logspace(-40, 2, WIDTH, dtype=torch.float64).float()
    x = torch.cat([sizes, -sizes]).view(shape)
    (got,) = Runtime(program, tune=False, isa=isa).run(x)
    want = torch.tanh(x.double())
    allowed = 4 * 2.0**-24 * want.abs() + 2.0**-149
    assert ((got.double() - want).abs() <= allowed).all()

    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0]).repeat(WIDTH)[: 2 * WIDTH]
    (got,) = Runtime(program, tune=False, isa=isa).run(special.view(shape))
    torch.testing.assert_close(got.flatten(), torch.tanh(special), rtol=0, atol=0, equal_nan=True)
