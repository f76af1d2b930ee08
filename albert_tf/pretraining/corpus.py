"""Text files as blocks of whole documents, so that a corpus of any size fits in any memory.

A document is a run of lines, one sentence each; an empty line or the end of a file ends it. All
files together are cut near every 4 MiB, at the first place where a document begins: where the cuts
fall depends on the files alone, so blocks can be read in any order by any number of processes.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_size, open_binary
from albert_tf.pretraining.segments import Documents
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer, sentencepiece_starts_word

BLOCK_BYTES = 4 << 20
_FIRST_LOOK_BYTES = 64 << 10  # a document mostly ends within this
_FILES_AT_A_TIME = 16
_EMPTY_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")


@dataclass(frozen=True)
class Span:
    """The bytes [start, end) of a file."""

    path: str
    start: int
    end: int

    def read(self) -> bytes:
        """The bytes of the span."""
        with open_binary(self.path, "rb") as file:
            file.seek(self.start)
            return file.read(self.end - self.start)


@dataclass(frozen=True)
class Block:
    """Whole documents, a few megabytes of text.

    Attributes:
        spans: where the text is; a document does not go from one span to the next.
        cuts_document: the document at the start is longer than a block and was cut at a line end.
    """

    spans: tuple[Span, ...]
    cuts_document: bool = False

    @property
    def size(self) -> int:
        """Bytes of text."""
        return sum(span.end - span.start for span in self.spans)


def cut_into_blocks(files: Sequence[str], block_bytes: int = BLOCK_BYTES) -> list[Block]:
    """Cuts files, each of which begins a new document, into blocks of about `block_bytes`.

    Longer documents are cut at a line end; a single longer line stays whole. Empty blocks are left
    out.
    """
    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:  # remote ones take long to answer
        starts = list(accumulate(pool.map(file_size, files), initial=0))
        total = starts[-1]
        number = max(1, round(total / block_bytes))
        aims = [total * k // number for k in range(1, number + 1)]
        shares = [_spans(files, starts, low, high) for low, high in pairwise(aims)]
        cuts = zip(aims, pool.map(_find_cut, shares), strict=False)
        found = [(aim + cut[0], cut[1]) for aim, cut in cuts if cut]
    return [
        Block(spans, cuts_document)
        for (low, cuts_document), (high, _) in pairwise([(0, False), *found, (total, False)])
        if (spans := _spans(files, starts, low, high))
    ]


def _spans(files: Sequence[str], starts: Sequence[int], low: int, high: int) -> tuple[Span, ...]:
    """The parts of files in the bytes [low, high) of all files together."""
    first, last = bisect_right(starts, low) - 1, bisect_left(starts, high)
    return tuple(
        Span(files[k], max(low, starts[k]) - starts[k], min(high, starts[k + 1]) - starts[k])
        for k in range(first, last)
        if starts[k] < starts[k + 1]
    )


def _find_cut(spans: Sequence[Span]) -> tuple[int, bool] | None:
    """Bytes up to the first document or else line that begins in the spans; True for a line."""
    first = spans[0]
    if first.start == 0:
        return 0, False
    length = first.end - first.start
    for window in (_FIRST_LOOK_BYTES, length):
        text = Span(first.path, first.start, min(first.end, first.start + window)).read()
        if match := _EMPTY_LINE.search(text):
            return match.end(), False
    if len(spans) > 1:
        return length, False
    newline = text.find(b"\n")
    return (newline + 1, True) if newline >= 0 else None


def check_block(block: Block) -> bool:
    """Whether a block holds anything but white space.

    Raises ValueError if it is not UTF-8; names the file, the line and the byte.
    """
    texts = [_decode(span) for span in block.spans]
    return any(text and not text.isspace() for text in texts)


def _decode(span: Span) -> str:
    data = span.read()
    try:
        text = data.decode("utf-8")
        # A stray NUL is noise; many mean UTF-16, or a binary file that happens to decode.
        place = data.find(b"\0") if data.count(b"\0") > len(data) / 100 else -1
    except UnicodeDecodeError as error:
        place = error.start
    if place == -1:
        return text
    line = data.count(b"\n", 0, place) + 1
    with open_binary(span.path, "rb") as file:
        for start in range(0, span.start, BLOCK_BYTES):
            line += file.read(min(BLOCK_BYTES, span.start - start)).count(b"\n")
    raise UserError(
        f"{span.path} is not UTF-8 text: byte {span.start + place} (line {line}) is "
        f"0x{data[place]:02x}. `input_file` takes plain text; convert or unpack it first."
    )


def read_documents(block: Block, tokenizer: Tokenizer) -> Documents:
    """Tokenizes the documents of a block; lines and documents without tokens are left out.

    Returns:
        Documents whose ids lie in [0, V]: V stands for an unknown piece inside a word, which only
        its text tells from one that opens a word.
    """
    segments: list[list[int]] = []
    document_starts = [0]
    continuing = _continuing_characters(tokenizer)
    for span in block.spans:
        lines = _decode(span).split("\n")
        for line, ids in zip(lines, tokenizer.encode_batch(lines), strict=True):
            if ids:
                segments.append(_mark_unknown_pieces(tokenizer, continuing, line, ids))
            elif len(segments) > document_starts[-1] and not tokenizer.clean(line):
                document_starts.append(len(segments))
        if len(segments) > document_starts[-1]:
            document_starts.append(len(segments))
    return Documents.from_segments(segments, document_starts)


def _continuing_characters(tokenizer: Tokenizer) -> frozenset[str]:
    """Characters that can continue a word and are no pieces; none with WordPiece's whole words."""
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return frozenset()
    return frozenset(
        chr(code) for code in range(128) if not sentencepiece_starts_word("a" + chr(code))
    ).difference(tokenizer.tokens)


def _mark_unknown_pieces(
    tokenizer: Tokenizer, continuing: frozenset[str], line: str, ids: list[int]
) -> list[int]:
    """Replaces the id of unknown pieces that do not open a word by V."""
    if tokenizer.unk_id not in ids or continuing.isdisjoint(tokenizer.clean(line)):
        return ids
    return [
        tokenizer.vocab_size
        if i == tokenizer.unk_id and not sentencepiece_starts_word(piece)
        else i
        for i, piece in zip(ids, tokenizer.tokenize(line), strict=True)
    ]
