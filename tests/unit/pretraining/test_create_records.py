import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from albert_tf.data.files import match_files
from albert_tf.data.tfrecord import count_records, read_records
from albert_tf.pretraining.batching import parse_batch
from albert_tf.pretraining.corpus import Block, cut_into_blocks
from albert_tf.pretraining.create_data import CreationReport, create_pretraining_data
from albert_tf.pretraining.create_records import (
    chunk_numbers,
    create_records,
    sample_counts,
    shuffled,
    shuffled_jobs,
    shuffled_order,
)
from albert_tf.pretraining.instances import Documents, InstanceSettings, SegmentSettings
from albert_tf.pretraining.masking import MaskingSettings, masking_limit_warning
from albert_tf.pretraining.record_checks import check_record_files
from albert_tf.pretraining.settings import PretrainingDataSettings
from albert_tf.pretraining.word_starts import WordStarts
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tokenization.word_piece import WordPieceTokenizer
from tests.huggingface import accents

SETTINGS = InstanceSettings(
    SegmentSettings(48), MaskingSettings(max_predictions_per_seq=9), dupe_factor=2, random_seed=7
)
ADJACENT = replace(SETTINGS, segments=SegmentSettings(48, sentence_pairs="adjacent"))


def create(corpus, folder, word_pieces, settings=SETTINGS, files=3, **options):
    outputs = [str(folder / f"{number}.tfrecord") for number in range(files)]
    options = {"num_workers": 1, "block_bytes": 7000} | options
    return outputs, create_records([corpus], outputs, word_pieces, settings, **options)


def content(outputs: list[str]) -> list[bytes]:
    return [Path(output).read_bytes() for output in outputs]


def test_records_and_counts(corpus, tmp_path, word_pieces):
    outputs, counts = create(corpus, tmp_path, word_pieces)
    sizes = [count_records([output]) for output in outputs]
    assert sum(sizes) == counts["instances"] > 600
    assert max(sizes) - min(sizes) <= 1
    check_record_files(outputs, SETTINGS.feature_specs)
    assert match_files(f"{tmp_path}/*") == outputs
    lines = Path(corpus).read_text("utf-8").split("\n")
    assert counts["documents"] == 60
    assert counts["segments"] == sum(bool(line.strip()) for line in lines)
    assert counts["text_tokens"] == sum(map(len, word_pieces.encode_batch(lines)))


def test_files_do_not_depend_on_the_number_of_processes(corpus, tmp_path, word_pieces):
    made = []
    for n in (1, 3):
        options = {"num_workers": n, "shuffle_bytes": 20_000}
        made.append(content(create(corpus, tmp_path / str(n), word_pieces, ADJACENT, **options)[0]))
    assert made[0] == made[1]


def test_passes_differ(corpus, tmp_path, word_pieces):
    """The first pass is the same whether or not another one follows."""
    once = replace(SETTINGS, dupe_factor=1)
    (one,), _ = create(corpus, tmp_path / "a", word_pieces, once, files=1)
    (two,), _ = create(corpus, tmp_path / "b", word_pieces, files=1)
    first, both = set(read_records(one)), set(read_records(two))
    assert first < both
    assert len(both) > 1.9 * len(first)


def test_remote_paths_are_read_and_written(corpus, tmp_path, word_pieces):
    """file:// is a remote path, like gs://."""
    local, _ = create(corpus, tmp_path / "a", word_pieces)
    remote = [f"file://{tmp_path}/b/{number}" for number in range(3)]
    create_records([f"file://{corpus}"], remote, word_pieces, SETTINGS, 1, 7000)
    assert [(tmp_path / "b" / str(n)).read_bytes() for n in range(3)] == content(local)
    assert count_records(remote) == count_records(local)


def fails(message: str, inputs: list[str], outputs: list[str], word_pieces: Tokenizer) -> None:
    with pytest.raises(ValueError, match=message):
        create_records(inputs, outputs, word_pieces, SETTINGS, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\u200b\n".encode(), "`input_file` contains no token"),
        (b"the road\n\x80\n", "text is not UTF-8 text: byte 9 .line 2"),
    ],
    ids=["without tokens", "binary"],
)
def test_invalid_inputs_leave_the_output_unchanged(text, message, tmp_path, word_pieces):
    (tmp_path / "text").write_bytes(text)
    (tmp_path / "o").write_text("before")
    outputs = [str(tmp_path / "o"), str(tmp_path / "new" / "file")]
    fails(message, [str(tmp_path / "text")], outputs, word_pieces)
    assert (tmp_path / "o").read_text() == "before"
    assert message.startswith("`input_file` contains no token") or not (tmp_path / "new").exists()


