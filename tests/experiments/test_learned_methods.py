"""STR and ProbMask in whole runs: no target, several passes, checks of their settings, resuming."""

import json

import pytest
import torch

from st3.experiments.run import train
from st3.experiments.spec import compose
from st3.files.weights import read_weights
from st3.training.listener import Listener
from st3.training.sections import SettingsError

STR = {"method": "str", "arguments": {"init": -4.0, "weight_decay": 0.05}}
PROBMASK = {"method": "probmask", "sparsity": 0.8, "arguments": {"lr": 0.1}}


def spec(sparse):
    machine = {"device": "cpu", "threads": 1}
    return compose(sparse=sparse, epochs=2, protocol="single", machine=machine)


class CrashAt(Listener):
    def __init__(self, step):
        self.left = step

    def on_batch(self, epoch, batch, batches, rate):
        self.left -= 1
        if not self.left:
            raise MemoryError


def lines(folder):
    found = [json.loads(line) for line in (folder / "epochs.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in ("seconds", "checksum")} for line in found
    ]


@pytest.mark.filterwarnings("ignore::st3.errors.LayerCollapseWarning")
@pytest.mark.parametrize("sparse", [STR, PROBMASK], ids=["str", "probmask"])
def test_a_crashed_run_resumes_bit_for_bit(sparse, tmp_path):
    whole = train(spec(sparse), tmp_path / "whole")
    with pytest.raises(MemoryError):
        train(spec(sparse), tmp_path / "parts", listeners=[CrashAt(25)])  # in the second of two epochs of 19
    parts = train(spec(sparse), tmp_path / "parts", resume=True)
    first, second = (read_weights(tmp_path / name / "model.safetensors")[0] for name in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")
    assert whole["sparsity"] == parts["sparsity"]
    page = (tmp_path / "whole" / "report.html").read_text()
    if sparse is STR:
        assert whole["target"] is None
        assert 0 < whole["sparsity"] < 1
        # without a target, only the last epoch can be the best
        assert [line["is_best"] for line in lines(tmp_path / "whole")] == [False, True]
        assert "digits_cnn on digits, str<" in page
        assert "learned, without a target" in page
    else:
        assert whole["sparsity"] == pytest.approx(0.8, abs=1e-4)


@pytest.mark.parametrize(
    ("sparse", "faults"),
    [
        (
            {"method": "str", "sparsity": 0.9, "ramp": "linear", "arguments": {"weight_decay": -1.0}},
            [
                "method 'str' learns its thresholds, so that no sparsity can be asked of it: leave sparsity, ramp out",
                "method 'str': weight_decay must not be negative, got -1",
            ],
        ),
        (
            {"method": "probmask", "sparsity": None, "allocation": "erk", "arguments": {"passes": 0}},
            [
                "method 'probmask' needs a sparsity",
                "ProbMask learns how the sparsity is shared among the layers, within one budget, so allocation='erk' "
                "means nothing to it: leave it out, or take 'global'",
                "method 'probmask': passes must be a whole number of at least 1, got 0",
            ],
        ),
    ],
    ids=["str", "probmask"],
)
def test_all_faults_are_reported_at_once(sparse, faults):
    with pytest.raises(SettingsError) as error:
        spec(sparse)
    assert list(error.value.faults) == faults


def test_masks_that_would_be_fixed_before_the_ramp_ends_are_refused_before_the_first_batch(tmp_path):
    sparse = {"method": "probmask", "sparsity": 0.8, "arguments": {"finetune": 0.6}}
    with pytest.raises(
        ValueError, match="ProbMask fixes its masks after step 16 of 38, where the ramp asks for"
    ):
        train(spec(sparse), tmp_path / "run")
    assert not (tmp_path / "run").exists()
