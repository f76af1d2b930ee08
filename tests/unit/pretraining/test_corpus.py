from itertools import pairwise
from pathlib import Path

import pytest

from albert_tf.pretraining.corpus import Block, contains_text, cut_into_blocks, read_documents
from albert_tf.pretraining.instances import Documents
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer


def write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def read(text: str, tokenizer: Tokenizer, folder: Path) -> Documents:
    (block,) = cut_into_blocks([write(folder / "text", text)])
    return read_documents(block, tokenizer)


def decoded(documents: Documents, tokenizer: Tokenizer) -> list[list[str]]:
    """Returns documents as lists of lines."""
    segments = [
        tokenizer.decode(documents.ids[start:end].tolist())
        for start, end in pairwise(documents.segment_starts)
    ]
    return [segments[start:end] for start, end in pairwise(documents.document_starts)]


TEXTS = {
    "plain": ("the road\nwas long\n\nthe bridge\n", [["the road", "was long"], ["the bridge"]]),
    "no end": ("the road", [["the road"]]),
    "many empty lines": ("\n\n \t\nthe road\n\n\n  \nwas long\n\n", [["the road"], ["was long"]]),
    "windows": ("the road\r\n\r\nwas long\r\n", [["the road"], ["was long"]]),
    "other blanks": ("the road\n\u3000\u00a0\nwas long\n", [["the road"], ["was long"]]),
    "no other line ends": ("the\u2028road\x0cwas\x85long\n", [["the road was long"]]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_documents_are_read(name, tokenizer, tmp_path):
    text, expected = TEXTS[name]
    assert decoded(read(text, tokenizer, tmp_path), tokenizer) == expected


def test_lines_without_tokens(tokenizer, word_pieces, tmp_path):
    """A line of control characters is not blank; a line of accents is."""
    documents = read("the road\n\u200b\nwas long\n", word_pieces, tmp_path)
    assert decoded(documents, word_pieces) == [["the road", "was long"]]
    documents = read("the road\n\u0301\u0300\nwas long\n", tokenizer, tmp_path)
    assert decoded(documents, tokenizer) == [["the road"], ["was long"]]


def test_unknown_pieces_inside_words(golden, tmp_path):
    """Unknown letters continue a word; other unknown characters start one."""
    cased = tokenizer_from_files(
        spm_model_file=str(golden / "tokenizer" / "small_1000.model"), do_lower_case=False
    )
    assert isinstance(cased, SentencePieceTokenizer)
    documents = read("the roQd was\nthe \u4e16 long\n", cased, tmp_path)
    assert cased.vocab_size in documents.ids[: documents.segment_starts[1]]
    second = documents.ids[documents.segment_starts[1] :]
    assert cased.unk_id in second
    assert cased.vocab_size not in second


def joined(blocks: list[Block]) -> bytes:
    return b"".join(span.read() for block in blocks for span in block.spans)


def corpus(folder: Path, sizes: list[list[int]]) -> list[str]:
    """Writes files of documents with the given numbers of lines."""
    return [
        write(
            folder / f"{number}.txt",
            "\n".join(
                "".join(f"file {number} document {k} line {i}\n" for i in range(lines))
                for k, lines in enumerate(documents)
            ),
        )
        for number, documents in enumerate(sizes)
    ]


@pytest.mark.parametrize("block_bytes", [60, 200, 777, 3000, 10**6])
def test_blocks_contain_whole_documents_in_order(tmp_path, block_bytes):
    files = corpus(tmp_path, [[1, 4, 2], [3], [], [2, 1, 5, 1, 3], [7, 1]])
    blocks = cut_into_blocks(files, block_bytes)
    text = b"".join(Path(file).read_bytes() for file in files)
    assert joined(blocks) == text
    assert len(blocks) <= len(text) // block_bytes + 1
    if block_bytes == 200:
        assert len(blocks) > 3
    for block in blocks:
        first = block.spans[0].read()
        assert block.cuts_document == (b"line 0" not in first.split(b"\n\n")[0])


def test_long_documents_are_cut_at_line_ends(tmp_path):
    files = corpus(tmp_path, [[200]])
    blocks = cut_into_blocks(files, 500)
    assert [block.cuts_document for block in blocks] == [False] + [True] * (len(blocks) - 1)
    assert len(blocks) > 5
    assert all(block.spans[0].read().endswith(b"\n") for block in blocks)
    assert joined(blocks) == Path(files[0]).read_bytes()
    text = "a" * 5000 + "\n" + "b" * 5000
    blocks = cut_into_blocks([write(tmp_path / "text", text)], 700)
    assert [len(span.read()) for block in blocks for span in block.spans] == [5001, 5000]


def test_the_end_of_a_file_ends_a_document(tokenizer, tmp_path):
    files = [write(tmp_path / "a", "the road"), write(tmp_path / "b", "was long\n")]
    (block,) = cut_into_blocks(files)
    assert decoded(read_documents(block, tokenizer), tokenizer) == [["the road"], ["was long"]]


def test_an_empty_line_far_from_the_cut_is_found(tmp_path):
    """The empty line is not in the 64 KiB that are read first."""
    text = "line\n" * 40_000 + "\n" + "line\n" * 40_000
    blocks = cut_into_blocks([write(tmp_path / "text", text)], 130_000)
    assert [block.cuts_document for block in blocks] == [False, False, True]
    assert blocks[0].size == 200_001


def test_blocks_with_and_without_text(tmp_path):
    nul = b"the ro\0ad\n" + b"was long\n" * 20
    for text, expected in (("the road\n", True), (" \n\u3000\n", False), (nul, True)):
        (block,) = cut_into_blocks([write(tmp_path / "text", text)])
        assert contains_text(None, block) is expected
    assert cut_into_blocks([write(tmp_path / "text", "")]) == []
    blocks = cut_into_blocks(
        [write(tmp_path / "text", b"the road\n" * 2000 + b"\n" + b"was \xff\xfe long\n")], 9000
    )
    assert contains_text(None, blocks[0])
    message = r"text is not UTF-8 text: byte 18005 \(line 2002\) is 0xff.*`input_file`"
    with pytest.raises(ValueError, match=message):
        contains_text(None, blocks[-1])
    utf16 = write(tmp_path / "text", "the road\nwas long\n".encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"text is not UTF-8 text: byte 1 \(line 1\) is 0x00"):
        contains_text(None, *cut_into_blocks([utf16]))


def test_a_file_that_becomes_shorter_is_an_error(tokenizer, tmp_path):
    path = write(tmp_path / "text", "the road\nwas long\n")
    (block,) = cut_into_blocks([path])
    for text in ("the road\n", ""):
        write(tmp_path / "text", text)
        with pytest.raises(ValueError, match=f"^{path} became shorter"):
            read_documents(block, tokenizer)
