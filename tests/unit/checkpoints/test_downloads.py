"""Tests for downloading models by name, from correct and faulty servers."""

import glob
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.utils import filter_repo_objects

import albert_tf
from albert_tf.checkpoints import downloads
from albert_tf.checkpoints.archives import local_directory
from albert_tf.checkpoints.downloads import source_of
from albert_tf.checkpoints.errors import DamagedError, LoadError
from albert_tf.checkpoints.formats.choose import open_model, open_weights
from albert_tf.checkpoints.model_choice import choose_model
from tests.full_disk import file_size_limit
from tests.programs import TIMEOUT

ADDRESS = "https://storage.googleapis.com/albert_models"
ROOT = Path(albert_tf.__file__).parents[1]
MINI = ROOT / "albert_tf" / "pretrained" / "mini"


class Handler(BaseHTTPRequestHandler):
    """Answers requests to a `Server`."""

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        server = self.server
        server.requests += 1
        body, length = server.content, server.length or len(server.content)
        if server.redirect and "redirected" not in self.path:
            self.send_response(302)
            self.send_header("Location", server.redirect)
            body, length = b"", 0
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body[:1])
        if server.release:
            server.release.wait(TIMEOUT)
        self.wfile.write(body[1:])


class Server(ThreadingHTTPServer):
    """A server of one file."""

    def __init__(self, content):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.requests = 0
        self.length = None  # a wrong `Content-Length`
        self.release = None  # an event that responses wait for after their first byte
        self.redirect = None  # target of redirects
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()


@pytest.fixture(scope="module")
def content(golden, tmp_path_factory) -> bytes:
    """Returns a tar file with one directory, like the released files."""
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
    downloads._from_hugging_face.cache_clear()
    return tmp_path / "home" / "released"


@pytest.fixture
def server(content, monkeypatch):
    server = Server(content)
    monkeypatch.setattr(downloads, "_ADDRESS", f"{server.url}/albert_{{}}.tar.gz")
    yield server
    server.stop()


def refusal(name: str = "base_v2") -> str:
    with pytest.raises(LoadError) as error:
        local_directory(name)
    return str(error.value)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "release", "repository"),
        [
            ("https://tfhub.dev/google/albert_xlarge/1", "xlarge_v1", None),
            ("https://tfhub.dev/google/albert_base/3", "base_v2", None),
            (f"{ADDRESS}/albert_xxlarge_zh.tar.gz", "xxlarge_zh", None),
            ("https://tfhub.dev/google/albert_base/4", None, None),
            ("mini", None, None),
            ("albert-base-v2", None, "albert/albert-base-v2"),
            ("someone/albert-base-v2-SST-2", None, "someone/albert-base-v2-SST-2"),
            ("someone/albert-v1.5", None, "someone/albert-v1.5"),
            ("someone/albert.v2", None, "someone/albert.v2"),
        ],
    )
    def test_names_and_urls(self, name, release, repository):
        assert downloads._release(name) == release
        assert downloads._repository(name) == repository
        assert source_of(name)

    @pytest.mark.parametrize(
        "path",
        [
            *("albert-base-zh", "output/model.ckpt-best", "output/albert.tar.gz", "./output"),
            *("gs://bucket/model", "a/b/c", "runs/best.keras", "data/vocab.txt", "runs\\film"),
            *("~/film", "../film", "/film"),
        ],
    )
    def test_paths_are_not_names(self, path):
        assert downloads._release(path) is downloads._repository(path) is source_of(path) is None

    def test_existing_paths_have_priority_over_names(self, hub, tmp_path):
        shutil.copytree(hub / "albert_directory", tmp_path / "base_v2")
        assert open_model("base_v2").checkpoint == "base_v2/model.ckpt-best"
        (tmp_path / "albert" / "albert-base-v2").mkdir(parents=True)
        assert not source_of("albert/albert-base-v2")
        assert not source_of("albert/absent")
        assert source_of("albert/albert-base-v1")  # the directory may be a clone

    def test_unknown_names_are_rejected_with_suggestions(self):
        near = {"base_v3": "'base_v2'", "albert-base-v22": "'albert/albert-base-v2'", "x": "'mini'"}
        for argument, name in product(("albert_hub_module_handle", "init_checkpoint"), near):
            with pytest.raises(ValueError, match=near[name]):
                choose_model(**{argument: name})


