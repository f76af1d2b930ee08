"""Fetching files, and the data of GLUE's tasks; the web is a folder here."""

import threading
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from albert_tf.classification.data import GlueData
from albert_tf.classification.glue_download import download, download_glue

HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


@pytest.fixture
def web(tmp_path):
    folder = tmp_path / "web"
    folder.mkdir()
    return folder


def test_a_file_is_fetched_once(web, tmp_path, capsys):
    (web / "a").write_bytes(b"first")
    path = str(tmp_path / "new" / "a")
    assert download((web / "a").as_uri(), path) == path
    (web / "a").write_bytes(b"second")
    download((web / "a").as_uri(), path)
    with open(path, "rb") as file:
        assert file.read() == b"first"
    assert capsys.readouterr().out.count("Fetching") == 1


def test_what_cannot_be_fetched_leaves_nothing(web, tmp_path):
    with pytest.raises(ValueError, match=r"web/missing .*On a machine without"):
        download((web / "missing").as_uri(), str(tmp_path / "new" / "a"))
    with pytest.raises(ValueError, match="cannot be downloaded"):
        download("no URL", str(tmp_path / "new" / "a"))
    assert not (tmp_path / "new").exists()


class CutShort(BaseHTTPRequestHandler):
    """Promises more than it sends."""

    def do_GET(self):
        self.send_response(200)
        if self.path == "/counted":
            self.send_header("Content-Length", "2000")
            self.end_headers()
            self.wfile.write(b"x" * 1500)
        else:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5dc\r\n" + b"x" * 150)

    def log_message(self, *_):
        """Says nothing."""


@pytest.mark.parametrize(
    ("name", "message"), [("counted", "1,500 of 2,000 bytes"), ("chunked", "IncompleteRead")]
)
def test_a_connection_that_ends_early_leaves_nothing(tmp_path, monkeypatch, name, message):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    path = tmp_path / "new" / "a"
    with HTTPServer(("127.0.0.1", 0), CutShort) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(ValueError, match=rf"/{name} .*{message}"):
            download(f"http://127.0.0.1:{server.server_port}/{name}", str(path))
        thread.join()
    assert [*tmp_path.rglob("a*")] == []


def test_mrpc_is_split_by_the_ids_of_its_development_set(web, tmp_path):
    rows = [f'{n % 2}\t{n}\t{n + 10}\tHe said "{n}\tShe did {n}\n' for n in range(5)]
    (web / "msr_paraphrase_train.txt").write_text("\ufeff" + HEADER + "".join(rows))
    (web / "msr_paraphrase_test.txt").write_text("\ufeff" + HEADER + "".join(rows[:2]))
    (web / "mrpc_dev_ids.tsv").write_text("3\t13\n1\t11\n4\t99\n")
    folder = str(tmp_path / "glue")
    assert download_glue("mrpc", folder, glue_url=web.as_uri(), mrpc_url=web.as_uri()) == folder
    data = GlueData("mrpc", folder)
    assert [(e.label, e.text_a) for e in data.read("dev")] == [
        ("1", 'He said "1'),
        ("1", 'He said "3'),
    ]
    assert [e.text_b for e in data.read("train")] == ["She did 0", "She did 2", "She did 4"]
    assert [(e.guid, e.text_b) for e in data.read("test")] == [
        ("0", "She did 0"),
        ("1", "She did 1"),
    ]


def test_an_archive_is_unpacked_and_what_is_there_is_taken(web, tmp_path):
    with zipfile.ZipFile(web / "QNLIv2.zip", "w") as archive:
        for split in ("train", "dev", "test"):
            archive.writestr(f"QNLI/{split}.tsv", f"index\tquestion\tsentence\n{split}\n")
        archive.writestr("__MACOSX/QNLI/._dev.tsv", "")
        archive.writestr("QNLI/readme.txt", "")
    folder = tmp_path / "glue"
    download_glue("QNLI", str(folder), glue_url=web.as_uri())
    assert sorted(path.name for path in (folder / "QNLI").iterdir()) == [
        "dev.tsv",
        "test.tsv",
        "train.tsv",
    ]
    (web / "QNLIv2.zip").unlink()
    assert download_glue("QNLI", str(folder), glue_url=web.as_uri()) == str(folder)


def test_unpacking_that_was_cut_off_is_done_again(web, tmp_path, monkeypatch):
    with zipfile.ZipFile(web / "RTE.zip", "w") as archive:
        for split in ("dev", "train"):
            archive.writestr(f"RTE/{split}.tsv", split)
    extract = zipfile.ZipFile.extract

    def cut_off(files, name, folder):
        monkeypatch.setattr(zipfile.ZipFile, "extract", extract)
        extract(files, name, folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(zipfile.ZipFile, "extract", cut_off)
    folder = tmp_path / "glue"
    with pytest.raises(KeyboardInterrupt):
        download_glue("RTE", str(folder), glue_url=web.as_uri())
    download_glue("RTE", str(folder), glue_url=web.as_uri())
    assert (folder / "RTE" / "train.tsv").read_text() == "train"


def test_a_damaged_archive_is_removed_and_an_unknown_task_named(web, tmp_path):
    (web / "RTE.zip").write_bytes(b"half of an arch")
    with pytest.raises(ValueError, match=r"RTE\.zip is damaged .* Try again"):
        download_glue("RTE", str(tmp_path / "glue"), glue_url=web.as_uri())
    assert not list((tmp_path / "glue").iterdir())
    with pytest.raises(ValueError, match=r"GLUE has the tasks cola, .*Received: 'MRCP'"):
        download_glue("MRCP", str(tmp_path))