def test_invalid_outputs_are_rejected(tmp_path, word_pieces):
    text, path = tmp_path / "text", str(tmp_path / "o")
    text.write_text("the road\n")
    (tmp_path / "link").symlink_to(text)
    for name in ("text", "link", "../" + tmp_path.name + "/text"):
        fails("would overwrite the input", [str(text)], [str(tmp_path / name)], word_pieces)
    fails("`output_file` contains .*o twice", [str(text)], [path, path], word_pieces)
    fails(str(tmp_path), [str(text)], [str(tmp_path)], word_pieces)
    fails("`output_file` contains no file", [str(text)], [], word_pieces)
    fails("text/o cannot be written", [str(text)], [path, str(text / "o")], word_pieces)
    assert {entry.name for entry in tmp_path.iterdir()} == {"text", "link"}
    assert text.read_text() == "the road\n"


def test_documents_of_one_line_and_a_single_document(tmp_path, word_pieces):
    (tmp_path / "many").write_text("the road\n\nwas long\n\nthe bridge\nfell\n")
    _, counts = create(str(tmp_path / "many"), tmp_path / "a", word_pieces)
    assert counts["one_segment_documents"] == 2
    assert counts["random_parts"] >= 4
    (warning,) = CreationReport(SETTINGS, counts, 1).warnings()
    assert "2 of 3 documents have only one line" in warning
    assert "the sentence labels are 1" in warning
    (tmp_path / "one").write_text("the road was long\n")
    _, counts = create(str(tmp_path / "one"), tmp_path / "b", word_pieces)
    assert counts["random_parts_of_only_document"] == 2
    warning, _ = CreationReport(SETTINGS, counts, 1).warnings()
    assert "2 of 2 random second parts are from the same document" in warning


def test_documents_of_one_line_yield_no_adjacent_pair(tmp_path, word_pieces):
    (tmp_path / "some").write_text("the road\n\nwas long\n\nthe bridge\nfell\n")
    (path,), counts = create(str(tmp_path / "some"), tmp_path / "a", word_pieces, ADJACENT, files=1)
    assert counts["instances"] == count_records([path]) == 2
    assert (counts["random_parts"], counts["one_segment_documents"]) == (0, 2)
    (warning,) = CreationReport(ADJACENT, counts, 1).warnings()
    assert warning.startswith("2 of 3 documents have only one line")
    (tmp_path / "none").write_text("the road\n\nwas long\n")
    with pytest.raises(ValueError, match=r"`sentence_pairs`=adjacent.*two lines.*none"):
        create(str(tmp_path / "none"), tmp_path / "b", word_pieces, ADJACENT)
    assert not list((tmp_path / "b").iterdir())


JOBS = [[bytes([k, n]) * 5 for n in range(7)] for k in range(10)]  # 70 bytes each
RECORDS = [record for job in JOBS for record in job]


