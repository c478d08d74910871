"""From a program to a plan: layouts, kernels, packed weights.

planner      the values and their layouts (layout.py, values.py); moves.py copies between layouts
lower/       each kind of step as operations, one file per family of kinds
convolution  a convolution, its alternatives and their structures: configs.py how it is divided, with estimates, pack.py
             weights in the order in which kernels read them; lanewise.py lanes as outputs; fused.py two steps as one
tune         measures and caches the fastest alternative
assemble     operations, and the plan itself; make.py all of this in order
"""

from .make import Planned, make_plan

__all__ = ["Planned", "make_plan"]
