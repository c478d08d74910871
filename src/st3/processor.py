"""Which processor this is. Those of one product name differ, so model and instruction sets belong to a result."""

import contextlib
import platform
from pathlib import Path

__all__ = ["instruction_sets", "processor"]

CPUINFO = Path("/proc/cpuinfo")
NUMBERS = ("cpu family", "model", "stepping")
SETS = ("sse4", "avx", "fma", "f16c", "amx", "asimd", "sve", "i8mm", "bf16")  # what kernels are written for


def processor() -> str:
    """Return the name of the processor, with its family, model and stepping where the system tells them."""
    found = _cpuinfo()
    name = found.get("model name") or platform.processor() or platform.machine()
    return ", ".join([name, *(f"{key} {found[key]}" for key in NUMBERS if key in found)])


def instruction_sets() -> list[str]:
    """Return the vector instructions that the processor has; empty if the system does not tell."""
    found = _cpuinfo()
    flags = found.get("flags", found.get("Features", "")).split()
    return sorted(flag for flag in flags if flag.startswith(SETS))


def _cpuinfo() -> dict[str, str]:
    """Return what Linux tells about the first processor."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in CPUINFO.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    return found
