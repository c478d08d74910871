"""Checkpoints on disk: complete, few, safe to read."""

import os
import pickle

import pytest
import torch

from st3.training.checkpoint import CheckpointFolder


def state(number):
    return {"number": number, "weight": torch.full((3,), float(number))}


def test_the_newest_checkpoint_is_returned(tmp_path):
    folder = CheckpointFolder(tmp_path / "checkpoints")
    assert folder.newest() is None
    for step in (9, 10, 100):
        folder.save(state(step), step)
    path, found = folder.newest()
    assert (path.name, found["number"]) == ("step-000000100.pt", 100)


def test_only_the_newest_are_kept(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=2)
    for step in range(5):
        folder.save(state(step), step)
    assert [path.name for path in folder.files()] == ["step-000000004.pt", "step-000000003.pt"]
    with pytest.raises(ValueError, match="at least one checkpoint"):
        CheckpointFolder(tmp_path, keep=0)


def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step in (1, 2):
        folder.save(state(step), step)
    newest = folder.files()[0]
    newest.write_bytes(newest.read_bytes()[:200])
    with pytest.warns(UserWarning, match=r"step-000000002\.pt cannot be read .*; trying an older one"):
        _, found = folder.newest()
    assert found["number"] == 1


def test_if_no_checkpoint_can_be_read_training_does_not_silently_start_again(tmp_path):
    (tmp_path / "step-000000001.pt").write_bytes(b"nothing")
    with (
        pytest.warns(UserWarning, match="cannot be read"),
        pytest.raises(ValueError, match="none of the 1 checkpoints"),
    ):
        CheckpointFolder(tmp_path).newest()


class Spy:
    def __reduce__(self):
        return os.mkdir, ("caught",)


def test_code_in_a_checkpoint_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"spy": Spy()}, tmp_path / "step-000000001.pt")
    with pytest.warns(UserWarning, match="cannot be read"), pytest.raises(ValueError):
        CheckpointFolder(tmp_path).newest()
    (tmp_path / "step-000000001.pt").write_bytes(pickle.dumps(Spy(), protocol=2))
    with pytest.warns(UserWarning, match="cannot be read"), pytest.raises(ValueError):
        CheckpointFolder(tmp_path).newest()
    assert not (tmp_path / "caught").exists()


def test_what_a_killed_writer_has_left_is_ignored(tmp_path):
    (tmp_path / ".step-000000007.pt.123-4.part").write_bytes(b"half")
    assert CheckpointFolder(tmp_path).newest() is None


def test_a_flipped_bit_is_noticed_although_torch_load_would_not(tmp_path):
    folder = CheckpointFolder(tmp_path)
    path = folder.save({"weight": torch.zeros(1000)}, 1)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert torch.load(path, weights_only=True)["weight"].any()
    with pytest.raises(ValueError, match=r"its record archive/data/0 does not match its checksum"):
        folder.read(path)


def test_checkpoints_have_checksums_even_if_the_user_has_turned_them_off(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        folder = CheckpointFolder(tmp_path)
        assert folder.read(folder.save(state(3), 3))["number"] == 3
        assert not torch.serialization.get_crc32_options()
    finally:
        torch.serialization.set_crc32_options(True)


def test_a_damaged_checkpoint_does_not_displace_a_good_one(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=1)
    (tmp_path / "step-000000009.pt").write_bytes(b"damaged")
    folder.save(state(5), 5)  # training went on from an older one
    assert [path.name for path in folder.files()] == ["step-000000005.pt"]
