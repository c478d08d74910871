"""The walk of one ST-3 step, as ARCHITECTURE.md tells it: short, and through no other file."""

import re
import sys
from pathlib import Path

import torch
from torch import nn

import st3

SOURCE = Path(st3.__file__).parent
MOST_CALLS = 120  # for two layers


def files_of_one_step() -> list[str]:
    """Return the file of every call inside the package during one step of ST-3 on two layers."""
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    st3.sparsify(model, optimizer, sparsity=0.9, total_steps=100)
    for _ in range(30):
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    model(torch.randn(16, 32)).square().mean().backward()
    found = []

    def look(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            found.append(path.relative_to(SOURCE).as_posix())

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        optimizer.step()
    finally:
        sys.setprofile(before)
    return found


def test_one_step_is_the_walk_of_the_architecture():
    text = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = text.partition("One step of ST-3, in the order of its files:")[2].split("```")[1]
    told = {name.removeprefix("core/") for name in re.findall(r"[\w/]+\.py", walk)}
    calls = files_of_one_step()
    assert {name.removeprefix("core/") for name in calls} == told
    assert len(calls) <= MOST_CALLS
