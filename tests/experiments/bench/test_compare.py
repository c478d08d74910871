"""A comparison names the fastest float32 engine and the fastest of any precision, and the processor."""

import math
import time

import pytest
import torch

from st3.experiments.bench.benchmark import ADVICE, Bench
from st3.experiments.bench.compare import (
    ENGINE,
    ENGINE_INT8,
    TORCH,
    Comparison,
    Timing,
    difference,
    time_call,
)
from st3.processor import instruction_sets, processor


def comparison(own, *, float32, int8=None, own_int8=None):
    """A comparison with given minima and medians, in milliseconds."""
    timings = [
        Timing(ENGINE, "float32", *own, 1e-7),
        Timing(TORCH, "float32", 90.0, 91.0, 0.0),
        Timing("OpenVINO float32", "float32", *float32, 1e-7),
    ]
    timings += [Timing("OpenVINO int8", "int8", *int8, 0.02)] if int8 else []
    timings += [Timing(ENGINE_INT8, "int8", *own_int8, 0.02)] if own_int8 else []
    return Comparison(tuple(timings), {}, 1, 3, 0.1, None)


def verdict(*given, **named):
    return Bench("m", (1,), 0.3, comparison(*given, **named)).verdict


def test_the_verdict_speaks_of_float32_and_of_any_precision():
    assert verdict((10, 10), float32=(20, 19)) == (
        "With 30.0 % zeros the st3 engine is 2.00 times as fast as OpenVINO float32, the fastest of the others "
        "in any precision."
    )
    assert verdict((10, 10), float32=(20, 19), int8=(12, 15)) == (
        "With 30.0 % zeros the st3 engine is 2.00 times as fast as OpenVINO float32, the fastest of the others "
        "in float32, and 1.20 times as fast as OpenVINO int8, the fastest in any precision."
    )
    assert verdict((10, 10), float32=(20, 19), int8=(5, 15)).endswith(
        ", but 0.50 times as fast as OpenVINO int8, the fastest in any precision."
    )


def test_the_engine_in_int8_is_no_rival_and_has_a_sentence_of_its_own():
    found = verdict((10, 10), float32=(20, 19), int8=(5, 15), own_int8=(2, 2))
    assert found.endswith(
        "OpenVINO int8, the fastest in any precision. In int8 it is 2.50 times as fast as OpenVINO int8."
    )
    data = comparison((10, 10), float32=(20, 19), int8=(5, 6), own_int8=(2, 2)).to_dict()
    assert data["any_precision"]["rival"] == "OpenVINO int8"
    assert data["in_int8"] == {"rival": "OpenVINO int8", "speed_up": {"min": 2.5, "median": 3.0}}


@pytest.mark.parametrize("float32", [(15, 10.4), (8, 8)])
def test_the_verdict_claims_a_gain_only_if_minimum_and_median_agree(float32):
    text = verdict((10, 10), float32=float32, int8=(4, 4))
    assert text.startswith("No gain: with 30.0 % zeros the st3 engine is ")
    assert text.endswith(f"but 0.40 times as fast as OpenVINO int8, the fastest in any precision. {ADVICE}")


def test_plain_data_hold_both_rivals_and_the_processor():
    data = comparison((10, 10), float32=(20, 19), int8=(5, 6)).to_dict()
    assert (data["rival"], data["speed_up"]) == ("OpenVINO float32", {"min": 2.0, "median": 1.9})
    assert data["any_precision"] == {"rival": "OpenVINO int8", "speed_up": {"min": 0.5, "median": 0.6}}
    assert (data["processor"], data["instruction_sets"]) == (processor(), instruction_sets())


def test_a_difference_is_relative_to_the_largest_value_of_all_outputs():
    wanted = [torch.tensor([1.0, -4.0]), torch.tensor([True, False]), torch.tensor([])]
    assert difference(wanted, wanted) == 0
    assert difference([torch.tensor([1.0, -3.5]), wanted[1], wanted[2]], wanted) == 0.125
    assert difference([wanted[0], ~wanted[1], wanted[2]], wanted) == 0.25
    assert math.isnan(difference([wanted[0], torch.tensor([math.nan, 0]), wanted[2]], wanted))


def test_the_clock_of_the_process_leaves_out_the_time_of_others():
    def sleep():
        time.sleep(0.05)
        return []

    assert time_call(sleep) >= 0.05 > 0.02 > time_call(sleep, time.process_time)
