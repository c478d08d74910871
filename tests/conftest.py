"""Settings of every test, and of the processes that tests start."""

import gc
import os
import sys

# Many tests start processes of their own; without compiled files each of them would compile torch again, which takes
# longer than most tests. The Makefile says the same; this is for whoever calls pytest.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Before torch is imported. Tests are small: a second thread costs more than it brings.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault(
    "OMP_WAIT_POLICY", "passive"
)  # where there are several, they do not spin for one another
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault(
    "ST3_TUNING", "off"
)  # the engine's measurements under test are not for the user's cache

import pytest
from hypothesis import HealthCheck, settings

sys.dont_write_bytecode = False  # of this process, which has read the variable already

# Not test files, but their asserts are the tests: show both sides when one fails.
pytest.register_assert_rewrite("tests.data.contract", "tests.models.contract")

# The first call of a torch function is slow and the machine may be busy: time is no reason to fail.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make test` takes this one: the same examples everywhere, so that a failure can be repeated.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.load_profile("default")

# Collecting imports millions of objects that stay: looking for garbage among them takes longer than many tests.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Set up what needs torch, except in the process that only divides the tests among others.

    There, importing torch would delay the others. So pyproject.toml names no warning of the library.
    """
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        return
    for advice in (
        "PrecisionWarning",  # of tests in half precision
        "LayerCollapseWarning",  # tiny networks earn it; its own tests ask for it
    ):
        config.addinivalue_line("filterwarnings", f"ignore::st3.errors.{advice}")

    import torch

    # With every seed, torch formats the stack once for each kind of device that is not there yet. The stack of a test
    # is deep: that took longer than the rest of many tests.
    for kind in (torch.cuda, torch.xpu, torch.mtia):
        if not kind.is_available():
            kind.manual_seed_all = lambda seed: None
