"""A published archive, whole or unpacked: find it, download it, and read its files without unpacking."""

import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .checksum import check_md5
from .download import download_file
from .errors import DataError
from .places import cache_folder

__all__ = ["Archive", "Content"]

# Of one file: above the 155 MB of the largest that is read here, below what fills a memory.
MOST_BYTES = 2**28


@dataclass(frozen=True)
class Content:
    """One file's bytes, checked; `place` names it in errors."""

    name: str
    place: str
    data: bytes


@dataclass(frozen=True)
class Archive:
    """A tar.gz of one folder of files, with the md5 checksums of both."""

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
        return f"delete it, then say --download (in Python: download=True) or get {self.address}"

    def contents(self, directory: Path | None, download: bool) -> Iterator[Content]:
        """Yield every file from the folder, the folder in it, or the archive that is or lies at `directory`.

        With `download`, what is found nowhere is fetched first, into `directory`.
        """
        directory = cache_folder() / self.name if directory is None else Path(directory)
        if directory.is_file() and directory.name in self.files:
            raise DataError(
                f"{directory} is one of the files of {self.name}: give its folder, {directory.parent}"
            )
        folders = [directory / self.folder, directory]
        archives = [directory, directory / self.file]
        whole = next((f for f in folders if all((f / name).is_file() for name in self.files)), None)
        archive = next((a for a in archives if a.is_file()), None)
        if whole is None and archive is None and download:
            archive = directory / self.file
            download_file(self.address, archive, md5=self.md5)
        if whole is not None:
            return self._from_folder(whole)
        if archive is not None:
            return self._from_archive(archive)
        raise DataError(self._what_is_missing(directory, folders))

    def _what_is_missing(self, directory: Path, folders: list[Path]) -> str:
        remedy = f"say --download (in Python: download=True), or get {self.address} and put it there"
        for folder in folders:
            if found := {name for name in self.files if (folder / name).is_file()}:
                missing = ", ".join(name for name in self.files if name not in found)
                return f"{self.name}: {folder} lacks {missing}; {remedy}"
        return f"{self.name} was not found in {directory} (neither {self.folder} nor {self.file}); {remedy}"

    def _from_folder(self, folder: Path) -> Iterator[Content]:
        for name, md5 in self.files.items():
            path = folder / name
            try:
                data = path.read_bytes()
            except OSError as error:
                raise DataError(
                    f"{path} cannot be read: {error.strerror}; see to it and try again"
                ) from error
            yield self._checked(name, str(path), data, md5)

    def _from_archive(self, path: Path) -> Iterator[Content]:
        left = dict(self.files)
        try:
            with tarfile.open(path, "r:gz") as archive:
                for member in archive:
                    _refuse_traps(member, path)
                    folder, _, name = member.name.rpartition("/")
                    stream = archive.extractfile(member)
                    if stream is not None and folder == self.folder and name in left:
                        yield self._checked(name, f"{name} in {path}", stream.read(), left.pop(name))
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            # Who gave a file of another name gave the wrong one: it is not for us to have it deleted.
            wanted = f"give {self.file}, {self.folder}, or the folder that holds one of them"
            remedy = self.remedy if path.name == self.file else wanted
            raise DataError(f"{path} is truncated or no tar.gz ({error}); {remedy}") from error
        if left:
            raise DataError(f"{path} holds no {self.folder}/{next(iter(left))}; {self.remedy}")

    def _checked(self, name: str, place: str, data: bytes, md5: str) -> Content:
        check_md5(data, md5, place, self.remedy)
        return Content(name, place, data)


def _refuse_traps(member: tarfile.TarInfo, path: Path) -> None:
    """Refuse links, devices, names that lead out of the folder, and sizes made to fill the memory.

    Nothing is unpacked, so none of them could do harm; but an archive with one is not the published one.
    """
    name = PurePosixPath(member.name)
    is_inside = not name.is_absolute() and ".." not in name.parts
    if is_inside and (member.isdir() or (member.isreg() and member.size <= MOST_BYTES)):
        return
    raise DataError(
        f"{path} was refused: its entry {member.name!r} is a link, leads out of the archive or is too large; "
        "delete it and get it from its makers"
    )
