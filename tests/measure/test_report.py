"""A report of two invented layers whose numbers can be worked out in the head."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from st3.measure import LayerRow, Report
from st3.measure.macs import CONVENTION

CONV = LayerRow("conv.weight", (4, 2, 5, 5), 200, 150, None, 0.125, 1, 4, 2_000_000)
FC = LayerRow("fc.weight", (10, 10), 100, 90, None, 0.125, 0, 10, 1_000_000)


def report(*rows: LayerRow, **changes: object) -> Report:
    plain = Report(
        rows=rows or (CONV, FC),
        target=0.8,
        step=4000,
        other_parameters=14,
        other_macs=500_000,
        uncounted=("aten.mkldnn_rnn_layer on lstm.weight_ih_l0",),
        skipped=(
            ("bn.weight", "fewer than two axes"),
            ("bn.bias", "fewer than two axes"),
            ("head", "kept dense"),
        ),
        input_shape="(1, 2, 8, 8)",
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def without_macs(row: LayerRow) -> LayerRow:
    return dataclasses.replace(row, dense_macs=None)


def test_a_layers_sparse_macs_shrink_with_its_density() -> None:
    assert (CONV.sparsity, CONV.sparse_macs) == (0.75, 500_000)
    assert (FC.sparsity, FC.sparse_macs) == (0.9, 100_000)
    assert without_macs(FC).sparse_macs is None


def test_sparse_macs_are_rounded_to_whole_numbers() -> None:
    assert dataclasses.replace(FC, zeros=1, dense_macs=50).sparse_macs == 50  # 49.5, to the even neighbour
    assert dataclasses.replace(FC, zeros=2, dense_macs=30).sparse_macs == 29  # 29.4


def test_an_empty_weight_is_neither_sparse_nor_an_error() -> None:
    empty = LayerRow("w", (0, 3), 0, 0, None, None, 0, 0, 0)
    assert (empty.sparsity, empty.sparse_macs) == (0.0, 0)


def test_totals_include_the_macs_of_other_parameters() -> None:
    whole = report()
    assert (whole.numel, whole.zeros, whole.sparsity) == (300, 240, 0.8)
    assert whole.dense_macs == 2_000_000 + 1_000_000 + 500_000
    assert whole.sparse_macs == 500_000 + 100_000 + 500_000


def test_macs_that_were_not_counted_are_none_not_zero() -> None:
    bare = report(without_macs(CONV), without_macs(FC), other_macs=0)
    assert (bare.dense_macs, bare.sparse_macs) == (None, None)


def test_layers_that_could_not_be_counted_are_left_out_of_the_sum() -> None:
    assert report(CONV, without_macs(FC), other_macs=0).dense_macs == 2_000_000


def test_a_report_without_layers_is_possible() -> None:
    nothing = report(other_macs=0, rows=())
    assert nothing.sparsity == 0.0
    assert "0.00 % of 0 weights in 0 layers" in str(nothing)


def test_the_dictionary_survives_json() -> None:
    infinite = dataclasses.replace(CONV, threshold=math.inf)
    written = report(infinite, FC).to_dict()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert written["mac_convention"] == CONVENTION
    assert written["skipped"][2] == {"name": "head", "reason": "kept dense"}
    assert written["layers"][0]["threshold"] is None
    assert written["layers"][1] == {
        "name": "fc.weight",
        "shape": [10, 10],
        "weights": 100,
        "zeros": 90,
        "sparsity": 0.9,
        "target": None,
        "threshold": 0.125,
        "empty_filters": 0,
        "filters": 10,
        "dense_macs": 1_000_000,
        "sparse_macs": 100_000,
    }


def test_text_and_json_files_hold_the_report(tmp_path: Path) -> None:
    report().save(tmp_path / "report.txt")
    report().save(str(tmp_path / "report.JSON"))
    assert (tmp_path / "report.txt").read_text(encoding="utf-8") == f"{report()}\n"
    assert json.loads((tmp_path / "report.JSON").read_text()) == report().to_dict()


@pytest.mark.parametrize(("suffix", "opening"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_figures_are_saved_in_the_format_of_their_suffix(tmp_path: Path, suffix: str, opening: bytes) -> None:
    path = tmp_path / f"report{suffix}"
    report().save(path)
    assert path.read_bytes().startswith(opening)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["report.docx", "report"])
def test_an_unknown_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"cannot save a report as '{name}': .* \.txt, \.json, \.png, \.svg, \.pdf"
    ):
        report().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def fail(self: Report) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Report, "to_dict", fail)
    with pytest.raises(KeyboardInterrupt):
        report().save(path)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]
