"""A network as a list of steps: the front end's result and the planner's input.

Values are named by strings. A program knows the shape of each value (batch included) and its steps in execution order;
a step reads earlier values and computes one value. A step says itself what the optimiser asks about its channels.

    program    the program, and what every step is; activations
    kinds      the kinds of steps
"""

from .kinds import (
    AdaptiveAverage,
    Add,
    Affine,
    AveragePool,
    Concat,
    Conv,
    Elementwise,
    GlobalAverage,
    GroupNorm,
    InTorch,
    Layer,
    Linear,
    MaxPool,
    Multiply,
    Norm,
    Pairwise,
    PerChannel,
    Resample,
    Reshape,
    Select,
    Softmax,
    taps_of,
)
from .program import (
    Activated,
    Activation,
    Floats,
    Flow,
    Function,
    Ints,
    Mask,
    Pair,
    Program,
    Shape,
    Step,
    Windows,
)

__all__ = [
    "Activated",
    "Activation",
    "AdaptiveAverage",
    "Add",
    "Affine",
    "AveragePool",
    "Concat",
    "Conv",
    "Elementwise",
    "Floats",
    "Flow",
    "Function",
    "GlobalAverage",
    "GroupNorm",
    "InTorch",
    "Ints",
    "Layer",
    "Linear",
    "Mask",
    "MaxPool",
    "Multiply",
    "Norm",
    "Pair",
    "Pairwise",
    "PerChannel",
    "Program",
    "Resample",
    "Reshape",
    "Select",
    "Shape",
    "Softmax",
    "Step",
    "Windows",
    "taps_of",
]
