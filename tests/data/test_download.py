"""Downloads from a local server: complete, resumed, damaged, interrupted, and without a network."""

import hashlib
import http.server
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.data.tiny_files import cifar_files, expect, expect_fashion, md5, tar_gz, write

from st3.data import DataError
from st3.data import fashion_mnist as fashion
from st3.data.cifar import CIFAR10, cifar10
from st3.data.download import download_file, show_progress
from st3.data.fashion_mnist import fashion_mnist

CONTENT = bytes(range(256)) * 4000  # about 1 MB: several chunks
SUM = hashlib.md5(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves files by name. It can ignore the Range header, or hang up after some bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"file.bin": CONTENT}
        self.knows_range = True
        self.hangs_up_after: int | None = None
        self.asked: list[tuple[str, str | None]] = []

    def address(self, name: str = "file.bin") -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        content = self.server.files.get(self.path[1:])
        if content is None:
            self.send_error(404)
            return
        begin = int(asked[len("bytes=") : -1]) if asked and self.server.knows_range else 0
        if begin >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:][: self.server.hangs_up_after])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "file.bin"


def part_of(target):
    return target.with_name("file.bin.part")


def left(target):
    return sorted(path.name for path in target.parent.iterdir())


def test_a_file_appears_under_its_name_once_complete(server, target):
    seen = []
    download_file(server.address(), target, md5=SUM, progress=lambda *progress: seen.append(progress))
    assert target.read_bytes() == CONTENT
    assert left(target) == ["file.bin"]
    assert len(seen) > 2
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))


def test_only_the_missing_bytes_are_requested(server, target):
    write(target.parent, {"file.bin.part": CONTENT[:300_000]})
    seen = []
    download_file(server.address(), target, md5=SUM, progress=lambda *progress: seen.append(progress))
    assert target.read_bytes() == CONTENT
    assert server.asked == [("/file.bin", "bytes=300000-")]
    assert seen[0][1] > 300_000
    assert seen[-1][1:] == (len(CONTENT), len(CONTENT))


def test_a_server_that_ignores_the_range_sends_the_whole_file(server, target):
    server.knows_range = False
    write(target.parent, {"file.bin.part": b"x" * 300_000})
    download_file(server.address(), target, md5=SUM)
    assert target.read_bytes() == CONTENT


def test_a_part_that_is_already_complete_is_used(server, target):
    write(target.parent, {"file.bin.part": CONTENT})
    download_file(server.address(), target, md5=SUM)
    assert target.read_bytes() == CONTENT
    assert left(target) == ["file.bin"]


def test_a_wrong_checksum_leaves_nothing(server, target):
    with pytest.raises(DataError) as error:
        download_file(server.address(), target, md5="0" * 32)
    assert str(error.value) == (
        f"the download of {server.address()} is damaged or another version (md5 {SUM}, expected {'0' * 32}) "
        f"and was deleted; try again, or get the file elsewhere and save it as {target}"
    )
    assert left(target) == []


def test_a_part_of_another_file_is_detected_and_deleted(server, target):
    write(target.parent, {"file.bin.part": b"x" * 300_000})
    with pytest.raises(DataError, match="was deleted; try again"):
        download_file(server.address(), target, md5=SUM)
    download_file(server.address(), target, md5=SUM)
    assert target.read_bytes() == CONTENT


def test_after_a_broken_connection_the_download_continues_next_time(server, target):
    server.hangs_up_after = 400_000
    with pytest.raises(DataError) as error:
        download_file(server.address(), target, md5=SUM)
    assert str(error.value) == (
        f"could not download {server.address()} (the connection broke after 400,000 of 1,024,000 bytes); "
        f"try again, or get the file elsewhere and save it as {target}"
    )
    assert left(target) == ["file.bin.part"]
    assert part_of(target).read_bytes() == CONTENT[:400_000]
    server.hangs_up_after = None
    download_file(server.address(), target, md5=SUM)
    assert target.read_bytes() == CONTENT


def test_without_a_network_the_error_has_the_address_and_the_remedy(target):
    with socket.socket() as taken:  # bound but not listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/file.bin"
        with pytest.raises(DataError) as error:
            download_file(address, target, md5=SUM)
    text = str(error.value)
    assert text.startswith(f"could not download {address} (")
    assert text.endswith(f"); try again, or get the file elsewhere and save it as {target}")
    assert "\n" not in text


def test_a_file_the_server_does_not_have_is_one_sentence(server, target):
    with pytest.raises(DataError, match=r"could not download .*/none \(Not Found\); try again"):
        download_file(server.address("none"), target, md5=SUM)


def test_a_folder_that_cannot_be_made_is_one_sentence(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"could not download .* exists"):
        download_file(server.address(), tmp_path / "file" / "file.bin", md5=SUM)


def test_progress_is_one_line_on_a_terminal_and_nothing_elsewhere(capsys, monkeypatch):
    show_progress("file", 10, 20)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    show_progress("file", 85_000_000, 170_000_000)
    show_progress("file", 170_000_000, 170_000_000)
    show_progress("file", 1_500_000, None)
    assert capsys.readouterr().err == (
        "\rfile: 85.0 of 170.0 MB,  50%\rfile: 170.0 of 170.0 MB, 100%\n\rfile: 1.5 MB"
    )


def test_cifar_is_downloaded_once_and_read_from_the_archive(server, monkeypatch, tmp_path):
    files = cifar_files(CIFAR10)
    whole = tar_gz("cifar-10-batches-py", files)
    server.files["cifar-10-python.tar.gz"] = whole
    expect(monkeypatch, CIFAR10, files, address=server.address("cifar-10-python.tar.gz"), md5=md5(whole))
    for _ in range(2):
        assert len(cifar10(tmp_path / "data", download=True).test) == 4
    assert len(server.asked) == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-python.tar.gz"]


def test_fashion_mnist_downloads_what_is_missing(server, monkeypatch, tmp_path):
    packed = expect_fashion(monkeypatch)
    server.files = packed
    monkeypatch.setattr(fashion, "ADDRESS", server.address("").rstrip("/"))
    name, content = next(iter(packed.items()))
    assert len(fashion_mnist(write(tmp_path, {name: content}), download=True).test) == 5
    assert sorted(path for path, _ in server.asked) == sorted(
        f"/{other}" for other in packed if other != name
    )
