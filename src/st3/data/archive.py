"""A published archive: find it, packed or unpacked, download it if need be, and read its files in memory."""

import gzip
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from .checksum import check_md5
from .download import download_file
from .errors import DataError
from .files import MAX_BYTES, read_file
from .places import cache_folder

__all__ = ["Archive", "Content"]

HEADER_BYTES = 2**20  # of all headers before one entry
MAX_ENTRIES = 1000


@dataclass(frozen=True)
class Content:
    """One file's bytes, whose checksum is right; `place` names it in errors."""

    name: str
    place: str
    data: bytes


@dataclass(frozen=True)
class Archive:
    """A tar.gz of one folder of files, with md5 checksums of the archive and of every file."""

    name: str  # of the data set
    address: str
    md5: str
    folder: str
    files: Mapping[str, str]  # name -> md5

    @property
    def file(self) -> str:
        return self.address.rpartition("/")[2]

    @property
    def remedy(self) -> str:
        return f"delete it, then add --download (in Python: download=True) or get {self.address}"

    def read(self, directory: Path | None, download: bool) -> Iterator[Content]:
        """Yield every file. `directory` is, or holds, the folder or the archive; None means st3's cache.

        With `download`, an archive that is not there is downloaded into `directory` first.
        """
        directory = cache_folder() / self.name if directory is None else Path(directory)
        if directory.is_file() and directory.name in self.files:
            raise DataError(
                f"{directory} is one of the files of {self.name}: give its folder, {directory.parent}"
            )
        folders = [directory / self.folder, directory]
        archives = [directory, directory / self.file]
        folder = next((f for f in folders if all((f / name).is_file() for name in self.files)), None)
        archive = next((a for a in archives if a.is_file()), None)
        if folder is None and archive is None and download:
            archive = directory / self.file
            download_file(self.address, archive, md5=self.md5)
        if folder is not None:
            return self._read_folder(folder)
        if archive is not None:
            return self._read_archive(archive)
        raise DataError(self._describe_missing(directory, folders))

    def _describe_missing(self, directory: Path, folders: list[Path]) -> str:
        remedy = f"add --download (in Python: download=True), or get {self.address} and put it there"
        for folder in folders:
            if found := {name for name in self.files if (folder / name).is_file()}:
                missing = ", ".join(name for name in self.files if name not in found)
                return f"{self.name}: {folder} lacks {missing}; {remedy}"
        return f"{self.name} was not found in {directory} (neither {self.folder} nor {self.file}); {remedy}"

    def _read_folder(self, folder: Path) -> Iterator[Content]:
        for name, md5 in self.files.items():
            path = folder / name
            yield self._verify(name, str(path), read_file(path), md5)

    def _read_archive(self, path: Path) -> Iterator[Content]:
        left = dict(self.files)
        try:
            with gzip.open(path) as unpacked:
                metered = _Metered(unpacked)
                with tarfile.open(fileobj=cast(BinaryIO, metered), mode="r:") as archive:
                    for number, member in enumerate(archive):
                        _refuse_traps(member, path, number)
                        metered.left = member.size
                        folder, _, name = member.name.rpartition("/")
                        stream = archive.extractfile(member)
                        if stream is not None and folder == self.folder and name in left:
                            yield self._verify(name, f"{name} in {path}", stream.read(), left.pop(name))
                        metered.left = HEADER_BYTES
        except (tarfile.TarError, EOFError, OSError, ValueError, RecursionError, zlib.error) as error:
            # A file with another name is the user's own and not a damaged archive: do not advise deleting it.
            expected = f"give {self.file}, {self.folder}, or the folder that holds one of them"
            remedy = self.remedy if path.name == self.file else expected
            raise DataError(f"{path} is truncated or not a tar.gz file ({error}); {remedy}") from error
        if left:
            raise DataError(f"{path} does not contain {self.folder}/{next(iter(left))}; {self.remedy}")

    def _verify(self, name: str, place: str, data: bytes, md5: str) -> Content:
        check_md5(data, md5, place, self.remedy)
        return Content(name, place, data)


class _Metered:
    """An unpacked stream that hands out `left` bytes only: a header may claim any length, and zeros pack 1000 to 1."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self.stream, self.left = stream, HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.left:
            raise tarfile.ReadError(f"an entry has a header of more than {HEADER_BYTES:,} bytes")
        self.left -= size
        return self.stream.read(size)

    def seek(self, position: int) -> int:
        return self.stream.seek(position)

    def tell(self) -> int:
        return self.stream.tell()


def _refuse_traps(member: tarfile.TarInfo, path: Path, number: int) -> None:
    """Refuse links, devices, paths that lead out of the archive, and files that are too large or too many.

    Since nothing is unpacked they could do no harm, but they show that this is not the published archive.
    """
    name = PurePosixPath(member.name)
    is_inside = not name.is_absolute() and ".." not in name.parts
    is_small = 0 <= member.size <= MAX_BYTES and number < MAX_ENTRIES
    if is_inside and is_small and (member.isdir() or member.isreg()):
        return
    raise DataError(
        f"{path} was refused: its entry {member.name[:200]!r} is a link or a device, leads out of the archive, is too "
        "large or one of too many; delete it and get it from its publisher"
    )