def test_orders_and_chunks():
    jobs = shuffled_jobs([Block(()) for _ in range(9)], replace(SETTINGS, dupe_factor=5))
    expected = {(p, b) for p in range(5) for b in range(9)}
    assert {(job.pass_number, job.block_number) for job in jobs} == expected
    assert len({job.pass_number for job in jobs[:9]}) > 2
    orders = [shuffled_order(31, *key).tolist() for key in ((5, 2), (5, 2), (5, 3), (-6, 2))]
    assert orders[0] == orders[1]
    assert all(sorted(order) == list(range(31)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    # Other processors and later versions of NumPy must write the same files.
    assert shuffled_order(8, 12345, 1).tolist() == [1, 7, 6, 2, 3, 4, 5, 0]
    assert list(chunk_numbers([3, 3, 3, 3, 1], 5)) == [0, 0, 1, 1, 2]
    assert list(chunk_numbers([6, 1, 99, 0, 0, 5], 5)) == [0, 1, 1, 2, 2, 2]


def test_chunks_are_shuffled_one_by_one():
    taken = 0

    def source() -> Iterator[list[bytes]]:
        nonlocal taken
        for job in JOBS:
            taken += 1
            yield job

    result = []
    for record in shuffled(source(), 139, 3):  # two jobs per chunk
        result.append(record)
        assert taken <= len(result) // 7 + 3
    assert result != RECORDS
    for k in range(0, 70, 14):
        assert sorted(result[k : k + 14]) == RECORDS[k : k + 14]


COUNTS = Counter(
    documents=1234,
    segments=5678,
    text_tokens=90000,
    one_segment_documents=3,
    instances=400,
    positions=200_000,
    tokens=150_000,
    tokens_cut=50_000,
    predictions=15_000,
    swapped=180,
    random_parts=40,
    ngram_1=60,
    ngram_2=30,
    ngram_3=10,
)


def test_report():
    report = CreationReport(InstanceSettings(dupe_factor=5), COUNTS, 10.0)
    text = "\n".join(report.lines())
    for part in (
        "read: documents=1,234 segments=5,678",
        "padding=25.00% tokens_cut=25.00%",
        "masked_fraction=10.00% prediction_slots=20 1-grams=60.00% 2-grams=30.00% 3-grams=10.00%",
        "sentence_loss=sop sentence_pairs=original swapped=45.00% random_document=10.00%",
        "tokens_per_second=15,000",
    ):
        assert part in text
    assert not list(report.warnings())
    single = SegmentSettings(sentence_loss="none")
    plain = InstanceSettings(single, MaskingSettings(masked_lm_prob=0))
    text = "\n".join(CreationReport(plain, COUNTS, 10.0).lines())
    assert "swapped" not in text
    assert "masking: none" in text


def test_warnings():
    counts = COUNTS + Counter(documents_cut=2, random_parts_of_only_document=1, tokens_cut=200_000)
    one_document, lost, cut = CreationReport(InstanceSettings(), counts, 1.0).warnings()
    assert one_document.startswith("1 of 40 random second parts")
    assert lost.startswith("62.50% of the tokens were cut to fit `max_seq_length`")
    assert "cut at 2 places" in cut
    warning = masking_limit_warning(512, MaskingSettings())
    assert "asks for 77 predictions in 512 tokens" in warning
    assert "allows only 20, so 3.9%" in warning
    assert masking_limit_warning(128, MaskingSettings()) is None


@pytest.mark.parametrize("dry_run", [False, True])
def test_words_with_more_tokens_than_predictions_are_reported(tmp_path, tokenizer, dry_run):
    words = ["".join(random.Random(n).choices("acgt", k=300)) for n in range(40)]
    (tmp_path / "text").write_text("\n".join(words))
    settings = PretrainingDataSettings(
        input_file=str(tmp_path / "text"),
        output_file=str(tmp_path / "records"),
        spm_model_file=tokenizer.files[0],
        sentence_loss="none",
        max_seq_length=48,
        num_workers=1,
        dry_run=dry_run,
    )
    for changes, expected in (
        ({}, True),
        ({"do_whole_word_mask": False}, False),
        ({"word_starts": "unicode"}, False),
        ({"masked_lm_prob": 0.0}, False),
    ):
        report = create_pretraining_data(replace(settings, **changes))
        found = [text for text in report.warnings() if "--nodo_whole_word_mask" in text]
        assert bool(found) == expected, changes
        if not dry_run and changes.keys() & {"do_whole_word_mask", "word_starts"}:
            assert report.counts["predictions"] > 0.12 * report.counts["tokens"]


def test_a_blank_line_after_every_sentence_is_reported(tmp_path, word_pieces):
    (tmp_path / "text").write_text("the road was long\n\nthe bridge fell\n\n" * 5)
    _, counts = create(str(tmp_path / "text"), tmp_path, word_pieces)
    one_line, same = CreationReport(SETTINGS, counts, 1).warnings()
    assert one_line.startswith("10 of 10 documents have only one line")
    assert same.startswith("The sentence labels of the records are all the same")
    settings = InstanceSettings(SegmentSettings(sentence_loss="none"))
    assert not list(CreationReport(settings, counts, 1).warnings())


@pytest.mark.parametrize("workers", [1, 2])
def test_unknown_pieces_are_counted_by_all_workers(tmp_path, word_pieces, workers):
    for n in range(4):
        (tmp_path / f"{n}").write_text("the road\nwas long\n\n" * 9 + "서울은 ✓\n도시\n" * n)
    files = [str(tmp_path / f"{n}") for n in range(4)]
    outputs = [str(tmp_path / "records")]
    counts = create_records(files, outputs, word_pieces, SETTINGS, workers, block_bytes=100)
    texts = [line for path in files for line in Path(path).read_text().split("\n")]
    ids = [i for row in word_pieces.encode_batch(texts) for i in row]
    assert counts["pieces"] == len(ids) == counts["text_tokens"]
    assert counts["unknown_pieces"] == ids.count(word_pieces.unk_id)
    report = CreationReport(SETTINGS, counts, 1, "words.txt")
    assert f"unknown_pieces={ids.count(word_pieces.unk_id) / len(ids):.2%}" in report.lines()[0]
    assert "vocabulary words.txt, most often '✓', '도', '서'" in next(report.warnings())
    sampled = sample_counts(cut_into_blocks(files, 100), word_pieces, workers)
    assert {name: counts[name] for name in sampled} == sampled


# Word starts

CHINESE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"我们喜欢北京。", "ab", "##c"]


def words_of(tokenizer: Tokenizer, line: str, *, has_icu: bool = True) -> list[str]:
    """Returns the words of a line, as joined tokens."""
    ids = tokenizer.encode(line)
    marked = WordStarts(tokenizer, has_icu).mark(Documents.from_segments([ids], [0, 1])).ids
    starts = marked < tokenizer.vocab_size
    np.testing.assert_array_equal(marked % (tokenizer.vocab_size + 1), ids)
    parts = np.split(np.array(tokenizer.convert_ids_to_tokens(ids)), np.flatnonzero(starts)[1:])
    return ["".join(part) for part in parts]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Đường GROẞE schön, ma", ["▁đường", "▁große", "▁schön", ",", "▁ma"]),
        ("má (x)a", ["▁má", "▁(", "x", ")", "a"]),
        ("東京日本語を食べる。", ["▁東京", "日本語", "を", "食べる", "。"]),
    ],
)
def test_words_of_sentencepiece(tmp_path, text, words):
    file = accents.write_model(tmp_path / "spiece.model")
    tokenizer = tokenizer_from_files(spm_model_file=file, keep_accents=True)
    assert words_of(tokenizer, text) == words


