"""Tokenizers of other programs, run by the library `tokenizers`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import parent_process
from typing import Any

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, read_file
from albert_tf.data.strict_json import JsonValue, lone_surrogates_replaced, read_json
from albert_tf.tokenization.base import SPECIAL_TOKENS, WORD_START, Encoding, Tokenizer
from albert_tf.tokenization.sentence_piece import blank_range, sentencepiece_starts_word

JSON_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
_NAME_FILES = ("special_tokens_map.json", CONFIG_FILE)  # the last one has priority
_BYTE_BLANK = "Ġ"  # stands for a blank in byte-level vocabularies


class LibraryTokenizer(Tokenizer):
    """Runs a `tokenizer.json` with all of its rules.

    The rules normalize texts, so `do_lower_case` and `keep_accents` only describe them. In texts,
    special tokens are ordinary text, or unknown if the model has no other pieces for them.
    """

    def __init__(
        self, content: bytes, files: Sequence[str] = (), names: Mapping[str, str] | None = None
    ) -> None:
        """Loads the content of a file.

        Args:
            content: the content of the `tokenizer.json`.
            files: its path, then the paths of files that contain the names of special tokens.
            names: names of special tokens by role, such as `cls_token`, if they are not the usual
                names.

        Raises:
            ValueError: the library cannot read the content, or special tokens are missing.
        """
        self.content, self._names = content, dict(names or {})
        self._file = files[0] if files else "The data"
        self._library = _open(content, self._file)
        prefix = getattr(self._library.model, "continuing_subword_prefix", None)
        tokens = _vocabulary(self._library)
        marks = () if prefix else (WORD_START, _BYTE_BLANK)
        numbers = {mark: sum(token.startswith(mark) for token in tokens) for mark in marks}
        self.word_start = max(numbers, key=numbers.__getitem__, default="")
        self._prefix = prefix or ""
        super().__init__(tokens, self._normalized("A") == self._normalized("a"), files)
        self.keep_accents = self._normalized("\u00e9") != self._normalized("e")
        self._not_text = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        for role, usual in SPECIAL_TOKENS.items():  # are also recognized
            for name in usual:
                self._ids.setdefault(name, self._ids[getattr(self, role)])
        if parent_process() is not None:  # one thread per worker process
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def __reduce__(self) -> tuple[type, tuple]:
        return type(self), (self.content, self.files, self._names)

    def is_same_as(self, other: Tokenizer) -> bool:
        """Returns whether another tokenizer has the same rules."""
        return isinstance(other, LibraryTokenizer) and self.content == other.content

    def clean(self, text: str) -> str:
        """Returns the text after the normalizer of the file."""
        text = lone_surrogates_replaced(text)
        return self._normalized(text) if text.strip() else ""

    def _normalized(self, text: str) -> str:
        with library_errors(self._file):
            normalizer = self._library.normalizer
            return str(normalizer.normalize_str(text)) if normalizer else text.strip()

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a raw text, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each raw text. Large batches are encoded in parallel."""
        texts = list(map(lone_surrogates_replaced, texts))
        with library_errors(self._file):
            found = self._library.encode_batch_fast(texts, add_special_tokens=False)
        return [self._ids_of_text(encoding.ids) for encoding in found]

    def encode_with_offsets(self, text: str) -> Encoding:
        """Returns the ids of a raw text and the ranges of characters of the tokens."""
        with library_errors(self._file):
            found = self._library.encode(lone_surrogates_replaced(text), add_special_tokens=False)
        starts: list[int] = []
        ends: list[int] = []
        for token, (start, end) in zip(found.tokens, found.offsets, strict=True):
            last = ends[-1] if ends else 0
            if self.word_start == WORD_START and token.startswith(WORD_START):
                gap = start - len(text[last:start]) + len(text[last:start].rstrip())
                blank = blank_range(text, gap, start)
                start, end = blank[0], blank[1] if token == WORD_START else end
            starts.append(max(start, *starts[-1:], 0))
            ends.append(max(starts[-1], end))
        return Encoding(self._ids_of_text(found.ids), starts, ends)

    def _ids_of_text(self, ids: list[int]) -> list[int]:
        if self._not_text.isdisjoint(ids):
            return ids
        return [self.unk_id if i in self._not_text else i for i in ids]

    def _join(self, tokens: list[str]) -> str:
        with library_errors(self._file):
            ids = self.convert_tokens_to_ids(tokens)
            return str(self._library.decode(ids, skip_special_tokens=False))

    def _starts_word(self, token: str) -> bool:
        if not self.word_start:
            return not (self._prefix and token.startswith(self._prefix))
        return sentencepiece_starts_word(token.replace(self.word_start, WORD_START))

    def _special_id(self, role: str) -> int:
        name = self._names.get(role)
        return self._ids[name] if name in self._ids else super()._special_id(role)


@contextmanager
def library_errors(source: str) -> Iterator[None]:
    """Context manager that raises `ValueError` if the library fails."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # panics of Rust are not derived from Exception
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{source}: the tokenizers library fails: {reason}") from error


def _open(content: bytes, source: str) -> Any:
    """Returns the library's tokenizer, without truncation, padding and special tokens in texts."""
    import tokenizers  # only needed for tokenizers of other programs

    with library_errors(source):
        library = tokenizers.Tokenizer.from_buffer(content)
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True  # as ordinary text
    return library


def _vocabulary(library: Any) -> list[str]:
    """Returns the tokens in the order of ids. Missing and repeated tokens get unused names."""
    ids = library.get_vocab()
    size = max(ids.values(), default=-1) + 1
    if size > 2 * len(ids):
        raise UserError(
            f"The ids of a tokenizer must be consecutive. Received: {len(ids)} tokens with ids up "
            f"to {size - 1}"
        )
    tokens = [f"[unused_{i}]" for i in range(size)]
    for token, i in ids.items():
        tokens[i] = token
    return tokens


def read_library_tokenizer(path: str) -> LibraryTokenizer:
    """Loads a `tokenizer.json`; the names of special tokens are read from files next to it."""
    others = name_files(path)
    return LibraryTokenizer(read_file(path), [path, *others], special_names(others))


def name_files(path: str) -> list[str]:
    """Returns the paths of the files next to a tokenizer that contain names of special tokens."""
    return [*filter(file_exists, (os.path.join(os.path.dirname(path), n) for n in _NAME_FILES))]


def special_names(files: Sequence[str]) -> dict[str, str]:
    """Returns the names of special tokens by role. The last file has priority."""
    names = {}
    for values in (JsonValue(read_json(path, path), path) for path in files):
        for role in SPECIAL_TOKENS:
            if name := values.get(role):
                names[role] = (name["content"] if isinstance(name.value, dict) else name).text()
    return names


def require_own_rules(tokenizer: Tokenizer | None, target: str) -> None:
    """Raises `ValueError` if a target cannot contain a tokenizer with custom rules."""
    if isinstance(tokenizer, LibraryTokenizer):
        raise UserError(
            f"{target} needs a SentencePiece model or a WordPiece vocabulary with the rules of "
            f"ALBERT. Received: {tokenizer.source}, whose rules only the tokenizers library "
            "reproduces. Use the format 'huggingface' or 'original', which store this file."
        )
