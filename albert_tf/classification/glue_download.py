"""The data of a GLUE task, fetched from where they are published."""

from __future__ import annotations

import csv
import http.client
import os
import urllib.request
import zipfile

from albert_tf.data.files import (
    explain_write_errors,
    file_exists,
    make_parent_folder,
    rename,
    temporary_folder,
    write_then_rename,
)
from albert_tf.data.text_examples import GLUE_TASKS

_SECONDS = 60.0  # without a byte
GLUE_URL = "https://dl.fbaipublicfiles.com/glue/data"
MRPC_URL = "https://dl.fbaipublicfiles.com/senteval/senteval_data"
_ARCHIVES = {"QQP": "QQP-clean", "QNLI": "QNLIv2"}  # where a file is not called like its folder


def download(url: str, path: str) -> str:
    """Fetches a file unless it is there; it gets its name when it is complete. Returns `path`.

    Raises:
        ValueError: it cannot be fetched.
    """
    if file_exists(path):
        return path
    print(f"Fetching {url}", flush=True)
    try:
        with (
            urllib.request.urlopen(url, timeout=_SECONDS) as source,
            write_then_rename(path) as file,
        ):
            copied = 0
            while block := source.read(1 << 20):
                copied += file.write(block)
            size = source.headers["Content-Length"]
            if size is not None and copied != int(size):  # which urllib lets pass
                raise OSError(f"the connection ended after {copied:,} of {int(size):,} bytes")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ValueError(
            f"{url} cannot be downloaded to {os.path.abspath(path)}: {error}. On a machine "
            "without network, download it elsewhere and pass the path of a copy."
        ) from error
    return path


def download_glue(
    task_name: str, folder: str, *, glue_url: str = GLUE_URL, mrpc_url: str = MRPC_URL
) -> str:
    """Fetches the data of a task, in any case, into the folder of all tasks unless they are there.

    MRPC's pairs, which GLUE may not hand out, are at `mrpc_url`. Returns `folder`.

    Raises:
        ValueError: there is no such task, or its data cannot be fetched.
    """
    task = GLUE_TASKS.get(task_name.lower())
    if task is None:
        raise ValueError(f"GLUE has the tasks {', '.join(GLUE_TASKS)}. Received: {task_name!r}")
    if file_exists(os.path.join(folder, task.folder, task.dev_file)):
        return folder
    if task.folder == "MRPC":
        _fetch_mrpc(os.path.join(folder, task.folder), glue_url, mrpc_url)
        return folder
    name = f"{_ARCHIVES.get(task.folder, task.folder)}.zip"
    _unpack(download(f"{glue_url}/{name}", os.path.join(folder, name)), folder, task.dev_file)
    return folder


def _unpack(archive: str, folder: str, last: str) -> None:
    """Unpacks the tables of an archive; a damaged one is removed, to be fetched anew."""
    try:
        with (
            zipfile.ZipFile(archive) as files,
            explain_write_errors(folder),
            temporary_folder(archive) as temporary,
        ):
            for name in sorted(files.namelist(), key=lambda name: name.endswith(f"/{last}")):
                if name.endswith(".tsv") and not name.startswith("__MACOSX"):
                    unpacked = files.extract(name, temporary)  # never outside of the folder
                    table = os.path.join(folder, os.path.relpath(unpacked, temporary))
                    make_parent_folder(table)
                    rename(unpacked, table)
    except zipfile.BadZipFile as error:
        os.remove(archive)
        raise ValueError(f"{archive} is damaged ({error}) and was removed. Try again.") from error


def _fetch_mrpc(folder: str, glue_url: str, mrpc_url: str) -> None:
    """Fetches the pairs and splits those of training by the ids of GLUE's development set."""
    train = _rows(download(f"{mrpc_url}/msr_paraphrase_train.txt", os.path.join(folder, "all.txt")))
    test = _rows(download(f"{mrpc_url}/msr_paraphrase_test.txt", os.path.join(folder, "test.txt")))
    dev = _rows(download(f"{glue_url}/mrpc_dev_ids.tsv", os.path.join(folder, "dev_ids.tsv")))
    dev_ids = {tuple(row) for row in dev}
    header, *pairs = train
    numbered = [[str(number), *row[1:]] for number, row in enumerate(test[1:])]
    _write(os.path.join(folder, "test.tsv"), [["index", *header[1:]], *numbered])
    for name, is_dev in (("train.tsv", False), ("dev.tsv", True)):  # last: it tells of all
        kept = [row for row in pairs if (tuple(row[1:3]) in dev_ids) == is_dev]
        _write(os.path.join(folder, name), [header, *kept])


def _rows(path: str) -> list[list[str]]:
    """Cells between tabs; nothing is quoted in these files."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _write(path: str, rows: list[list[str]]) -> None:
    with write_then_rename(path) as file:
        file.writelines(("\t".join(row) + "\n").encode() for row in rows)
