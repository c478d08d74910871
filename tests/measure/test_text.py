"""What `print(report)` shows."""

import dataclasses

import pytest

from st3.measure import LayerRow, Report
from st3.measure.text import report_text

CONV = LayerRow("conv.weight", (4, 2, 5, 5), 200, 150, None, 0.125, 1, 4, 2_000_000)
FC = LayerRow("fc.weight", (10, 10), 100, 90, None, 0.125, 0, 10, None)
SKIPPED = (("bn.weight", "of a norm"), ("bn.bias", "of a norm"), ("head", "kept dense"))
PLAIN = Report((CONV, FC), 0.8, 4000, 14, 500_000, ("aten.bmm on w",), SKIPPED, "(1, 2, 8, 8)")


def test_a_whole_report() -> None:
    assert report_text(PLAIN).splitlines() == [
        "layer            shape    weights  zeros  sparsity %  threshold  MMACs dense  MMACs sparse  empty filters",
        "conv.weight      4x2x5x5      200    150       75.00      0.125        2.000         0.500         1 of 4",
        "fc.weight        10x10        100     90       90.00      0.125            -             -              0",
        "everything else                                                        0.500         0.500",
        "total                         300    240       80.00                   2.500         1.000        1 of 14",
        "",
        "Sparsity: 80.00 % of 300 weights in 2 layers, target 80.00 %, step 4,000.",
        "Other parameters (biases, norms, layers left dense): 14.",
        "MACs: one MAC is one multiply-add of a convolution, linear layer or matrix product; norms, activations, "
        "pooling, biases and embedding look-ups are not counted; one forward pass, not divided by the batch size. "
        "Counted for the input (1, 2, 8, 8).",
        "Sparse MACs are theoretical: a dense runtime also multiplies by the zeros.",
        "Not counted: aten.bmm on w.",
        "Weights left dense: 3 (2 x of a norm; 1 x kept dense).",
    ]


def test_columns_and_remarks_without_data_are_left_out() -> None:
    bare = dataclasses.replace(FC, threshold=None)
    text = report_text(Report((bare,), None, None, 0, 0, (), (), None))
    assert text.splitlines() == [
        "layer      shape  weights  zeros  sparsity %  empty filters",
        "fc.weight  10x10      100     90       90.00              0",
        "total                 100     90       90.00              0",
        "",
        "Sparsity: 90.00 % of 100 weights in 1 layer.",
        "Other parameters (biases, norms, layers left dense): 0.",
    ]


def test_targets_of_single_layers_are_shown() -> None:
    text = report_text(dataclasses.replace(PLAIN, rows=(dataclasses.replace(CONV, target=0.7), FC)))
    head, conv, fc = (line.split() for line in text.splitlines()[:3])
    assert "target" in head
    assert "70.00" in conv
    assert fc[5] == "-"


def test_the_target_is_compared_with_the_layers_that_share_it() -> None:
    own = dataclasses.replace(CONV, target=0.7, in_budget=False)
    text = report_text(dataclasses.replace(PLAIN, rows=(own, FC), target=0.9))
    assert (
        "\nSparsity: 80.00 % of 300 weights in 2 layers; 90.00 % without the layers that have their own target, "
        "target 90.00 %, step 4,000.\n" in text
    )
    assert text.splitlines()[4].split() == ["total", "300", "240", "80.00", "2.500", "1.000", "1", "of", "14"]
    alone = report_text(dataclasses.replace(PLAIN, rows=(own,)))
    assert "\nSparsity: 75.00 % of 200 weights in 1 layer, step 4,000.\n" in alone


@pytest.mark.parametrize(
    ("zeros", "shown"),
    [(0, "0.00"), (1, "<0.01"), (500_000, "50.00"), (999_999, ">99.99"), (1_000_000, "100.00")],
)
def test_100_and_0_percent_mean_exactly_all_and_none(zeros: int, shown: str) -> None:
    row = LayerRow("w", (1000, 1000), 1_000_000, zeros, None, None, 0, 1000, None)
    assert report_text(Report((row,), None, None, 0, 0, (), (), None)).splitlines()[1].split()[4] == shown
