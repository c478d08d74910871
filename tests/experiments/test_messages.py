"""Messages of other programs, passed on."""

import pytest

from st3.experiments.messages import passed_on


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("\x1b[1mbold\x1b[0m and \x1b[38;5;1mred\x1b[m"), "bold and red"),
        (ValueError("two\n\n  lines"), "two lines"),
        (MemoryError(), "MemoryError"),
        (ValueError("x" * 301), "x" * 300 + " ..."),
    ],
)
def test_they_become_part_of_a_sentence(error, text):
    assert passed_on(error) == text
