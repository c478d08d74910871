"""Archives made to exhaust the memory of whoever opens them: refused in one sentence, within a small memory."""

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Iterator

import pytest

from st3.data.archive import Archive
from st3.data.errors import DataError

FOLDER = "pictures"
ARCHIVE = Archive("tiny", "https://example.org/tiny.tar.gz", "0" * 32, FOLDER, {"a": "0" * 32})
MEGABYTE = 2**20


def header(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def pax(**values: str) -> bytes:
    text = b""
    for key, value in values.items():
        line = f" {key.replace('__', '.')}={value}\n".encode()
        length = len(line) + 2
        text += str(length + (length > 99) - (length < 10)).encode() + line
    return header("pax", tarfile.XHDTYPE, len(text)) + text.ljust(512, b"\0")


def sparse_map() -> Iterator[bytes]:
    yield pax(GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__realsize="1")
    yield header(f"{FOLDER}/a", size=16 * MEGABYTE)
    yield b"99999999\n"
    yield from [b"000000000000001\n" * (MEGABYTE // 16)] * 16


def old_sparse_map() -> Iterator[bytes]:
    first = bytearray(header(f"{FOLDER}/a", tarfile.GNUTYPE_SPARSE))
    first[482] = 1  # another block of the map follows
    first[148:156] = b" " * 8
    first[148:156] = b"%06o\0 " % sum(first)
    yield bytes(first)
    block = (b"00000000001\0" * 42).ljust(504, b"\0") + b"\1" * 8
    yield from [block * 2048] * 16


TRAPS = {
    "a long name": [
        header("././@LongLink", tarfile.GNUTYPE_LONGNAME, 16 * MEGABYTE),
        *[b"a" * MEGABYTE] * 16,
    ],
    "a long link": [
        header("././@LongLink", tarfile.GNUTYPE_LONGLINK, 16 * MEGABYTE),
        *[b"a" * MEGABYTE] * 16,
    ],
    "a pax header": [header("pax", tarfile.XHDTYPE, 16 * MEGABYTE), *[b"9" * MEGABYTE] * 16],
    "a global pax header": [header("pax", tarfile.XGLTYPE, 16 * MEGABYTE), *[b"9" * MEGABYTE] * 16],
    "many long names": [(header("././@LongLink", tarfile.GNUTYPE_LONGNAME, 512) + b"a" * 512) * 5000],
    "many entries": [header(f"{FOLDER}/b") * 50_000],
    "the map of a sparse file": sparse_map(),
    "the old map of a sparse file": old_sparse_map(),
    "a negative size": [pax(size="-512"), header(f"{FOLDER}/b")],
}


@pytest.mark.parametrize("trap", TRAPS)
def test_an_archive_that_exhausts_memory_is_refused_in_little_memory(tmp_path, trap):
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
        for piece in TRAPS[trap]:
            file.write(piece)
    path = tmp_path / ARCHIVE.file
    path.write_bytes(packed.getvalue())
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as refusal:
            list(ARCHIVE.read(path, download=False))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 8 * MEGABYTE
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 700


def test_a_file_far_larger_than_the_published_one_is_not_read(tmp_path):
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(2**40)  # takes no room on the disk
    with pytest.raises(DataError, match=r"^.*/a has 1,099,511,627,776 bytes, far more than were published"):
        list(ARCHIVE.read(tmp_path, download=False))
