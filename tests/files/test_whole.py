"""Files that appear complete, or not at all."""

import errno

import pytest
import torch

from st3.files.whole import write_text, write_whole


def test_a_write_that_fails_leaves_the_old_file_and_no_scratch(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")

    def fail(file):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as error:
        write_whole(path, fail)
    assert error.value.filename == str(path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_text_is_utf_8_and_odd_names_do_no_harm(tmp_path):
    write_text(tmp_path / "file", "σ \udce9")
    assert (tmp_path / "file").read_bytes() == "σ ?".encode()


def test_a_full_disk_is_named_as_such_even_by_torch(tmp_path):
    def fail(file):
        class Full:
            written = 0

            def write(self, content):
                self.written += len(content)
                if self.written > 2000:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return len(content)

            def flush(self):
                pass

        torch.save(torch.zeros(10_000), Full())

    with pytest.raises(OSError, match="No space left on device") as error:
        write_whole(tmp_path / "checkpoint.pt", fail)
    assert error.value.filename == str(tmp_path / "checkpoint.pt")


def test_a_folder_that_is_not_there_is_told_with_the_name_that_was_asked_for(tmp_path):
    path = tmp_path / "none" / "here.txt"
    with pytest.raises(FileNotFoundError) as error:
        write_text(path, "")
    assert error.value.filename == str(path)
    assert ".part" not in str(error.value)
    assert str(error.value) == f"[Errno 2] No such file or directory: '{path}'"


def test_a_folder_in_the_place_of_the_file_is_told_with_that_name_alone(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError) as error:
        write_text(tmp_path / "file", "")
    assert str(error.value) == f"[Errno 21] Is a directory: '{tmp_path / 'file'}'"


def test_an_error_without_a_number_stays_as_it_is(tmp_path):
    def fail(file):
        raise OSError("the tape is torn")

    with pytest.raises(OSError, match=r"^the tape is torn$"):
        write_whole(tmp_path / "file", fail)
