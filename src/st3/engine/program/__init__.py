"""A network as a list of steps: the front end's result and the planner's input.

Values are named by strings. A program knows the shape of each value (batch included) and its steps in execution order;
a step reads earlier values and computes one value. A step says itself what the optimiser asks about its channels.

    program    the program, and what every step is; activations
    kinds      the kinds of steps
"""

from .kinds import *  # noqa: F403 -- all names of both files, which state them once
from .program import *  # noqa: F403
