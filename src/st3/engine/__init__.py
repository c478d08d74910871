"""Sparse inference on the CPU: a finished sparse network, compiled so that its zeros cost nothing."""

from .compiled import Compiled, compile

__all__ = ["Compiled", "compile"]
