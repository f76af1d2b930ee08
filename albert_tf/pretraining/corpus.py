"""Reads text files as blocks of whole documents, so that a corpus need not fit in memory.

A document has one sentence per line and ends at an empty line or at the end of a file. Files are
cut about every 4 MiB, at the next start of a document.
"""

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from tqdm import tqdm

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_size, open_binary
from albert_tf.data.parallel import progress_bar, worker_processes
from albert_tf.pretraining.instances import Documents
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import PieceCounts
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer, sentencepiece_starts_word

BLOCK_BYTES = 4 << 20
_SHORT_BYTES = 64 << 10  # most documents are shorter
_FILES_AT_A_TIME = 16
# The default of SentencePiece, which ignores longer lines.
LONGEST_LINE = 4192  # bytes
# The last end of a sentence in a text, otherwise the last blank.
_CUT = re.compile("(?s:.*)(?:[.!?] |。|！|？|। |۔ |؟ |။|។)|(?s:.*) ".encode())
_EMPTY_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")


@dataclass(frozen=True)
class Span:
    """The bytes [start, end) of a file."""

    path: str
    start: int
    end: int

    def read(self) -> bytes:
        """Returns the bytes of the span. Raises ValueError if the file has become shorter."""
        with open_binary(self.path, "rb") as file:
            file.seek(self.start)
            data = file.read(self.end - self.start)
        if len(data) < self.end - self.start:
            raise UserError(f"{self.path} became shorter while it was read. Run the command again.")
        return data


@dataclass(frozen=True)
class Block:
    """Whole documents, a few megabytes of text.

    `cuts_document` is whether the block starts inside a document that is longer than a block.
    """

    spans: tuple[Span, ...]
    cuts_document: bool = False

    @property
    def size(self) -> int:
        """Number of bytes of text."""
        return sum(span.end - span.start for span in self.spans)


def cut_into_blocks(files: Sequence[str], block_bytes: int = BLOCK_BYTES) -> list[Block]:
    """Cuts files into non-empty blocks of about `block_bytes` bytes.

    Documents that are longer than a block are cut at a line end. Lines are never cut.
    """
    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:  # remote files respond slowly
        starts = list(accumulate(pool.map(file_size, files), initial=0))
        total = starts[-1]
        number = max(1, round(total / block_bytes))
        targets = [total * k // number for k in range(1, number + 1)]
        shares = [_spans(files, starts, low, high) for low, high in pairwise(targets)]
        cuts = zip(targets, pool.map(_find_cut, shares), strict=False)
        found = [(target + cut[0], cut[1]) for target, cut in cuts if cut]
    return [
        Block(spans, cuts_document)
        for (low, cuts_document), (high, _) in pairwise([(0, False), *found, (total, False)])
        if (spans := _spans(files, starts, low, high))
    ]


def _spans(files: Sequence[str], starts: Sequence[int], low: int, high: int) -> tuple[Span, ...]:
    """Returns the spans of the bytes [low, high) of the concatenated files."""
    first, last = bisect_right(starts, low) - 1, bisect_left(starts, high)
    return tuple(
        Span(files[k], max(low, starts[k]) - starts[k], min(high, starts[k + 1]) - starts[k])
        for k in range(first, last)
        if starts[k] < starts[k + 1]
    )


def _find_cut(spans: Sequence[Span]) -> tuple[int, bool] | None:
    """Returns the offset at which to cut, and whether the cut is inside a document."""
    first = spans[0]
    if first.start == 0:
        return 0, False
    length = first.end - first.start
    for window in (_SHORT_BYTES, length):
        text = Span(first.path, first.start, min(first.end, first.start + window)).read()
        if match := _EMPTY_LINE.search(text):
            return match.end(), False
    if len(spans) > 1:
        return length, False
    newline = text.find(b"\n")
    return (newline + 1, True) if newline >= 0 else None


def check_text(
    input_files: Sequence[str], num_workers: int, block_bytes: int = BLOCK_BYTES
) -> list[Block]:
    """Returns the blocks of files. Raises ValueError unless they are UTF-8 and contain text."""
    blocks = cut_into_blocks(input_files, block_bytes)
    has_text = False
    with (
        worker_processes(max(1, min(num_workers, len(blocks))), None) as run,
        byte_progress("checking", sum(block.size for block in blocks)) as progress,
    ):
        for block, found in zip(blocks, run(contains_text, blocks), strict=True):
            has_text |= found
            progress.update(block.size)
    if not has_text:
        raise UserError(f"There is no text in `input_file`: {', '.join(input_files)}")
    return blocks


def byte_progress(name: str, total: int) -> tqdm:
    """Creates a progress bar that counts bytes."""
    interval = 0.5 if sys.stderr.isatty() else 30  # seconds
    return progress_bar(
        total=total, desc=name, unit="B", unit_scale=True, mininterval=interval, disable=False
    )


def contains_text(shared: None, block: Block) -> bool:
    """Returns whether a block contains text. Raises ValueError if it is not UTF-8."""
    texts = [_decode(span) for span in block.spans]
    return any(text and not text.isspace() for text in texts)


def _decode(span: Span) -> str:
    data = span.read()
    try:
        text = data.decode("utf-8")
        # Many NULs indicate UTF-16, or a binary file that happens to be valid UTF-8.
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
        f"0x{data[place]:02x}. `input_file` must be plain text. Convert or unpack the file first."
    )


