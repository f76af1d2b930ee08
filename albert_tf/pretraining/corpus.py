"""Text files as blocks of whole documents, so that a corpus of any size fits in any memory.

A document is a run of lines, one sentence each; an empty line or the end of a file ends it. All
files together are one row of bytes. It is cut near every 4 MiB, at the first place where a document
begins; where the cuts fall depends on the files alone, so blocks can be read in any order by any
number of processes.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from albert_tf.data.files import file_size, open_binary
from albert_tf.pretraining.segments import Documents
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer, sentencepiece_starts_word

BLOCK_BYTES = 4 << 20
_FIRST_LOOK_BYTES = 64 << 10  # a document mostly ends within this
_SIZES_AT_A_TIME = 16
_EMPTY_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")


@dataclass(frozen=True)
class Span:
    """A part of a file.

    Attributes:
        path: the file.
        start, end: the bytes [start, end).
    """

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


class Cut(NamedTuple):
    """A place where a block ends and the next one begins.

    Attributes:
        place: bytes from the start of the first file, all files taken as one row of bytes.
        inside: a document is cut here.
    """

    place: int
    inside: bool


@dataclass(frozen=True)
class Corpus:
    """Files as one row of bytes, and where to look for cuts in it.

    Each cut is looked for on its own, so any number of processes can share the search.

    Attributes:
        files: text files; each begins a new document.
        starts: bytes of all files before each of them, and the total.
        block_bytes: size of a block to aim at.
    """

    files: tuple[str, ...]
    starts: tuple[int, ...]
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def of(cls, files: Sequence[str], block_bytes: int = BLOCK_BYTES) -> "Corpus":
        """Asks for the sizes of the files, many at a time: remote ones take long to answer."""
        with ThreadPoolExecutor(_SIZES_AT_A_TIME) as pool:
            sizes = pool.map(file_size, files)
            return cls(tuple(files), tuple(accumulate(sizes, initial=0)), block_bytes)

    @property
    def size(self) -> int:
        """Bytes of text."""
        return self.starts[-1]

    @property
    def searches(self) -> range:
        """Numbers to call `find_cut` with, once each."""
        return range(1, self._aims)

    def find_cut(self, number: int) -> Cut | None:
        """Looks for a cut near the end of the `number`-th share of the text.

        Args:
            number: one of `searches`.

        Returns:
            The first place there where a document begins, or else a line; None if there is none.
        """
        low = self._aim(number)
        found = _find_cut(self._spans(low, self._aim(number + 1)))
        return found and Cut(low + found.place, found.inside)

    def blocks(self, cuts: Iterable[Cut | None]) -> list[Block]:
        """The blocks between cuts.

        Args:
            cuts: of all `searches`, in their order.

        Returns:
            Blocks in the order of the text, without empty ones.
        """
        limits = chain([Cut(0, False)], filter(None, cuts), [Cut(self.size, False)])
        return [
            Block(spans, low.inside)
            for low, high in pairwise(limits)
            if (spans := self._spans(low.place, high.place))
        ]

    @property
    def _aims(self) -> int:
        return max(1, round(self.size / self.block_bytes))

    def _aim(self, number: int) -> int:
        return self.size * number // self._aims

    def _spans(self, low: int, high: int) -> tuple[Span, ...]:
        """The parts of files that the bytes [low, high) fall on."""
        starts = self.starts
        first, last = bisect_right(starts, low) - 1, bisect_left(starts, high)
        return tuple(
            Span(
                self.files[k], max(low, starts[k]) - starts[k], min(high, starts[k + 1]) - starts[k]
            )
            for k in range(first, last)
            if starts[k] < starts[k + 1]
        )


def cut_into_blocks(files: Sequence[str], block_bytes: int = BLOCK_BYTES) -> list[Block]:
    """Cuts files into blocks of about `block_bytes`.

    Args:
        files: text files; each begins a new document.
        block_bytes: size to aim at. Longer documents are cut at a line end; a single longer line
            stays whole.

    Returns:
        Blocks in the order of the text, without empty ones.
    """
    corpus = Corpus.of(files, block_bytes)
    return corpus.blocks(map(corpus.find_cut, corpus.searches))


def _find_cut(spans: Sequence[Span]) -> Cut | None:
    """The first place where a document begins, or else a line.

    Returns:
        The place, counted from the start of the first span; None if there is no line end at all.
    """
    first = spans[0]
    if first.start == 0:
        return Cut(0, False)
    length = first.end - first.start
    for window in (_FIRST_LOOK_BYTES, length):
        text = Span(first.path, first.start, min(first.end, first.start + window)).read()
        if match := _EMPTY_LINE.search(text):
            return Cut(match.end(), False)
    if len(spans) > 1:
        return Cut(length, False)
    newline = text.find(b"\n")
    return Cut(newline + 1, True) if newline >= 0 else None


def check_block(block: Block) -> bool:
    """Makes sure that a block is text.

    Returns:
        Whether there is anything but white space in it.

    Raises:
        ValueError: not UTF-8; names the file, the line and the byte.
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
    line = _count_lines(span) + data.count(b"\n", 0, place) + 1
    raise ValueError(
        f"{span.path} is not UTF-8 text: byte {span.start + place} (line {line}) is "
        f"0x{data[place]:02x}. --input_file takes plain text; convert or unpack it first."
    )


def _count_lines(span: Span) -> int:
    """Line ends in the file before the span."""
    with open_binary(span.path, "rb") as file:
        pieces = range(0, span.start, BLOCK_BYTES)
        return sum(file.read(min(BLOCK_BYTES, span.start - place)).count(b"\n") for place in pieces)


def read_documents(block: Block, tokenizer: Tokenizer) -> Documents:
    """Tokenizes the documents of a block; lines and documents without tokens are left out.

    Args:
        block: from `cut_into_blocks`.
        tokenizer: text to ids.

    Returns:
        Documents whose ids lie in [0, V]: V stands for an unknown piece inside a word, which only
        its text tells from one that opens a word.
    """
    segments: list[list[int]] = []
    document_starts = [0]
    unknown = _UnknownPieces(tokenizer)
    for span in block.spans:
        lines = _decode(span).split("\n")
        for line, ids in zip(lines, tokenizer.encode_batch(lines), strict=True):
            if ids:
                segments.append(unknown.mark(line, ids))
            elif len(segments) > document_starts[-1] and not tokenizer.clean(line):
                document_starts.append(len(segments))
        if len(segments) > document_starts[-1]:
            document_starts.append(len(segments))
    return Documents.from_segments(segments, document_starts)


class _UnknownPieces:
    """Tells unknown pieces that open a word from those that continue one, by their text.

    With WordPiece every unknown word is one token, so there is nothing to tell apart.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        # An unknown piece is made of characters that are no pieces themselves. Only such of these
        # as can continue a word matter, and a text mostly has none of them.
        self.continuing = frozenset(
            chr(code) for code in range(128) if not sentencepiece_starts_word("a" + chr(code))
        ).difference(tokenizer.tokens)
        if not isinstance(tokenizer, SentencePieceTokenizer):
            self.continuing = frozenset()

    def mark(self, line: str, ids: list[int]) -> list[int]:
        """Replaces the id of unknown pieces that do not open a word by V."""
        tokenizer = self.tokenizer
        if tokenizer.unk_id not in ids or self.continuing.isdisjoint(tokenizer.clean(line)):
            return ids
        return [
            tokenizer.vocab_size
            if i == tokenizer.unk_id and not sentencepiece_starts_word(piece)
            else i
            for i, piece in zip(ids, tokenizer.tokenize(line), strict=True)
        ]
