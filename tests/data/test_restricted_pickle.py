"""A pickle may only hold plain values and arrays."""

import collections
import os
import pickle

import numpy as np
import pytest
from tests.data.tiny_files import python2_pickle

from st3.data import DataError
from st3.data.restricted_pickle import load_plain


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_file_written_by_python_2_gives_its_array_and_labels():
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    table = load_plain(python2_pickle(pixels, [7, 9]), "file")
    assert set(table) == {b"data", b"labels"}
    assert table[b"data"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert table[b"data"].dtype == np.uint8
    assert table[b"labels"] == [7, 9]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_values_pickled_by_python_3_can_be_read(protocol):
    content = pickle.dumps({b"names": [b"cat", "dog"], "data": np.ones((2, 2))}, protocol=min(protocol, 4))
    table = load_plain(content, "file")
    assert table[b"names"] == [b"cat", "dog"]
    assert table["data"].tolist() == [[1, 1], [1, 1]]


def test_a_pickle_that_calls_a_function_is_refused_and_nothing_is_called(tmp_path):
    content = pickle.dumps({b"data": Trap(tmp_path / "trap")})
    with pytest.raises(DataError) as error:
        load_plain(content, "data_batch_1")
    assert str(error.value) == (
        f"data_batch_1 was refused: it calls {os.mkdir.__module__}.mkdir, which no file of pictures needs; "
        "delete it and get it from its publisher"
    )
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    "content",
    [b"cos\nsystem\n.", b"cbuiltins\neval\n.", b"cnumpy\nload\n.", b"\x80\x04\x8c\x02os\x8c\x06system\x93."],
)
def test_other_functions_are_refused(content):
    with pytest.raises(DataError, match="was refused: it calls"):
        load_plain(content, "file")


def test_harmless_classes_are_refused_too():
    with pytest.raises(DataError, match=r"calls collections\.OrderedDict"):
        load_plain(pickle.dumps(collections.OrderedDict(a=1)), "file")


def test_arrays_of_objects_are_refused():
    with pytest.raises(DataError, match="array of dtype 'O8'"):
        load_plain(pickle.dumps(np.array([{}, None]), protocol=2), "file")


@pytest.mark.parametrize("content", [b"", b"no pickle", python2_pickle(np.ones((1, 4), np.uint8), [1])[:-9]])
def test_damaged_bytes_are_one_sentence(content):
    with pytest.raises(DataError, match=r"^file is damaged and cannot be read \(.*\); download it again$"):
        load_plain(content, "file")