def read_documents(block: Block, tokenizer: Tokenizer) -> Documents:
    """Tokenizes the documents of a block, without lines and documents that have no tokens.

    The ids are in [0, V]. The id V is an unknown piece inside a word.
    """
    segments: list[list[int]] = []
    document_starts = [0]
    counts = PieceCounts(documents_cut=int(block.cuts_document))
    continuing = _continuing_characters(tokenizer)
    for span in block.spans:
        text = _decode(span)
        lines = text.split("\n")
        counts.update(characters=len(text), changed_characters=tokenizer.count_changed(text))
        rows = tokenizer.encode_batch(lines)
        counts.add(tokenizer, lines, rows)
        for line, ids in zip(lines, rows, strict=True):
            if ids:
                segments.append(_mark_unknown_pieces(tokenizer, continuing, line, ids))
            elif len(segments) > document_starts[-1] and not tokenizer.clean(line):
                document_starts.append(len(segments))
        if len(segments) > document_starts[-1]:
            document_starts.append(len(segments))
    lengths = [end - start for start, end in pairwise(document_starts)]
    counts.update(
        documents=len(lengths),
        one_segment_documents=lengths.count(1),
        segments=len(segments),
        text_tokens=counts["pieces"],
    )
    return replace(Documents.from_segments(segments, document_starts), counts=counts)


def _continuing_characters(tokenizer: Tokenizer) -> frozenset[str]:
    """Returns the ASCII characters that continue a word and are not in the vocabulary."""
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return frozenset()
    return frozenset(
        chr(code) for code in range(128) if not sentencepiece_starts_word("a" + chr(code))
    ).difference(tokenizer.tokens)


def _mark_unknown_pieces(
    tokenizer: Tokenizer, continuing: frozenset[str], line: str, ids: list[int]
) -> list[int]:
    """Returns the ids, with V in place of each unknown piece that does not start a word."""
    if tokenizer.unk_id not in ids or continuing.isdisjoint(tokenizer.clean(line)):
        return ids
    return [
        tokenizer.vocab_size
        if i == tokenizer.unk_id and not sentencepiece_starts_word(piece)
        else i
        for i, piece in zip(ids, tokenizer.tokenize(line), strict=True)
    ]


def cut_line(line: str, longest: int) -> Iterator[str]:
    """Yields the parts of a line, each of at most `longest` bytes of UTF-8; see `find_cut`."""
    if len(line) * 4 <= longest or len(data := line.encode()) <= longest:
        yield line
        return
    start = 0
    while start < len(data):
        end = find_cut(data, start, start + longest)
        yield data[start:end].decode().strip(" ")
        start = end


def find_cut(data: bytes | bytearray, start: int, end: int) -> int:
    """Returns the best place up to `end` at which to cut a line of UTF-8.

    This is the end of a sentence, otherwise a blank, otherwise the end of a character.
    """
    if end >= len(data):
        return len(data)
    if found := _CUT.match(data, start, end):
        return found.end()
    while data[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return end
