"""Which processor this is, from what Linux tells."""

import pytest

from st3 import processor as room
from st3.processor import instruction_sets, processor

INTEL = """\
processor	: 0
cpu family	: 6
model		: 207
model name	: Intel(R) Xeon(R) Processor
stepping	: 2
flags		: fpu sse sse4_2 avx2 avx512_vnni hypervisor

processor	: 1
model		: 999
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd sve cpuid\n"


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(room, "CPUINFO", path)
    return path


def test_the_first_processor_with_its_model_and_instruction_sets(cpuinfo):
    cpuinfo.write_text(INTEL)
    assert processor() == "Intel(R) Xeon(R) Processor, cpu family 6, model 207, stepping 2"
    assert instruction_sets() == ["avx2", "avx512_vnni", "sse4_2"]


def test_what_a_system_does_not_tell_is_left_out(cpuinfo, monkeypatch):
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert (processor(), instruction_sets()) == ("arm64", [])
    cpuinfo.write_text(ARM)
    assert (processor(), instruction_sets()) == ("arm64", ["asimd", "sve"])