class TestDownload:
    @pytest.mark.parametrize("hub", [False, True])
    def test_all_names_of_a_release_share_one_download(self, server, home, hub):
        name = "https://tfhub.dev/google/albert_base/3" if hub else "base_v2"
        stored = open_model(name)
        assert stored.checkpoint.startswith(str(home / "albert_base_v2" / "albert_base"))
        assert stored.config.num_attention_heads == 4
        assert stored.tokenizer
        for other in (server.url + "/albert_base_v2.tar.gz", "base_v2"):
            assert open_model(other).checkpoint == stored.checkpoint
        assert open_weights("base_v2").source == stored.checkpoint
        assert server.requests == 1
        assert os.listdir(home) == ["albert_base_v2"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"length": 10**6}, r"(?s)base_v2 cannot be downloaded.*albert/albert-base-v2"),
            ({"length": 10**15}, str(downloads._MAX_BYTES)),
            ({"content": b"long" * 30}, "100 bytes"),
            ({"redirect": "file:///etc/passwd"}, "base_v2 cannot be downloaded"),
            ({"redirect": "ftp://h/a.tar.gz"}, "base_v2 cannot be downloaded"),
            ({"redirect": "http://[h/a"}, "base_v2 cannot be downloaded"),
        ],
        ids=str,
    )
    def test_faulty_servers_leave_no_file(self, server, home, changes, message, monkeypatch):
        if "content" in changes:
            monkeypatch.setattr(downloads, "_MAX_BYTES", 100)
        vars(server).update(changes)
        assert re.search(message, refusal())
        assert server.requests == 1
        assert not os.listdir(home)

    def test_damaged_download_is_renamed(self, server, home, content):
        server.content = content[:100] + b"harm" + content[104:300]
        rejected = "albert_base_v2.tar.gz.rejected"
        assert rejected in refusal()
        assert os.listdir(home) == [rejected]
        server.content = content
        assert local_directory("base_v2")

    def test_https_is_not_redirected_to_http(self):
        request, redirects = downloads.urllib.request.Request("https://a"), downloads._Redirects()
        with pytest.raises(OSError, match="http://b"):
            redirects.redirect_request(request, None, 302, "", {}, "http://b")

    def test_a_redirect_is_followed(self, server):
        server.redirect = f"{server.url}/redirected.tar.gz"
        assert local_directory("base_v2")

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
        server.content = file.getvalue()
        checksum = f"#sha256={hashlib.sha256(server.content).hexdigest()}"
        for url in (f"{server.url}/m.tar", f"{server.url}/m", f"{server.url}/m?a=b"):
            url += checksum
            stored = open_model(url)
            assert stored.format == "tf1_hub"
            assert stored.checkpoint.startswith(str(tmp_path / "home"))
            assert open_model(url).checkpoint == stored.checkpoint
        assert server.requests == 3

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("https://127.0.0.1:9/m", "127.0.0.1:9/m cannot be downloaded"),
            ("https://[h/m", "/m cannot be downloaded"),
            *((f"/m.tar{e}", "sha256") for e in ("", "#sha256=", "#sha256=12")),
            (f"/m.tar#sha256={'g' * 64}", "sha256"),
            (f"/m.tar#sha256={'0' * 64}", "SHA-256"),
            *((f"https://{user}@127.0.0.1:9/m.tar", "password") for user in ("user:pa55", "pa55")),
            ("https://user:a/pa55@127.0.0.1:9/m.tar", "password"),
            ("https://127.0.0.1:9/m.tar?token=pa55", "cannot be downloaded"),
            ("https://127.0.0.1:9/m?a=b&sig=pa55/&c=pa55", "cannot be downloaded"),
            ("https://127.0.0.1:9/m#pa55", "cannot be downloaded"),
            ("http://pa55@127.0.0.1:9/m.tar?pa55", "password"),
            ("https://127.0.0.1:9/m?a=b pa55", "must be ASCII"),
            ("https://user pa55@127.0.0.1:9/m", "must be ASCII"),
            ("https://127.0.0.1:9/m?a=\udcffpa55", "must be ASCII"),
            (f"/redirect?a=pa55#sha256={'0' * 64}", "ftp://"),
        ],
    )
    def test_invalid_urls_are_rejected_without_their_secrets(
        self, server, url, message, tmp_path, logs
    ):
        """http needs a checksum."""
        server.redirect = "ftp://user:pa55@h/m?token=pa55" * ("redirect" in url)
        found = refusal(f"{server.url}{url}" if url[0] == "/" else url)
        assert message in found
        assert not any("pa55" in line for line in [found, *logs])
        assert server.requests == (message in ("SHA-256", "ftp://"))
        assert not [*tmp_path.glob("home/urls/*")]


