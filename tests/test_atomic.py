"""Atomic writes: a reader finds the old file or the complete new one."""

import errno
import os
import subprocess
import sys
import threading

import pytest
import torch

from st3.atomic import remove_leftovers, write_file, write_text


def test_a_failed_write_keeps_the_old_file_and_leaves_no_temporary_one(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")

    def fail(file):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as error:
        write_file(path, fail)
    assert error.value.filename == str(path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_text_is_written_as_utf_8_with_question_marks_for_undecodable_names(tmp_path):
    write_text(tmp_path / "file", "σ \udce9")
    assert (tmp_path / "file").read_bytes() == "σ ?".encode()


def test_threads_that_write_one_file_at_the_same_time_do_not_mix_their_contents(tmp_path):
    path = tmp_path / "file"
    both_are_writing = threading.Barrier(2)

    def write(text):
        def fill(file):
            both_are_writing.wait(timeout=60)
            file.write(text)

        write_file(path, fill)

    threads = [threading.Thread(target=write, args=(text,)) for text in (b"a" * 50_000, b"b" * 20_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in (b"a" * 50_000, b"b" * 20_000)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_reported_as_such_even_from_within_torch_save(tmp_path):
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
        write_file(tmp_path / "checkpoint.pt", fail)
    assert error.value.filename == str(tmp_path / "checkpoint.pt")


def test_a_missing_folder_is_reported_with_the_path_that_was_asked_for(tmp_path):
    path = tmp_path / "none" / "here.txt"
    with pytest.raises(FileNotFoundError) as error:
        write_text(path, "")
    assert error.value.filename == str(path)
    assert str(error.value) == f"[Errno 2] No such file or directory: '{path}'"


def test_a_file_in_place_of_the_folder_is_reported_with_the_path_that_was_asked_for(tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "here.txt"
    with pytest.raises(NotADirectoryError) as error:
        write_text(path, "")
    assert str(error.value) == f"[Errno 20] Not a directory: '{path}'"


def test_a_folder_in_place_of_the_file_is_reported_with_its_own_path(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError) as error:
        write_text(tmp_path / "file", "")
    assert str(error.value) == f"[Errno 21] Is a directory: '{tmp_path / 'file'}'"


def test_an_os_error_without_a_number_is_passed_on_unchanged(tmp_path):
    def fail(file):
        raise OSError("the tape is torn")

    with pytest.raises(OSError, match=r"^the tape is torn$"):
        write_file(tmp_path / "file", fail)


def ended_process():
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_writer_of_the_file_has_left_is_removed(tmp_path):
    ended, running = ended_process(), os.getppid()
    left = [f".file.{ended}-1.part", f".other.{ended}-1.part", f".file.{running}-1.part", ".file.part"]
    for name in left:
        (tmp_path / name).touch()
    write_text(tmp_path / "file", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["file", *left[1:]])


def test_leftovers_are_removed_from_a_folder_and_those_below_it(tmp_path):
    (tmp_path / "below").mkdir()
    for name in (f".a.{ended_process()}-1.part", f"below/.b.{os.getpid()}-1.part", "below/c.part"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.rglob("*.part")] == ["c.part"]
