"""Tests for downloading models by name, from correct and faulty servers."""

import base64
import hashlib
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

import albert_tf
from albert_tf.checkpoints import names
from albert_tf.checkpoints.archives import local_directory
from albert_tf.checkpoints.formats import find_weights
from albert_tf.checkpoints.model_source import stored_model
from albert_tf.checkpoints.names import is_released
from albert_tf.checkpoints.report import LoadError
from tests.full_disk import file_size_limit

ROOT = Path(albert_tf.__file__).parents[1]
GOOGLE = "https://storage.googleapis.com/albert_models/albert_base_v2.tar.gz"
MINI = ROOT / "albert_tf" / "pretrained" / "mini"


class Server:
    """A server of one file, or of a repository on Hugging Face.

    Attributes:
        asked: `Range` of each request, or `None`.
        cuts: number of bytes after which the next answers end.
        ranges: whether `Range` is supported.
        length: a wrong `Content-Length`.
        hash: the `x-goog-hash`.
        release: an event that answers wait for after their first byte.
        redirect: target of redirects.
    """

    def __init__(self, content, folder=None):
        self.content, self.folder = content, folder
        self.asked, self.cuts = [], []
        self.ranges, self.length, self.release, self.redirect = True, None, None, None
        digest = hashlib.md5(content).digest()
        self.hash = f"crc32c=AAAAAA==,md5={base64.b64encode(digest).decode()}"
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def do_GET(self):
                server.answer(self)

            do_HEAD = do_GET  # noqa: N815

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self._http.shutdown()
        self._http.server_close()

    def answer(self, request):
        if self.folder:
            return self._answer_for_hugging_face(request)
        asked = request.headers["Range"]
        self.asked.append(asked)
        if self.redirect and "redirected" not in request.path:
            return self._send(request, 302, {"Location": self.redirect, "Content-Length": 0}, b"")
        start = int(asked[len("bytes=") : -1]) if asked and self.ranges else 0
        size = len(self.content)
        if start >= size:
            return request.send_error(416)
        body = self.content[start:]
        headers = {"Content-Length": self.length or len(body)}
        if start:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        if self.hash:
            headers["x-goog-hash"] = self.hash
        body = body[: self.cuts.pop(0)] if self.cuts else body
        if self.release:
            self._send(request, 206 if start else 200, headers, body[:1])
            self.release.wait(60)
            return request.wfile.write(body[1:])
        return self._send(request, 206 if start else 200, headers, body)

    def _send(self, request, status, headers, body):
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, str(value))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)

    def _answer_for_hugging_face(self, request):
        """Answers as the API of Hugging Face: the list of files, or a file."""
        path, commit = request.path.partition("?")[0], "0" * 40
        self.asked.append(f"{request.command} {path}")
        files = {file.name: file.read_bytes() for file in sorted(self.folder.iterdir())}
        ids = {name: hashlib.sha1(content).hexdigest() for name, content in files.items()}
        if not path.startswith(("/albert/albert-base-v2/", "/api/models/albert/albert-base-v2")):
            headers = {"X-Error-Code": "RepoNotFound", "Content-Length": 0}
            return self._send(request, 404, headers, b"")
        if path.startswith("/api/"):
            names = [{"rfilename": name} for name in files]
            answer = {"id": "albert/albert-base-v2", "sha": commit, "siblings": names}
            if "/tree/" in path:
                answer = [
                    {"type": "file", "path": name, "size": len(content), "oid": ids[name]}
                    for name, content in files.items()
                ]
            body = json.dumps(answer).encode()
            return self._send(request, 200, {"Content-Length": len(body)}, body)
        name = path.rpartition("/")[2]
        headers = {"ETag": f'"{ids[name]}"', "X-Repo-Commit": commit}
        headers["Content-Length"] = len(files[name])
        return self._send(request, 200, headers, files[name])