def test_errors_without_network_explain_manual_download(server, home, content, golden, tmp_path):
    """The cache of TF-Hub is also used."""
    server.stop()
    what, where, then = refusal().splitlines()
    assert what.startswith("base_v2 ")
    assert where.endswith(f"{server.url}/albert_base_v2.tar.gz")
    assert str(home / "albert_base_v2.tar.gz") in then
    assert not os.listdir(home)
    (home / "albert_base_v2.tar.gz").write_bytes(content)
    assert open_model("base_v2").checkpoint
    address = "https://tfhub.dev/google/albert_large/3"
    folder = tmp_path / "modules" / hashlib.sha1(address.encode()).hexdigest()
    folder.mkdir(parents=True)
    assert "large_v2.tar.gz" in refusal(address)
    shutil.copytree(golden / "hub" / "module", folder, dirs_exist_ok=True)
    stored = open_model(address)
    assert (stored.format, Path(stored.checkpoint).parents[1]) == ("tf1_hub", folder)


_FETCH = f"""
import sys
from albert_tf.checkpoints import downloads
from albert_tf.checkpoints.archives import local_directory
downloads._ADDRESS, downloads._TIMEOUT = sys.argv[1], {TIMEOUT}
print(local_directory("base_v2"))
assert "tensorflow" not in sys.modules
"""


