import io
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import h5py
import numpy as np
import pytest

from safemil.behaviour import fetching
from safemil.behaviour.fetching import FILES, fetch
from safemil.errors import InputError

TASK = "SafetyPointGoal1-v0"
NAME = FILES[TASK]


def hdf5(size):
    """An HDF5 file of about this many bytes."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["noise"] = np.frombuffer(np.random.default_rng(0).bytes(size), np.uint8)
    return buffer.getvalue()


CONTENT = hdf5(100_000)


class Server:
    """A host that serves one file; `faults` holds what goes wrong with each request, in turn."""

    def __init__(self):
        self.faults, self.asked, self.content, self.files = [], [], CONTENT, [NAME]
        self.headers, self.etag = {}, '"1"'
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.answer(self)

            def log_message(self, *arguments):
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def answer(self, request):
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        fault = self.faults.pop(0) if self.faults else ""
        if request.path.rpartition("/")[2] not in self.files:
            request.send_error(404)
            return
        same = request.headers.get("If-Range", self.etag) == self.etag
        ranged = wanted and fault != "no ranges" and same
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if ranged else 0
        if start >= len(self.content):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(self.content)}")
            request.end_headers()
            return
        body = self.content[start:]
        request.send_response(206 if start else 200)
        if start:
            first = start + 7 if fault == "elsewhere" else start
            request.send_header("Content-Range", f"bytes {first}-{len(self.content) - 1}/{len(self.content)}")
        for name, value in {"Content-Length": len(body), "ETag": self.etag, **self.headers}.items():
            if value is not None:
                request.send_header(name, str(value))
        request.end_headers()
        request.wfile.write(
            body[: len(body) // 2] if fault == "breaks" else b"" if fault == "nothing" else body
        )

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server():
    running = Server()
    yield running
    running.close()


def test_a_download_is_complete_and_its_size_and_hash_are_recorded(server, tmp_path):
    path = fetch(TASK, tmp_path / "goal.hdf5", host=server.address)
    assert path.read_bytes() == CONTENT
    checksum = json.loads((tmp_path / "goal.hdf5.json").read_text())
    assert checksum["bytes"] == len(CONTENT)
    assert len(checksum["sha256"]) == 64
    assert sorted(each.name for each in tmp_path.iterdir()) == ["goal.hdf5", "goal.hdf5.json"]


def test_a_connection_that_breaks_half_way_goes_on_where_it_stopped(server, tmp_path):
    server.faults = ["breaks", "breaks"]
    assert fetch(TASK, tmp_path / "goal.hdf5", host=server.address).read_bytes() == CONTENT
    half, rest = len(CONTENT) // 2, len(CONTENT) - len(CONTENT) // 2
    assert server.asked == [None, f"bytes={half}-", f"bytes={half + rest // 2}-"]


def leave_part(folder, content, etag='"1"'):
    (folder / "goal.hdf5.part").write_bytes(content)
    (folder / "goal.hdf5.part.etag").write_text(etag)


def test_a_later_call_goes_on_too(server, tmp_path):
    leave_part(tmp_path, CONTENT[:99_000])
    assert fetch(TASK, tmp_path / "goal.hdf5", host=server.address).read_bytes() == CONTENT
    assert server.asked == ["bytes=99000-"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["goal.hdf5", "goal.hdf5.json"]


@pytest.mark.parametrize("etag", ['"0"', 'W/"1"', ""])
def test_a_part_of_another_version_is_never_continued(server, tmp_path, etag):
    leave_part(tmp_path, b"x" * 99_000, etag)
    assert fetch(TASK, tmp_path / "goal.hdf5", host=server.address).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "headers", "message"),
    [
        (b"<html>Log in</html>", {}, "not a whole HDF5 file"),
        (b"", {}, "not a whole HDF5 file"),
        (CONTENT[:60_000], {}, "not a whole HDF5 file"),
        (CONTENT, {"Content-Length": None}, "does not say which bytes it sends"),
        (CONTENT, {"Content-Length": "many"}, "does not say which bytes it sends"),
        (CONTENT, {"Content-Length": 1 << 200}, "does not say which bytes it sends"),
    ],
)
def test_an_answer_that_is_not_the_file_is_refused_and_not_kept(server, tmp_path, content, headers, message):
    server.content, server.headers = content, headers
    with pytest.raises(InputError, match=rf"{message}.*safemil data make"):
        fetch(TASK, tmp_path / "goal.hdf5", host=server.address)
    assert not (tmp_path / "goal.hdf5").exists()


def test_a_range_from_another_place_is_refused(server, tmp_path):
    leave_part(tmp_path, CONTENT[:99_000])
    server.faults = ["elsewhere"]
    with pytest.raises(InputError, match="does not say which bytes it sends"):
        fetch(TASK, tmp_path / "goal.hdf5", host=server.address)


@pytest.mark.parametrize("host", ["file:///etc", "nonsense", "http://[::1", "http://a b", "http://x:port"])
def test_an_endpoint_that_is_no_address_is_refused(tmp_path, host):
    with pytest.raises(InputError, match=r"HF_ENDPOINT must be|is malformed|can't reach"):
        fetch(TASK, tmp_path / "goal.hdf5", host=host)


def test_a_damaged_checksum_is_told(server, tmp_path):
    path = fetch(TASK, tmp_path / "goal.hdf5", host=server.address)
    for content in ("{", '{"bytes": "many"}', "[" * 100_000):
        (tmp_path / "goal.hdf5.json").write_text(content)
        with pytest.raises(InputError, match=r"goal\.hdf5\.json is damaged .* remove it"):
            fetch(TASK, path, host=server.address)


def test_a_host_without_ranges_starts_over(server, tmp_path):
    server.faults = ["breaks", "no ranges"]
    assert fetch(TASK, tmp_path / "goal.hdf5", host=server.address).read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_taken(server, tmp_path):
    leave_part(tmp_path, CONTENT)
    assert fetch(TASK, tmp_path / "goal.hdf5", host=server.address).read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    leave_part(tmp_path, CONTENT + b"more")
    assert fetch(TASK, tmp_path / "goal.hdf5", host=server.address).read_bytes() == CONTENT


def test_a_length_that_never_comes_is_an_error_and_what_came_is_kept(server, tmp_path):
    server.faults = ["breaks", *["nothing"] * 100]
    with pytest.raises(InputError, match=r"breaks each time.*safemil data make SafetyPointGoal1-v0"):
        fetch(TASK, tmp_path / "goal.hdf5", host=server.address)
    assert (tmp_path / "goal.hdf5.part").read_bytes() == CONTENT[: len(CONTENT) // 2]
    assert len(server.asked) == 1 + fetching.TRIES
    assert not (tmp_path / "goal.hdf5").exists()


def test_a_missing_file_says_so_and_names_what_works_without(server, tmp_path):
    server.files = []
    with pytest.raises(InputError, match=r"there is no such file; `safemil data make SafetyPointGoal1-v0`"):
        fetch(TASK, tmp_path / "goal.hdf5", host=server.address)


def test_without_internet_it_says_so_and_names_what_works_without(server, tmp_path):
    server.close()
    with pytest.raises(InputError, match=r"can't reach .*safemil data make SafetyPointGoal1-v0"):
        fetch(TASK, tmp_path / "goal.hdf5", host=server.address)
    server.http.server_close = server.http.shutdown = lambda: None


def test_a_file_that_is_there_is_not_asked_for_again(server, tmp_path):
    path = fetch(TASK, tmp_path / "goal.hdf5", host=server.address)
    assert fetch(TASK, path, host=server.address) == path
    assert len(server.asked) == 1
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(InputError, match="not the file that was downloaded"):
        fetch(TASK, path, host=server.address)


def test_files_that_dsrl_downloaded_are_found_and_their_hash_is_recorded(server, tmp_path, monkeypatch):
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    (tmp_path / NAME).write_bytes(hdf5(10))
    assert fetch(TASK) == tmp_path / NAME
    assert server.asked == []
    assert json.loads((tmp_path / f"{NAME}.json").read_text())["bytes"] == len(hdf5(10))


def test_the_folder_and_the_host_can_be_set_in_the_environment(server, tmp_path, monkeypatch):
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path / "new"))
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    assert fetch(TASK).read_bytes() == CONTENT
    assert (tmp_path / "new" / NAME).exists()


def test_a_wrong_name_is_answered_with_the_near_one():
    with pytest.raises(InputError, match='did you mean "SafetyPointGoal1-v0"'):
        fetch("SafetyPointGoal1-v1")