@pytest.fixture(scope="module")
def content(golden, tmp_path_factory) -> bytes:
    """A tar file with one folder, as the released ones."""
    path = tmp_path_factory.mktemp("released") / "albert.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(golden / "hub" / "albert_directory", "albert_base")
    return path.read_bytes()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """Sets empty caches and a working directory without models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "modules"))
    names._snapshot.cache_clear()
    return tmp_path / "home" / "released"


@pytest.fixture
def server(content, monkeypatch):
    server = Server(content)
    monkeypatch.setattr(names, "_ADDRESS", f"{server.url}/albert_{{}}.tar.gz")
    yield server
    server.stop()


@pytest.fixture
def part(home, content) -> Path:
    """Writes half of the file, as an interrupted download does."""
    home.mkdir(parents=True)
    path = home / "albert_base_v2.tar.gz.part"
    path.write_bytes(content[: len(content) // 2])
    return path


def refusal(name: str = "base_v2") -> str:
    with pytest.raises(LoadError) as error:
        local_directory(name)
    return str(error.value)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "release"),
        [
            ("https://tfhub.dev/google/albert_xlarge/1", "xlarge_v1"),
            ("https://tfhub.dev/google/albert_base/2", "base_v2"),
            ("https://tfhub.dev/google/albert_base/3", "base_v2"),
            (GOOGLE, "base_v2"),
            ("https://storage.googleapis.com/albert_models/albert_xxlarge_zh.tar.gz", "xxlarge_zh"),
            ("https://tfhub.dev/google/albert_base/4", None),
            ("https://tfhub.dev/google/elmo/3", None),
            ("mini", None),
            ("base", None),
        ],
    )
    def test_names_and_urls_of_releases(self, name, release):
        assert names._release(name) == release
        assert is_released(name) == (release is not None)

    @pytest.mark.parametrize(
        ("name", "repository"),
        [
            ("albert/albert-xxlarge-v1", "albert/albert-xxlarge-v1"),
            ("albert-base-v2", "albert/albert-base-v2"),
            ("someone/albert-base-v2-SST-2", "someone/albert-base-v2-SST-2"),
            ("albert-base-v3", None),
            ("albert-base-zh", None),
            ("output/model.ckpt-best", None),
            ("output/albert.tar.gz", None),
            ("./output", None),
            ("gs://bucket/model", None),
            ("a/b/c", None),
        ],
    )
    def test_hugging_face_ids_are_recognized(self, name, repository):
        assert names._repository(name) == repository
        assert is_released(name) == (repository is not None)

    def test_existing_paths_have_priority_over_names(self, golden, tmp_path, monkeypatch):
        counted = []
        monkeypatch.setattr(names.logging, "log_first_n", lambda *values: counted.append(values))
        shutil.copytree(golden / "hub" / "albert_directory", tmp_path / "base_v2")
        assert stored_model("base_v2").path == "base_v2"
        shutil.copytree(tmp_path / "base_v2", tmp_path / "albert" / "albert-base-v2")
        assert not is_released("albert/albert-base-v2")
        assert is_released("albert/albert-base-v1")  # a folder `albert` may be a clone
        assert not is_released("albert/absent")
        shutil.copytree(tmp_path / "base_v2", tmp_path / "albert" / "another")
        assert stored_model("albert/another", is_handle=True)  # an ordinary path
        assert [values[-1] for values in counted] == [
            str(tmp_path / "base_v2"),
            str(tmp_path / "albert" / "albert-base-v2"),
        ]

    @pytest.mark.parametrize(
        ("name", "near"),
        [("base_v3", "'base_v2'"), ("albert-base-v22", "'albert/albert-base-v2'"), ("x", "'mini'")],
    )
    def test_unknown_names_are_rejected_with_suggestions(self, name, near):
        for is_handle in (True, False):
            with pytest.raises(ValueError, match=near):
                stored_model(name, is_handle=is_handle)


class TestDownload:
    @pytest.mark.parametrize("hub", [False, True])
    def test_all_names_of_a_release_share_one_download(self, server, home, hub):
        name = "https://tfhub.dev/google/albert_base/3" if hub else "base_v2"
        stored = stored_model(name)
        assert stored.path == str(home / "albert_base_v2" / "albert_base")
        assert stored.config.num_attention_heads == 4
        assert stored.tokenizer_file
        for other in (server.url + "/albert_base_v2.tar.gz", "base_v2"):
            assert stored_model(other).path == stored.path
        assert find_weights("base_v2") == stored.checkpoint
        assert server.asked == [None]
        assert os.listdir(home) == ["albert_base_v2"]

    def test_lost_connection_is_resumed(self, server, home, content):
        server.cuts = [1000, 1, 5000]
        local_directory("base_v2")
        assert server.asked == [None, "bytes=1000-", "bytes=1001-", "bytes=6001-"]
        assert os.listdir(home) == ["albert_base_v2"]

    def test_partial_file_of_another_process_is_resumed(self, server, part):
        half = part.stat().st_size
        local_directory("base_v2")
        assert server.asked == [f"bytes={half}-"]
        assert not part.exists()

    def test_server_without_ranges(self, server, part):
        server.ranges = False
        local_directory("base_v2")
        assert len(server.asked) == 1

    @pytest.mark.parametrize("more", [b"", b"more than there is"])
    def test_complete_partial_file_is_downloaded_again(self, server, part, content, more):
        part.write_bytes(content + more)
        local_directory("base_v2")
        assert server.asked == [f"bytes={len(content + more)}-", None]

    def test_partial_file_with_another_md5_is_rejected(self, server, part):
        part.write_bytes(part.read_bytes()[:-1] + b"x")
        assert "MD5" in refusal()
        assert not part.exists()
        local_directory("base_v2")

    @pytest.mark.parametrize("is_resumed", [True, False])
    def test_damaged_download_is_renamed(self, server, home, content, is_resumed):
        home.mkdir(parents=True)
        path = home / ("albert_base_v2.tar.gz" + ".part" * is_resumed)
        path.write_bytes(content[:100] + b"harm" + content[104:300])
        server.hash = None
        rejected = "albert_base_v2.tar.gz.rejected"
        assert rejected in refusal()
        assert os.listdir(home) == [rejected]
        assert local_directory("base_v2")

    def test_number_of_requests_is_limited(self, server):
        server.cuts = [1] * 200
        assert "bytes" not in refusal()
        assert len(server.asked) == 100

    @pytest.mark.parametrize("length", [None, 10**15])
    def test_size_of_downloads_is_limited(self, server, home, content, length, monkeypatch):
        server.length = length
        monkeypatch.setattr(names, "_MAX_BYTES", len(content) - (not length))
        assert str(names._MAX_BYTES) in refusal()
        assert len(server.asked) == 1
        assert not os.listdir(home)

    def test_slow_downloads_are_stopped(self, server, monkeypatch):
        clock = SimpleNamespace(monotonic=itertools.count(0, 61).__next__)
        monkeypatch.setattr(names, "time", clock)
        monkeypatch.setattr(names, "_MIN_PROGRESS", 1 << 30)  # all may arrive at once
        assert "60 seconds" in refusal()
        assert len(server.asked) == 1

    @pytest.mark.parametrize(
        "target",
        [
            *("file:///etc/passwd", "ftp://127.0.0.1/a.tar.gz", "http://[127.0.0.1/a"),
            *("http://127.0.0.1:port/a", "https://\u00fc..example/a", "http://a b/c"),
        ],
    )
    def test_redirects_to_other_schemes_and_invalid_urls(self, server, home, target):
        server.redirect = target.encode().decode("latin-1")
        message = refusal()
        assert "base_v2 cannot be downloaded" in message
        assert target in message or target.startswith("http")
        assert len(server.asked) == 1
        assert not os.listdir(home)

    def test_https_is_not_redirected_to_http(self):
        request, redirects = names.urllib.request.Request("https://a"), names._Redirects()
        with pytest.raises(OSError, match="http://b"):
            redirects.redirect_request(request, None, 302, "", {}, "http://b")

    def test_a_redirect_is_followed(self, server, content):
        server.redirect = f"{server.url}/redirected.tar.gz"
        assert local_directory("base_v2")

    def test_wrong_size_is_rejected(self, server, home, content):
        server.length, server.hash = len(content) + 7, None
        assert len(refusal().splitlines()) == 3
        assert server.asked == [None, f"bytes={len(content)}-"]
        server.length = None
        local_directory("base_v2")

    def test_full_disk_is_reported(self, server, home):
        with file_size_limit(1000):
            assert "ALBERT_TF_HOME" in refusal()
        assert not (home / "albert_base_v2").exists()
        local_directory("base_v2")


class TestUrl:
    def test_an_archive_is_downloaded_once(self, server, golden, tmp_path):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(golden / "hub" / "module", ".")
        server.content, server.hash = file.getvalue(), None
        for url in (f"{server.url}/m.tar", f"{server.url}/m", f"{server.url}/m?a=b"):
            stored = stored_model(url)
            assert stored.format == "tf1_hub"
            assert stored.path.startswith(str(tmp_path / "home"))
            assert stored_model(url).path == stored.path
        assert server.asked == [None] * 3

    @pytest.mark.parametrize(
        "url", ["http://127.0.0.1:9/m", "http://[127.0.0.1/m", "https://\udcff"]
    )
    def test_url_without_server_is_rejected(self, url):
        assert f"{url} cannot be downloaded" in refusal(url)


class TestWithoutNetwork:
    @pytest.fixture(autouse=True)
    def _nothing_answers(self, server):
        server.stop()

    def test_error_explains_manual_download(self, server, home):
        what, where, then = refusal().splitlines()
        assert what.startswith("base_v2 ")
        assert where.endswith(f"{server.url}/albert_base_v2.tar.gz")
        assert then.endswith(str(home / "albert_base_v2.tar.gz"))
        assert not os.listdir(home)

    def test_manually_downloaded_file_is_used(self, home, content):
        refusal()
        (home / "albert_base_v2.tar.gz").write_bytes(content)
        assert stored_model("base_v2").checkpoint

    def test_cache_of_tensorflow_hub_is_used(self, golden, tmp_path):
        address = "https://tfhub.dev/google/albert_large/3"
        folder = tmp_path / "modules" / hashlib.sha1(address.encode()).hexdigest()
        folder.mkdir(parents=True)
        assert "large_v2.tar.gz" in refusal(address)
        shutil.copytree(golden / "hub" / "module", folder, dirs_exist_ok=True)
        assert stored_model(address).path == str(folder)
        assert stored_model(address).format == "tf1_hub"

    def test_former_environment_variable_is_supported(self, tmp_path, monkeypatch):
        monkeypatch.delenv("ALBERT_TF_HOME")
        monkeypatch.setenv("ALBERT_TF_CACHE_DIR", str(tmp_path / "former"))
        assert str(tmp_path / "former") in refusal()


_FETCH = """
import sys
from albert_tf.checkpoints import names
from albert_tf.checkpoints.archives import local_directory
names._ADDRESS = sys.argv[1]
print(local_directory(sys.argv[2]))
assert "tensorflow" not in sys.modules
"""


def fetching(address: str, name: str, **environment: str) -> subprocess.Popen:
    """Starts a process that fetches a model and prints its directory."""
    return subprocess.Popen(
        [sys.executable, "-c", _FETCH, address, name],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_concurrent_and_killed_downloads(server, home):
    server.release = threading.Event()
    killed = fetching(names._ADDRESS, "base_v2")
    part = home / "albert_base_v2.tar.gz.part"
    while not (part.exists() and part.stat().st_size):
        assert killed.poll() is None
    killed.kill()
    killed.communicate()
    both = [fetching(names._ADDRESS, "base_v2") for _ in range(2)]
    while len(server.asked) < 2:
        assert None in [process.poll() for process in both]
    server.release.set()
    for process in both:
        output, errors = process.communicate()
        assert output == f"{home / 'albert_base_v2' / 'albert_base'}\n", errors
    assert server.asked == [None, "bytes=1-"]
    assert os.listdir(home) == ["albert_base_v2"]


class TestHuggingFace:
    def test_hub_library_downloads_only_needed_files(self, tmp_path):
        folder = shutil.copytree(MINI, tmp_path / "repository")
        (folder / "pytorch_model.bin").write_bytes(b"the same weights")
        (folder / "tf_model.h5").write_bytes(b"once more")
        server = Server(b"", folder)
        environment = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf")}
        directories = set()
        for name in ("albert-base-v2", "albert/albert-base-v2"):
            output, errors = fetching("", name, **environment).communicate()
            assert output, errors
            directories.add(output)
        wrong, errors = fetching("", "albert/absent", **environment).communicate()
        assert not wrong
        assert f"{server.url}/albert/absent" in errors
        server.stop()
        output, _ = fetching("", "albert-base-v2", **environment).communicate()
        assert {output} == directories
        stored = stored_model(output.strip())
        assert stored.format == "huggingface"
        assert stored.checkpoint.endswith("model.safetensors")
        assert stored.tokenizer_file
        assert str(tmp_path / "hf") in stored.path
        assert not any(path.endswith((".bin", ".h5")) for path in server.asked)

    def test_pytorch_weights_are_downloaded_without_safetensors(self, tmp_path):
        folder = shutil.copytree(MINI, tmp_path / "repository")
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        server = Server(b"", folder)
        environment = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf")}
        output, errors = fetching("", "albert-base-v2", **environment).communicate()
        server.stop()
        assert output, errors
        assert "pytorch_model.bin" in os.listdir(output.strip())

    def test_error_explains_manual_download_from_hugging_face(self, tmp_path):
        environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
        _, errors = fetching("", "albert-base-v2", **environment).communicate()
        what, where, then = errors.partition("LoadError: ")[2].strip().splitlines()
        assert "albert-base-v2" in what
        assert where.endswith("http://127.0.0.1:9/albert/albert-base-v2")
        assert "'base_v2'" in then
