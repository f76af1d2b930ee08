"""Finds models by name or URL, and downloads them into a cache.

Bundled models are in `albert_tf/pretrained/<name>/`. Their checksums are compared before use.
A model of the original release is a tar file, which can be given by a name ("base_v2") or a URL.
Models on Hugging Face, such as "albert/albert-base-v2", are downloaded by huggingface_hub.
"""

import difflib
import functools
import hashlib
import http.client
import os
import re
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from absl import logging

from albert_tf.checkpoints.errors import DamagedError, LoadError
from albert_tf.config import PRESETS
from albert_tf.data.errors import without_secrets
from albert_tf.data.files import (
    WriteError,
    file_exists,
    folder_names,
    read_file,
    reason_of,
    why_not_writable,
    write_file,
    write_then_rename,
)
from albert_tf.data.parallel import progress_bar

CACHE_VARIABLE = "ALBERT_TF_HOME"
_OFFLINE_VARIABLES = ("ALBERT_TF_OFFLINE", "HF_HUB_OFFLINE")
TAR = ".tar.gz"
ENDINGS = (".tar", TAR, ".tgz")
_WEB = ("http://", "https://")
_CHECKSUM = "#sha256="  # at the end of a URL, before the checksum of the file
_OFFLINE = f"It is not downloaded, because {' or '.join(_OFFLINE_VARIABLES)} is set."

# Source: README.md of the original release.
_ADDRESS = "https://storage.googleapis.com/albert_models/albert_{}" + TAR
_TF_HUB = {
    f"https://tfhub.dev/google/albert_{size}/{number}": f"{size}_{version}"
    for size in ("base", "large", "xlarge", "xxlarge")
    for number, version in ((1, "v1"), (2, "v2"), (3, "v2"))
}
_HUGGING_FACE = {
    f"albert/albert-{name.replace('_', '-')}": name for name in PRESETS if not name.endswith("_zh")
}
# "owner/name", except names of checkpoints and names with the extension of a file. Versions such as
# "albert.v2" are no extensions.
_ID = re.compile(
    r"(?!.*(ckpt|\.(?!v[0-9]+$)[A-Za-z][A-Za-z0-9]*$))"
    r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*"
)
# Top-level files of a repository; the older formats only if there is no newer format.
_FILES = ("*.json", "*.model", "*.txt", "*.safetensors")
_OLDER_FILES = ("pytorch_model*.bin", "tf_model*.h5")
_WEIGHTS = (".safetensors", ".bin")

_TIMEOUT = 30  # seconds without a byte
_MAX_BYTES = 8 << 30  # per file
_CHUNK = 1 << 20  # bytes

BUNDLED = ("mini",)  # names of the models in albert_tf/pretrained
CHECKSUMS = "SHA256SUMS"
CARD = "README.md"
_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "pretrained")
_LINE = re.compile(r"^([0-9a-f]{64}) [ *]([^/\0\n]+)$", re.MULTILINE)


def cached(*names: str) -> str:
    """Returns a path in the cache, or a new path in a temporary directory if it is not writable."""
    default = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "albert_tf")
    cache = os.path.expanduser(os.environ.get(CACHE_VARIABLE) or default)
    path = os.path.join(cache, *names)
    is_read_only = cache.startswith("~") or why_not_writable(os.path.dirname(path))
    is_new = is_read_only and not os.access(path, os.R_OK)
    return os.path.join(_temporary_cache(cache).name, *names) if is_new else path


@functools.cache
def _temporary_cache(cache: str) -> tempfile.TemporaryDirectory:
    logging.warning(
        "%s is not writable: using a temporary directory. To keep its files, set %s to another one",
        *(cache, CACHE_VARIABLE),
    )
    return tempfile.TemporaryDirectory(prefix="albert_tf_")


def store_tokenizer(name: str, content: bytes, others: Mapping[str, bytes] | None = None) -> str:
    """Stores a tokenizer file in the cache if it is missing or damaged; returns its path.

    `others` are the contents of files next to it by their names.
    """
    files = {name: content, **(others or {})}
    digest = hashlib.sha256(b"\0".join(files.values())).hexdigest()[:16]
    for file, data in files.items():
        path = cached("tokenizers", digest, file)
        if not file_exists(path) or read_file(path) != data:
            write_file(path, data)
    return cached("tokenizers", digest, name)


@functools.cache
def check_cached_file(path: str) -> None:
    """Raises `DamagedError` if the file is named after another SHA-256, once per process.

    Snapshots in the cache of Hugging Face contain links to files with such names.
    """
    blob = os.path.realpath(path)
    expected = os.path.basename(blob)
    if not (re.fullmatch("[0-9a-f]{64}", expected) and os.path.isfile(blob)):
        return
    if (received := _sha256(blob)) != expected:
        raise DamagedError(
            f"{path} is damaged: the SHA-256 of {blob} is {received}. Delete this file, and "
            "download the model again."
        )


