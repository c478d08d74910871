"""The sparse file, read by a program that knows its specification (docs/files.md) and nothing of st3."""

import hashlib
import json
import struct
from math import prod

import pytest
import torch

import st3

NUMBERS = {"F32": ("torch.float32", 4), "U8": ("torch.uint8", 1)}


def read(path):
    """Return the tensors of a file of float32 weights: name -> (shape, bytes of each number)."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header.pop("__metadata__")
    text = metadata["st3.sparse"]
    assert metadata["st3.sparse.checksum"] == hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    found = {}
    for name, entry in json.loads(text)["tensors"].items():
        entry = {"checksum": entry} if isinstance(entry, str) else dict(entry)
        parts = [header[part] for part in (name, f"{name}:positions", f"{name}:signs") if part in header]
        stored = [data[slice(*part["data_offsets"])] for part in parts]
        check(entry, parts, stored)
        found[name] = unpack(entry, stored) if "coding" in entry else (parts[0]["shape"], words(stored[0]))
    return found


def check(entry, parts, stored):
    expected = entry.pop("checksum")
    digest = hashlib.blake2b(json.dumps(entry, sort_keys=True).encode(), digest_size=4)
    for part, content in zip(parts, stored, strict=True):
        digest.update(f"{NUMBERS[part['dtype']][0]}{tuple(part['shape'])};".encode() + content)
    assert digest.hexdigest() == expected


def words(content):
    return [content[at : at + 4] for at in range(0, len(content), 4)]


def unpack(entry, stored):
    size = prod(entry["shape"])
    dense = [bytes(4)] * size
    places = decode(stored[1], size, entry["count"], entry["block"])
    for place, value in zip(places, words(stored[0]), strict=True):
        dense[place] = value
    if "negative_zeros" in entry:
        zeros = sorted({*range(size)} - {*places})
        for number in decode(stored[2], len(zeros), entry["negative_zeros"], entry["signs_block"]):
            dense[zeros[number]] = struct.pack("<f", -0.0)
    return entry["shape"], dense


def decode(code, size, count, block):
    """Return the chosen places, gap by gap."""
    is_inverted = 2 * count > size
    listed = size - count if is_inverted else count
    bits = "".join(f"{byte:08b}" for byte in code)
    blocks = -(-listed // block)
    each = [int(bits[4 * (number // block) :][:4], 2) for number in range(listed)]
    at = 8 * -(-blocks // 2)
    low = {}
    for r in range(1, 16):
        for number in [number for number in range(listed) if each[number] == r]:
            low[number] = int(bits[at : at + r], 2)
            at += r
    places, place = [], -1
    for number in range(listed):
        unary = bits.index("1", at) - at
        at += unary + 1
        place += (unary << each[number]) + low.get(number, 0) + 1
        places.append(place)
    assert len(bits) - at < 8
    assert "1" not in bits[at:]
    return sorted({*range(size)} - {*places}) if is_inverted else places


@pytest.mark.parametrize("density", [0.02, 0.1, 0.4, 0.8])
def test_a_reader_that_knows_only_the_specification_finds_every_bit(tmp_path, density):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 50, generator=generator)
    mask = torch.rand(64, 50, generator=generator) < density
    tensors = {"plain": torch.where(mask, weight, 0.0), "signed": weight * mask, "bias": torch.randn(7)}
    st3.save_sparse(tensors, tmp_path / "small.safetensors")
    found = read(tmp_path / "small.safetensors")
    assert {*found} == {*tensors}
    for name, (shape, numbers) in found.items():
        assert shape == list(tensors[name].shape)
        assert b"".join(numbers) == tensors[name].numpy().tobytes()
