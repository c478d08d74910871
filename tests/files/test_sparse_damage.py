"""Sparse files that were cut, flipped or edited: the exact original or one clear sentence, never anything else."""

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
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "m.safetensors"
    st3.save_sparse(WEIGHTS, path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged") / "m.safetensors"


def outcome(path, content):
    """Return the error of reading this content, or None if every bit is the original's."""
    path.write_bytes(content)
    try:
        found = st3.load_sparse(path)
    except st3.errors.SparseFileError as error:
        said = str(error)
        return (
            said if str(path) in said and "\n" not in said else pytest.fail(f"not one clear sentence: {said}")
        )
    assert found.keys() == WEIGHTS.keys()
    for name, tensor in WEIGHTS.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))
    return None


def header(content):
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(head, data):
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


@settings(max_examples=60)
@given(data=st.data())
def test_a_flipped_bit_is_found_or_does_no_harm(whole, place, data):
    at = data.draw(st.integers(0, 8 * len(whole) - 1))
    content = bytearray(whole)
    content[at // 8] ^= 1 << at % 8
    outcome(place, bytes(content))


@settings(max_examples=60)
@given(data=st.data())
def test_changed_bytes_are_found_or_do_no_harm(whole, place, data):
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    outcome(place, bytes(content))


@settings(max_examples=60)
@given(data=st.data())
def test_a_cut_file_is_found(whole, place, data):
    assert outcome(place, whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_every_flipped_bit_of_the_numbers_is_found(whole, place):
    data = len(header(whole)[1])
    for at in range(len(whole) - data, len(whole), 37):
        content = bytearray(whole)
        content[at] ^= 1 << at % 8
        assert "its checksum is another one than when it was saved" in outcome(place, bytes(content))


def edited(whole, change):
    """Return the file with its list of contents changed and all checksums to match: a forgery, no accident."""
    head, data = header(whole)
    contents = json.loads(head["__metadata__"][CONTENTS])
    change(contents)
    return joined(head | {"__metadata__": metadata(contents, load(whole))}, data)


def metadata(contents, tensors):
    entry = contents.get("tensors", {}).get(ENTRY, {})
    if "checksum" in entry and entry["checksum"] is not None:
        facts = {key: value for key, value in entry.items() if key != "checksum"}
        parts = PARTS if facts.get("negative_zeros") else PARTS[:2]
        entry["checksum"] = checksum(facts, [tensors[f"{ENTRY}:{part}"] for part in parts])
    text = json.dumps(contents)
    return {CONTENTS: text, CHECKSUM: _hash([text.encode()], 8)}


ENTRY = "layer.weight"
EDITS = {
    "format": (lambda c: c.update(format=2), "it has format 2, and this st3 reads format 1: a newer one may read it"),
    "no tensors": (lambda c: c.pop("tensors"), "its list of tensors is incomplete"),
    "no entry": (lambda c: c["tensors"].pop("count"), "its tensors are not those it lists (count)"),
    "coding": (lambda c: c["tensors"][ENTRY].update(coding="zip"), "layer.weight has coding 'zip' and type 'its own'"),
    "dtype": (lambda c: c["tensors"][ENTRY].update(dtype="object"), "and type 'object': not known here"),
    "wide": (lambda c: c["tensors"][ENTRY].update(dtype="float64"), "its values are of type torch.float32, which"),
    "shape": (lambda c: c["tensors"][ENTRY].update(shape=[60, -50]), "has the shape [60, -50], which is none"),
    "no shape": (lambda c: c["tensors"][ENTRY].pop("shape"), "has the shape None, which is none"),
    "huge": (lambda c: c["tensors"][ENTRY].update(shape=[1 << 40, 1 << 40]), "which is none"),
    "large": (lambda c: c["tensors"][ENTRY].update(shape=[1 << 40]), "over 250 for each of its bytes: if that is true"),
    "other shape": (lambda c: c["tensors"][ENTRY].update(shape=[50, 59]), "its code of positions"),
    "count": (lambda c: c["tensors"][ENTRY].update(count=5), "values, not 5"),
    "counts": (lambda c: c["tensors"][ENTRY].update(count=3000), "has 3000 values of 3,000, which cannot be"),
    "text": (lambda c: c["tensors"][ENTRY].update(count="5"), "has 5 values of 3,000, which cannot be"),
    "block": (lambda c: c["tensors"][ENTRY].update(block=0), "blocks of 0 gaps"),
    "signs": (lambda c: c["tensors"][ENTRY].update(negative_zeros=1), "its code of positions"),
    "checksum": (lambda c: c["tensors"][ENTRY].pop("checksum"), "layer.weight has no checksum"),
    "tied": (lambda c: c["tied"].update({"tied.weight": "none"}), "tied.weight is said to be another name of none"),
    "entry": (lambda c: c["tensors"].update(count=3), "count has no checksum"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_list_is_refused_even_if_its_checksums_are_right(whole, place, name):
    change, said = EDITS[name]
    assert said in outcome(place, edited(whole, change))


@settings(max_examples=60)
@given(
    key=st.sampled_from(["shape", "count", "block", "negative_zeros", "signs_block", "dtype", "coding", "checksum"]),
    value=st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=4), st.permutations([60, 50]),
        st.lists(st.integers(0, 99), max_size=4),
    ),
)  # fmt: skip
def test_any_edit_of_an_entry_is_found_by_its_own_checksum_or_does_no_harm(whole, place, key, value):
    head, data = header(whole)
    contents = json.loads(head["__metadata__"][CONTENTS])
    contents["tensors"][ENTRY][key] = value
    text = json.dumps(contents)
    head["__metadata__"] |= {CONTENTS: text, CHECKSUM: _hash([text.encode()], 8)}
    outcome(place, joined(head, data))


def test_an_edited_list_without_its_checksum_is_refused(whole, place):
    head, data = header(whole)
    head["__metadata__"][CONTENTS] = head["__metadata__"][CONTENTS].replace("[60,50]", "[50,60]")
    assert "its list of tensors is damaged: the checksum is another one" in outcome(place, joined(head, data))


@settings(max_examples=60)
@given(parts=st.lists(st.binary(max_size=400), min_size=2, max_size=2))
def test_codes_of_anything_with_right_checksums_stay_in_bounds(whole, place, parts):
    tensors = load(whole)
    for name, part in zip(("positions", "signs"), parts, strict=True):
        tensors[f"{ENTRY}:{name}"] = torch.tensor(list(part), dtype=torch.uint8)
    contents = json.loads(header(whole)[0]["__metadata__"][CONTENTS])
    place.write_bytes(save(tensors, metadata=metadata(contents, tensors)))
    try:
        shape = st3.load_sparse(place)[ENTRY].shape
    except st3.errors.SparseFileError as error:
        shape, said = None, str(error)
    assert shape == (60, 50) or "its code of positions" in said


def test_a_file_that_claims_to_be_large_takes_no_memory(whole, place):
    place.write_bytes(edited(whole, lambda c: c["tensors"][ENTRY].update(shape=[1 << 33], count=1 << 30)))
    tracemalloc.start()
    with pytest.raises(st3.errors.SparseFileError, match="claims to hold 8,589,934,592 numbers"):
        st3.load_sparse(place)
    model = torch.nn.Linear(50, 60)
    with pytest.raises(st3.errors.SparseFileError, match=r"of another shape|not of the model"):
        st3.load_sparse(place, model)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


@pytest.mark.parametrize("shape", [[0, 1 << 70], [1 << 63, 0], [0, 1 << 62, 1 << 62]])
def test_a_size_of_zero_does_not_excuse_sizes_that_torch_cannot_count(place, shape):
    parts = {"values": torch.zeros(0), "positions": torch.zeros(0, dtype=torch.uint8)}
    facts = {"coding": "rice", "shape": shape, "count": 0, "block": 32}
    entry = facts | {"checksum": checksum(facts, parts.values())}
    stored = {f"{ENTRY}:{part}": tensor for part, tensor in parts.items()}
    contents = {"format": 1, "tensors": {ENTRY: entry}, "tied": {}}
    assert "which is none" in outcome(place, save(stored, metadata=metadata(contents, stored)))


def test_other_files_are_told_apart(tmp_path):
    path = tmp_path / "m.safetensors"
    with pytest.raises(st3.errors.SparseFileError, match=r"^there is no file .*m\.safetensors$"):
        st3.load_sparse(path)
    save_file({"w": torch.ones(2)}, path)
    with pytest.raises(
        st3.errors.SparseFileError, match=r"is no sparse file: it was not written by st3\.save_sparse$"
    ):
        st3.load_sparse(path)
    path.write_bytes(b"\x80\x05pickle")
    with pytest.raises(st3.errors.SparseFileError, match="is no safetensors file, or a damaged one"):
        st3.load_sparse(path)
