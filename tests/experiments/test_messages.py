"""Messages of other libraries, quoted in ours."""

import pytest

from st3.experiments.messages import quote_error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("\x1b[1mbold\x1b[0m and \x1b[38;5;1mred\x1b[m"), "bold and red"),
        (ValueError("two\n\n  lines"), "two lines"),
        (MemoryError(), "MemoryError"),
        (ValueError("x" * 301), "x" * 300 + " ..."),
    ],
)
def test_they_become_short_enough_for_a_sentence(error, text):
    assert quote_error(error) == text