def source_of(name: str) -> Callable[[], str] | None:
    """Returns a function that obtains the model of a name or URL; `None` for a path.

    The function returns the directory of the model, or a tar file to unpack. It raises `LoadError`
    if the model is damaged or cannot be downloaded, `OSError` if it cannot be stored. Existing
    paths have priority. "owner/name" is a path if a directory `owner` exists.
    """
    repository, release = _repository(name), _release(name)
    if name.startswith(_WEB):
        return functools.partial(_fetch, name, release)
    if is_bundled(name):
        return functools.partial(bundled_directory, name)
    if release:
        return None if is_path(name) else functools.partial(_fetch, name, release)
    is_known = repository in _HUGGING_FACE
    if not repository or (is_path(name) if is_known else os.path.lexists(name.split("/")[0])):
        return None
    return functools.partial(_from_hugging_face, repository, name)


def is_bundled(name: str) -> bool:
    """Returns whether a name refers to a bundled model. Existing paths have priority."""
    return name in BUNDLED and not is_path(name)


def is_path(name: str) -> bool:
    """Returns whether a path or checkpoint exists; if so, logs that it has priority over a name."""
    if not (os.path.exists(name) or os.path.exists(f"{name}.index")):
        return False
    logging.log_first_n(
        logging.WARNING,
        "%r refers to the existing path %s, not to the model of that name",
        1,
        name,
        os.path.abspath(name),
    )
    return True


def bundled_directory(name: str) -> str:
    """Returns the directory of a bundled model. Raises `DamagedError` if a file is damaged."""
    directory = os.path.join(_FOLDER, name)
    try:
        check_sums(directory)
    except DamagedError as error:
        raise DamagedError(
            f"The model {name!r} bundled with albert_tf is damaged. {error} Install "
            "albert_tf again (pip install --force-reinstall --no-deps)."
        ) from error
    return directory


def check_sums(directory: str) -> None:
    """Raises `DamagedError` if a file differs from the list that `sha256sum` wrote."""
    path = os.path.join(directory, CHECKSUMS)
    text = read_file(path).decode("utf-8", "replace") if file_exists(path) else ""
    sums = {name: expected for expected, name in _LINE.findall(text)}
    names = {name for name in folder_names(directory) if not name.startswith(".")}
    for name in sorted((names | sums.keys()) - {CARD, CHECKSUMS}):
        file = os.path.join(directory, name)
        received = _sha256(file) if name in names else None
        if received != sums.get(name):
            raise DamagedError(
                f"{file} is not the file that was released: expected SHA-256 {sums.get(name)} "
                f"({path}), received {received}."
            )


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _release(name: str) -> str | None:
    """Returns the name in `PRESETS` of a model of the original release."""
    if name in PRESETS:
        return name
    return _TF_HUB.get(name) or next((n for n in PRESETS if name == _ADDRESS.format(n)), None)


def _repository(name: str) -> str | None:
    """Returns the id of a model on Hugging Face. The owner `albert` may be omitted."""
    full = f"albert/{name}"
    return full if full in _HUGGING_FACE else name if _ID.fullmatch(name) else None


def suggestion(name: str) -> str:
    """Returns a sentence that suggests names similar to an unknown name."""
    near = difflib.get_close_matches(name, (*BUNDLED, *PRESETS, *_HUGGING_FACE))
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    return (
        f"Names of models are {BUNDLED[0]!r}, which is bundled with albert_tf, and the names of "
        "released models such as 'base_v2'."
    )


def _fetch(name: str, release: str | None) -> str:
    """Returns the tar file of a release or URL, or a directory in the cache."""
    digest = hashlib.sha1(os.fsencode(name)).hexdigest()
    if not release:
        _check_url(name)
    url, place = name.partition(_CHECKSUM)[0], os.path.join("urls", digest)
    if release:
        url, place = _ADDRESS.format(release), os.path.join("released", f"albert_{release}")
    elif not url.endswith(ENDINGS):  # without this option, TF-Hub sends a web page
        url += f"{'&' if '?' in url else '?'}tf-hub-format=compressed"
    # The default of TF-Hub, a temporary directory, may belong to another user.
    modules = os.environ.get("TFHUB_CACHE_DIR")
    module = os.path.join(modules, digest) if modules else ""
    if module and folder_names(module):
        return module
    directory, archive = cached(place), cached(place + TAR)
    found = next((path for path in (directory, archive) if os.path.exists(path)), None)
    if not found and _is_offline():
        raise LoadError(f"{name} is not in the cache ({directory}). {_OFFLINE}")
    return found or _download(url, archive, name)


