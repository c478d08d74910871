"""A published archive: find it, packed or unpacked, download it if need be, and read its files in memory."""

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

MAX_BYTES = 2**28  # of one file; the largest that is read here has 155 MB


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
            try:
                data = path.read_bytes()
            except OSError as error:
                raise DataError(f"{path} cannot be read: {error.strerror}; make it readable") from error
            yield self._verify(name, str(path), data, md5)

    def _read_archive(self, path: Path) -> Iterator[Content]:
        left = dict(self.files)
        try:
            with tarfile.open(path, "r:gz") as archive:
                for member in archive:
                    _refuse_traps(member, path)
                    folder, _, name = member.name.rpartition("/")
                    stream = archive.extractfile(member)
                    if stream is not None and folder == self.folder and name in left:
                        yield self._verify(name, f"{name} in {path}", stream.read(), left.pop(name))
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            # A file with another name is the user's own and not a damaged archive: do not advise deleting it.
            expected = f"give {self.file}, {self.folder}, or the folder that holds one of them"
            remedy = self.remedy if path.name == self.file else expected
            raise DataError(f"{path} is truncated or not a tar.gz file ({error}); {remedy}") from error
        if left:
            raise DataError(f"{path} does not contain {self.folder}/{next(iter(left))}; {self.remedy}")

    def _verify(self, name: str, place: str, data: bytes, md5: str) -> Content:
        check_md5(data, md5, place, self.remedy)
        return Content(name, place, data)


def _refuse_traps(member: tarfile.TarInfo, path: Path) -> None:
    """Refuse links, devices, paths that lead out of the archive, and files that are too large.

    Since nothing is unpacked they could do no harm, but they show that this is not the published archive.
    """
    name = PurePosixPath(member.name)
    is_inside = not name.is_absolute() and ".." not in name.parts
    if is_inside and (member.isdir() or (member.isreg() and member.size <= MAX_BYTES)):
        return
    raise DataError(
        f"{path} was refused: its entry {member.name!r} is a link or a device, leads out of the archive or is too "
        "large; delete it and get it from its publisher"
    )
