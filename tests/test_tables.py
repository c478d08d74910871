"""A table is aligned text: one line for the head, one for each row."""

import pytest

from st3.tables import text_table


def test_the_first_column_is_flush_left_and_the_others_right():
    table = text_table(["layer", "shape", "zeros"], [["conv1", "3x3", 7], ["fc", "10x64", 640]])
    assert table.split("\n") == [
        "layer  shape  zeros",
        "conv1    3x3      7",
        "fc     10x64    640",
    ]


def test_a_column_is_as_wide_as_its_widest_cell_or_heading():
    table = text_table(["a", "heading"], [["much wider", 1]])
    assert table.split("\n") == [
        "a           heading",
        "much wider        1",
    ]


def test_columns_are_flush_left_where_asked():
    table = text_table(["n", "why"], [[1, "bias"], [12, "first layer"]], left=[1])
    assert table.split("\n") == [
        " n  why",
        " 1  bias",
        "12  first layer",
    ]


def test_no_line_ends_in_a_space():
    table = text_table(["layer", "note"], [["conv1", ""], ["fc", "dense"]], left=(0, 1))
    assert table.split("\n") == ["layer  note", "conv1", "fc     dense"]


def test_a_table_without_rows_is_its_head():
    assert text_table(["layer", "zeros"], []) == "layer  zeros"


def test_cells_may_be_any_object():
    assert text_table(["a", "b"], [(None, 0.5)]).split("\n") == ["a       b", "None  0.5"]


@pytest.mark.parametrize("row", [["fc"], ["fc", 1, 2]], ids=["short", "long"])
def test_a_row_of_the_wrong_length_is_named(row):
    with pytest.raises(ValueError, match=rf"^row 1 has {len(row)} cells under 2 headings: \['fc'"):
        text_table(["layer", "zeros"], [["conv1", 3], row])
