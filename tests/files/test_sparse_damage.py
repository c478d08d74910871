"""Damaged and forged sparse files: they load exactly or are refused in one clear sentence."""

import json
import tracemalloc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save, save_file

import st3
from st3.files.contents import CHECKSUM, CONTENTS, _hash, checksum
from st3.files.packing import PARTS

MASK = torch.rand(60, 50, generator=torch.Generator().manual_seed(0)) < 0.1
WEIGHTS = {
    "layer.weight": torch.randn(60, 50, generator=torch.Generator().manual_seed(1))
    * MASK,  # with negative zeros
    "layer.bias": torch.arange(5.0),
    "count": torch.tensor(7),
}
WEIGHTS["tied.weight"] = WEIGHTS["layer.weight"]


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("intact") / "m.safetensors"
    st3.save_sparse(WEIGHTS, path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged") / "m.safetensors"


def outcome(path, content):
    """Return the error of loading this content, or None if every bit equals the original."""
    path.write_bytes(content)
    try:
        found = st3.load_sparse(path)
    except st3.errors.SparseFileError as error:
        message = str(error)
        assert str(path) in message
        assert "\n" not in message
        return message
    assert found.keys() == WEIGHTS.keys()
    for name, tensor in WEIGHTS.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))
    return None


def split(content):
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(head, data):
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


@settings(max_examples=60)
@given(data=st.data())
def test_a_flipped_bit_is_detected_or_harmless(intact, place, data):
    at = data.draw(st.integers(0, 8 * len(intact) - 1))
    content = bytearray(intact)
    content[at // 8] ^= 1 << at % 8
    outcome(place, bytes(content))


@settings(max_examples=60)
@given(data=st.data())
def test_changed_bytes_are_detected_or_harmless(intact, place, data):
    content = bytearray(intact)
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(intact) - 1))] = data.draw(st.integers(0, 255))
    outcome(place, bytes(content))


@settings(max_examples=60)
@given(data=st.data())
def test_a_truncated_file_is_detected(intact, place, data):
    assert outcome(place, intact[: data.draw(st.integers(0, len(intact) - 1))])


def test_every_flipped_bit_of_the_stored_tensors_is_detected(intact, place):
    data = len(split(intact)[1])
    for at in range(len(intact) - data, len(intact), 37):
        content = bytearray(intact)
        content[at] ^= 1 << at % 8
        assert "its checksum does not match" in outcome(place, bytes(content))


def edit(intact, change):
    """Return the file with a changed table of contents and matching checksums: a forgery, not an accident."""
    head, data = split(intact)
    contents = json.loads(head["__metadata__"][CONTENTS])
    change(contents)
    return join(head | {"__metadata__": metadata(contents, load(intact))}, data)


def metadata(contents, tensors):
    entry = contents.get("tensors", {}).get(ENTRY, {})
    if "checksum" in entry and entry["checksum"] is not None:
        facts = {key: value for key, value in entry.items() if key != "checksum"}
        parts = PARTS if facts.get("negative_zeros") else PARTS[:2]
        entry["checksum"] = checksum(facts, [tensors[f"{ENTRY}{part}"] for part in parts])
    text = json.dumps(contents)
    return {CONTENTS: text, CHECKSUM: _hash([text.encode()], 8)}