def test_words_of_chinese():
    tokenizer = WordPieceTokenizer(CHINESE)
    text, rest = "我们喜欢北京。abc我们龘北京", ["。", "ab##c"]
    words = ["我们", "喜欢", "北京", *rest, "我们", "[UNK]", "北京"]
    assert words_of(tokenizer, text) == words
    characters = [*"我们喜欢北京", *rest, *"我们", "[UNK]", *"北京"]
    assert words_of(tokenizer, text, has_icu=False) == characters


def test_records_with_words_of_several_characters(tmp_path):
    """All tokens of a word are masked, and the files do not depend on the number of processes."""
    text, tokenizer = tmp_path / "text.txt", WordPieceTokenizer(CHINESE)
    text.write_text("我们喜欢北京。我们喜欢。\n北京喜欢我们。\n\n" * 40, "utf-8")
    settings = replace(SETTINGS, word_starts="unicode", has_icu=True)
    made = []
    for n in (1, 2):
        options = {"num_workers": n, "block_bytes": 999}
        outputs, counts = create(str(text), tmp_path / str(n), tokenizer, settings, **options)
        made.append(content(outputs))
    assert made[0] == made[1]
    records = parse_batch(list(read_records(outputs[0])), SETTINGS.feature_specs)
    ids, starts = records["input_ids"].numpy(), records["token_boundary"].numpy()
    assert ids.max() < len(CHINESE)
    positions = records["masked_lm_positions"].numpy()
    masked = np.zeros_like(ids)
    np.put_along_axis(masked, positions, records["masked_lm_weights"].numpy() > 0, axis=1)
    inside = (starts[:, 1:] == 0) & (records["input_mask"].numpy()[:, 1:] > 0)
    assert inside.sum() > 200
    np.testing.assert_array_equal(masked[:, 1:][inside], masked[:, :-1][inside])
    report = CreationReport(settings, counts, 1.0)
    assert any("word_starts=unicode" in line for line in report.lines())
    assert not [line for line in report.warnings() if "icu4py" in line]
    without = replace(settings, has_icu=False)
    outputs, counts = create(str(text), tmp_path / "without", tokenizer, without)
    assert counts["unspaced_words"] == 40 * 16
    assert any("icu4py" in line for line in CreationReport(settings, counts, 1.0).warnings())


def test_default_word_starts():
    for given in ({}, {"keep_accents": True}, {"word_starts": "unicode"}):
        settings = PretrainingDataSettings(input_file="a", output_file="b", **given)
        assert settings.instances().word_starts == ("unicode" if given else "original")