def _is_offline() -> bool:
    values = (os.environ.get(variable, "") for variable in _OFFLINE_VARIABLES)
    return any(value.upper() in ("1", "ON", "YES", "TRUE") for value in values)


def _check_url(url: str) -> None:
    """Rejects URLs with a password, and URLs whose content cannot be verified."""
    advice = "download the file and pass its path"
    start, problem = url, ""
    if not re.fullmatch("[!-~]*", url):  # libraries quote such URLs in errors
        start, problem = re.split("[^!-~]|[?#]", url)[0], "must be ASCII without blanks"
    elif re.match(r"https?://([^/?#]*@|.*:.*@)", url):
        problem = f"contains a user name or password, which is not supported: {advice}"
    elif url.startswith("http://") and not re.search(f"{_CHECKSUM}[0-9a-f]{{64}}$", url):
        problem = f"is not encrypted: use https, append {_CHECKSUM} and the SHA-256, or {advice}"
    if problem:
        raise LoadError(f"The URL {start} {problem}.")


@functools.cache
def _from_hugging_face(repository: str, name: str) -> str:
    """Downloads a model into the cache of Hugging Face; returns its directory."""
    address = f"{os.environ.get('HF_ENDPOINT', 'https://huggingface.co')}/{repository}"
    try:
        from huggingface_hub import snapshot_download

        text = f"{name!r} is not an existing path: opening {address}, revision main"
        # A name that is not known may be a misspelled path.
        log = logging.info if repository in _HUGGING_FACE else logging.warning
        log("%s", without_secrets(text))
        download = functools.partial(snapshot_download, repository, local_files_only=_is_offline())
        directory: str = download(allow_patterns=[*_FILES], ignore_patterns="*/*")
        logging.info("%r is commit %s, in %s", name, os.path.basename(directory), directory)
        for pattern in _OLDER_FILES:
            if not any(file.endswith(_WEIGHTS) for file in folder_names(directory)):
                download(allow_patterns=[pattern])
        return directory
    except Exception as error:  # of many classes
        if _is_offline():
            raise LoadError(
                f"{name!r} is neither a path nor in the cache of Hugging Face. {_OFFLINE}"
            ) from error
        equal = _HUGGING_FACE.get(repository)
        otherwise = f"The same model of the original release is {equal!r}." if equal else ""
        raise LoadError(
            f"{name!r} is not an existing path, and cannot be downloaded from Hugging Face: "
            f"{reason_of(error)}\n"
            f"Download its files elsewhere: {address}\n"
            f"Then pass the directory that contains them. {otherwise or suggestion(name)}"
        ) from error


def _download(url: str, path: str, given: str) -> str:
    """Downloads a tar file and compares its checksum, if the URL has one; returns its path."""
    logging.info("%s", without_secrets(f"{given} is downloaded from {url} to {path}"))
    expected, digest = given.partition(_CHECKSUM)[2], hashlib.sha256()
    equal = next((name for name, n in _HUGGING_FACE.items() if n == _release(given)), None)
    with write_then_rename(path) as file:
        try:
            for block in _receive(url):
                file.write(block)
                digest.update(block)
        except WriteError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LoadError(
                f"{given} cannot be downloaded: {reason_of(error) or type(error).__name__}\n"
                f"Download the file elsewhere: {url}\n"
                f"Then pass its path in place of the name, or move it to {path}."
                + f" Or use the copy on Hugging Face, {equal!r}."
                * bool(equal)
            ) from error
        if expected not in ("", received := digest.hexdigest()):
            raise LoadError(
                f"{given}: the file from {url} is damaged: expected SHA-256 {expected}, received "
                f"{received}. Try again, or download it elsewhere and pass its path."
            )
    return path


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to HTTPS, and from HTTP to HTTP."""

    def redirect_request(self, req: urllib.request.Request, *args: Any) -> Any:
        url = args[-1]
        if not url.lower().startswith(("https://", f"{req.type}://")):
            raise OSError(f"the server redirects to {url!r}")
        return super().redirect_request(req, *args)


def _receive(url: str) -> Iterator[bytes]:
    """Yields the blocks of a file. Raises an error if it is incomplete or too large."""
    # Without this header, Google's storage decompresses the file and sends no size.
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    opener, received = urllib.request.build_opener(_Redirects), 0
    with opener.open(request, timeout=_TIMEOUT) as response:
        size, name = response.length, os.path.basename(without_secrets(url))
        with progress_bar(total=size, desc=name, unit="B", unit_scale=True) as bar:
            while block := response.read1(_CHUNK):
                received += len(block)
                if max(size or 0, received) > _MAX_BYTES:
                    raise OSError(f"the file is larger than {_MAX_BYTES} bytes")
                yield block
                bar.update(len(block))
    if size is not None and received != size:
        raise OSError(f"the connection ended after {received} of {size} bytes")