ENTRY = "layer.weight"
EDITS = {
    "newer": (lambda c: c.update(format=3), "it has format 3, and this st3 reads format 2: a newer st3 may read it"),
    "older": (lambda c: c.update(format=1), "and this st3 reads format 2: it is older, so save the model again"),
    "no format": (lambda c: c.pop("format"), "it has format None, and this st3 reads format 2"),
    "no tensors": (lambda c: c.pop("tensors"), "its table of contents is incomplete"),
    "no entry": (lambda c: c["tensors"].pop("count"), "it holds other tensors than it lists (count)"),
    "coding": (lambda c: c["tensors"][ENTRY].update(coding="zip"), "layer.weight: unknown coding 'zip'"),
    "dtype": (lambda c: c["tensors"][ENTRY].update(dtype="object"), "layer.weight: unknown type 'object'"),
    "wide": (lambda c: c["tensors"][ENTRY].update(dtype="float64"), "its values cannot be of type torch.float32"),
    "shape": (lambda c: c["tensors"][ENTRY].update(shape=[60, -50]), "layer.weight: [60, -50] is not a valid shape"),
    "no shape": (lambda c: c["tensors"][ENTRY].pop("shape"), "layer.weight: None is not a valid shape"),
    "huge": (lambda c: c["tensors"][ENTRY].update(shape=[1 << 40, 1 << 40]), "is not a valid shape"),
    "large": (lambda c: c["tensors"][ENTRY].update(shape=[1 << 40]), "over 250 for each of its bytes: if you trust it"),
    "other shape": (lambda c: c["tensors"][ENTRY].update(shape=[50, 59]), "its position code"),
    "count": (lambda c: c["tensors"][ENTRY].update(count=5), "values, not 5"),
    "counts": (lambda c: c["tensors"][ENTRY].update(count=3000), "and negative zeros do not fit in 3,000 places"),
    "text": (lambda c: c["tensors"][ENTRY].update(count="5"), "count must be a non-negative integer, got '5'"),
    "block": (lambda c: c["tensors"][ENTRY].update(block=0), "it cannot have blocks of 0 gaps"),
    "signs": (lambda c: c["tensors"][ENTRY].update(negative_zeros=1), "its position code"),
    "checksum": (lambda c: c["tensors"][ENTRY].pop("checksum"), "layer.weight has no checksum"),
    "tied": (lambda c: c["tied"].update({"tied.weight": "none"}), "tied.weight is listed as tied to none, which"),
    "entry": (lambda c: c["tensors"].update(count=3), "count has no checksum"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_a_forged_table_of_contents_is_refused_even_with_correct_checksums(intact, place, name):
    change, message = EDITS[name]
    assert message in outcome(place, edit(intact, change))


@settings(max_examples=60)
@given(
    key=st.sampled_from(["shape", "count", "block", "negative_zeros", "signs_block", "dtype", "coding", "checksum"]),
    value=st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=4), st.permutations([60, 50]),
        st.lists(st.integers(0, 99), max_size=4),
    ),
)  # fmt: skip
def test_any_edit_of_an_entry_is_detected_by_its_checksum_or_harmless(intact, place, key, value):
    head, data = split(intact)
    contents = json.loads(head["__metadata__"][CONTENTS])
    contents["tensors"][ENTRY][key] = value
    text = json.dumps(contents)
    head["__metadata__"] |= {CONTENTS: text, CHECKSUM: _hash([text.encode()], 8)}
    outcome(place, join(head, data))


def test_an_edited_table_of_contents_without_a_new_checksum_is_refused(intact, place):
    head, data = split(intact)
    head["__metadata__"][CONTENTS] = head["__metadata__"][CONTENTS].replace("[60,50]", "[50,60]")
    assert "the checksum of its table of contents does not match" in outcome(place, join(head, data))


@settings(max_examples=60)
@given(parts=st.lists(st.binary(max_size=400), min_size=2, max_size=2))
def test_forged_position_codes_stay_in_bounds(intact, place, parts):
    tensors = load(intact)
    for name, part in zip(PARTS[1:], parts, strict=True):
        tensors[f"{ENTRY}{name}"] = torch.tensor(list(part), dtype=torch.uint8)
    contents = json.loads(split(intact)[0]["__metadata__"][CONTENTS])
    place.write_bytes(save(tensors, metadata=metadata(contents, tensors)))
    try:
        shape = st3.load_sparse(place)[ENTRY].shape
    except st3.errors.SparseFileError as error:
        shape, message = None, str(error)
    assert shape == (60, 50) or "its position code" in message


def test_a_file_that_claims_huge_tensors_allocates_nothing(intact, place):
    place.write_bytes(edit(intact, lambda c: c["tensors"][ENTRY].update(shape=[1 << 33], count=1 << 30)))
    tracemalloc.start()
    with pytest.raises(st3.errors.SparseFileError, match="claims to hold 8,589,934,592 numbers"):
        st3.load_sparse(place)
    model = torch.nn.Linear(50, 60)
    with pytest.raises(st3.errors.SparseFileError, match=r"do not fit the model: .*unexpected: "):
        st3.load_sparse(place, model)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


@pytest.mark.parametrize("shape", [[0, 1 << 70], [1 << 63, 0], [0, 1 << 62, 1 << 62]])
def test_a_dimension_of_zero_does_not_hide_an_overflow_in_the_others(place, shape):
    parts = {"": torch.zeros(0), ":positions": torch.zeros(0, dtype=torch.uint8)}
    facts = {"coding": "rice", "shape": shape, "count": 0, "block": 32}
    entry = facts | {"checksum": checksum(facts, parts.values())}
    stored = {f"{ENTRY}{part}": tensor for part, tensor in parts.items()}
    contents = {"format": 2, "tensors": {ENTRY: entry}, "tied": {}}
    assert "is not a valid shape" in outcome(place, save(stored, metadata=metadata(contents, stored)))


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    with pytest.raises(st3.errors.SparseFileError, match=r"^there is no file .*m\.safetensors$"):
        st3.load_sparse(path)
    save_file({"w": torch.ones(2)}, path)
    with pytest.raises(
        st3.errors.SparseFileError, match=r"is not a sparse file: st3\.save_sparse did not write it$"
    ):
        st3.load_sparse(path)
    path.write_bytes(b"\x80\x05pickle")
    with pytest.raises(st3.errors.SparseFileError, match="is not a safetensors file, or it is damaged"):
        st3.load_sparse(path)