def fetching() -> subprocess.Popen:
    """Starts a process that downloads a model and prints its directory."""
    return subprocess.Popen(
        [sys.executable, "-c", _FETCH, downloads._ADDRESS],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_concurrent_and_killed_downloads(server, home):
    server.release = threading.Event()
    killed = fetching()
    while not server.requests:
        assert killed.poll() is None
        time.sleep(0.01)
    (leftover,) = glob.glob(f"{home}/.albert_base_v2.tar.gz.tmp-*")
    killed.kill()
    killed.communicate()
    both = [fetching() for _ in range(2)]
    while server.requests < 3:
        assert None in [process.poll() for process in both]
        time.sleep(0.01)
    server.release.set()
    for process in both:
        output, errors = process.communicate()
        assert output == f"{home / 'albert_base_v2' / 'albert_base'}\n", errors
    assert not os.path.exists(leftover)
    assert os.listdir(home) == ["albert_base_v2"]


class TestOffline:
    @pytest.fixture(params=["ALBERT_TF_OFFLINE", "HF_HUB_OFFLINE"], autouse=True)
    def offline(self, request, tmp_path, monkeypatch) -> str:
        monkeypatch.setenv(request.param, "true")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        return request.param

    def test_only_the_cache_is_used(self, server, home, content, offline, tmp_path):
        for name in ("base_v2", "https://127.0.0.1:9/m.tar", "someone/absent"):
            message = refusal(name)
            assert offline in message
            assert "\n" not in message
        home.mkdir(parents=True)
        (home / "albert_base_v2.tar.gz").write_bytes(content)
        assert open_model("base_v2").checkpoint
        assert not server.requests
        snapshot = tmp_path / "models--someone--absent" / "snapshots" / ("1" * 40)
        shutil.copytree(MINI, snapshot)
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text("1" * 40)
        assert local_directory("someone/absent") == str(snapshot)


class TestHuggingFace:
    @pytest.fixture
    def repository(self, tmp_path, monkeypatch):
        """Replaces the download; returns the files of the repository."""
        files = {path.name: path.read_bytes() for path in MINI.iterdir()}
        files |= {"pytorch_model.bin": b"", "tf_model.h5": b"", "onnx/config.json": b"{}"}

        def download(repository, local_files_only, **patterns):
            assert not local_files_only
            assert repository == "albert/albert-base-v2"
            for name in filter_repo_objects(files, **patterns):
                (tmp_path / name).write_bytes(files[name])
            return str(tmp_path)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        return files

    def test_only_needed_files_are_downloaded(self, repository, tmp_path):
        for name in ("albert-base-v2", "albert/albert-base-v2"):
            stored = open_model(name)
            assert stored.checkpoint == str(tmp_path / "model.safetensors")
            assert stored.stored_tokenizer.files[0] == str(tmp_path / "spiece.model")
        assert not {"pytorch_model.bin", "tf_model.h5", "onnx"} & set(os.listdir(tmp_path))

    def test_older_weights_are_downloaded_without_newer_ones(self, repository, tmp_path):
        del repository["model.safetensors"]
        local_directory("albert-base-v2")
        assert (tmp_path / "pytorch_model.bin").exists()
        assert not (tmp_path / "tf_model.h5").exists()
        downloads._from_hugging_face.cache_clear()
        (tmp_path / "pytorch_model.bin").unlink()
        del repository["pytorch_model.bin"]
        local_directory("albert-base-v2")
        assert (tmp_path / "tf_model.h5").exists()
        what, where, then = refusal("someone/absent").splitlines()
        assert "someone/absent" in what
        assert where.endswith("https://huggingface.co/someone/absent")
        assert then.startswith("Then pass the directory")

    def test_the_address_is_logged_before_the_first_request(self, logs, warnings, monkeypatch):
        def download(*_, **settings):
            (line,) = warnings
            assert "https://huggingface.co/runs/film" in line
            assert "main" in line
            return "/cache/snapshots/3f2a"

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        downloads.source_of("runs/film")()
        assert any("commit 3f2a" in line for line in logs)

    def test_damaged_files_of_the_cache_are_rejected(self, tmp_path):
        """A snapshot contains links to files that are named after their SHA-256."""
        snapshot = tmp_path / "snapshots" / "3f2a"
        snapshot.mkdir(parents=True)
        contents = {path.name: path.read_bytes() for path in MINI.iterdir()}
        blobs = {n: tmp_path / hashlib.sha256(c).hexdigest() for n, c in contents.items()}
        for name, blob in blobs.items():
            blob.write_bytes(contents[name])
            (snapshot / name).symlink_to(blob)
        blobs["model.safetensors"].write_bytes(contents["model.safetensors"][:-5] + bytes(5))
        for path in (snapshot, snapshot / "model.safetensors"):
            with pytest.raises(DamagedError, match=r"model\.safetensors is damaged: .*Delete"):
                open_model(str(path))
        blobs["model.safetensors"].write_bytes(contents["model.safetensors"])
        assert open_model(str(snapshot)).config.vocab_size == 8000
        blobs["spiece.model"].write_bytes(b"damaged")  # checked once per process
        open_weights(str(snapshot))


def test_damaged_tokenizers_in_the_cache_are_replaced(home):
    path = Path(downloads.store_tokenizer("vocab.txt", b"[PAD]"))
    path.write_bytes(b"[BAD]")
    assert downloads.store_tokenizer("vocab.txt", b"[PAD]") == str(path)
    assert path.read_bytes() == b"[PAD]"


class TestWithoutCache:
    """In containers, the home directory may be missing or not writable."""

    def test_a_temporary_directory_is_used(self, home, monkeypatch, caplog):
        (home.parents[1] / "file").touch()
        monkeypatch.setenv("ALBERT_TF_HOME", str(home.parents[1] / "file" / "cache"))
        path = downloads.store_tokenizer("vocab.txt", b"[PAD]")
        assert Path(path).read_bytes() == b"[PAD]"
        assert downloads.store_tokenizer("vocab.txt", b"[PAD]") == path
        [message] = [text for text in caplog.messages if "ALBERT_TF_HOME" in text]
        assert str(home.parents[1]) in message

    def test_no_directory_is_named_after_a_missing_home(self, home, monkeypatch):
        for name in ("ALBERT_TF_HOME", "HOME"):
            monkeypatch.delenv(name)
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        assert Path(downloads.store_tokenizer("vocab.txt", b"[PAD]")).exists()
        assert not Path("~").exists()

    def test_archives_in_a_cache_that_is_not_writable_are_used(self, home, monkeypatch, content):
        home.mkdir(parents=True)
        (home / "albert_base_v2.tar.gz").write_bytes(content)
        monkeypatch.setattr(downloads, "why_not_writable", lambda folder: OSError(folder))
        directory = local_directory("base_v2")
        assert not directory.startswith(str(home))
        assert os.listdir(directory)
