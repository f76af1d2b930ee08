"""What a sample of the text says of all of it, against what is then made."""

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from albert_tf.data import creation_sample
from albert_tf.data.corpus import cut_into_blocks, read_documents
from albert_tf.data.creation_sample import check_text, take_sample
from albert_tf.data.masking import MaskingSettings
from albert_tf.data.pretraining import PretrainingDataSettings
from albert_tf.data.pretraining_files import create_pretraining_data
from albert_tf.data.segments import NSP, SegmentSettings, pair_segments
from albert_tf.tokenization import Tokenizer, load_tokenizer

SETTINGS = PretrainingDataSettings(
    SegmentSettings(48), MaskingSettings(max_predictions_per_seq=9), dupe_factor=3, random_seed=7
)


@pytest.fixture(scope="module")
def tokenizer(golden: Path) -> Tokenizer:
    return load_tokenizer(vocab_file=str(golden / "tokenizer" / "vocab.txt"))


@pytest.fixture(scope="module")
def corpus(golden: Path) -> str:
    return str(golden / "pretraining_data" / "corpus.txt")


@pytest.fixture(scope="module")
def made(corpus, tokenizer, tmp_path_factory):
    """Report and size of what is really made."""
    folder = tmp_path_factory.mktemp("made")
    outputs = [str(folder / name) for name in "ab"]
    report = create_pretraining_data([corpus], outputs, tokenizer, SETTINGS, 1)
    return report.counts, sum(Path(path).stat().st_size for path in outputs)


def ticking(step):
    times = itertools.count(0.0, step)
    return lambda: next(times)


def test_all_of_a_small_text_is_counted_and_every_pass_made(corpus, tokenizer, made):
    counts, size = made
    sample = take_sample([corpus], tokenizer, SETTINGS, clock=ticking(0.0))
    assert sample.is_all
    for key in ("documents", "segments", "text_tokens"):
        assert sample.of_text(sample.counts[key]) == counts[key] > 0
    # One block, as when it is really made: every pass gives the same records.
    assert sample.instances(3) == counts["instances"]
    assert sample.of_instances(sample.record_bytes, 3) == size


def test_a_few_places_stand_for_the_rest(corpus, tokenizer, made, monkeypatch):
    monkeypatch.setattr(creation_sample, "_BLOCK_BYTES", 3000)
    counts, size = made
    # Four looks at the clock a block, and one at the end of it.
    sample = take_sample([corpus], tokenizer, SETTINGS, seconds=40, clock=ticking(1.0))
    assert 0.3 < sample.text_bytes / sample.corpus_bytes < 0.6
    for found, expected, tolerance in (
        (sample.of_text(sample.counts["documents"]), counts["documents"], 0.15),
        (sample.of_text(sample.counts["text_tokens"]), counts["text_tokens"], 0.05),
        (sample.instances(3), counts["instances"], 0.08),
        (sample.of_instances(sample.record_bytes, 3), size, 0.08),
    ):
        assert found == pytest.approx(expected, rel=tolerance)
    # Reading took a second a block, making another.
    share = sample.text_bytes / sample.corpus_bytes
    blocks = sample.read_seconds
    assert sample.make_seconds == blocks
    making = sample.of_instances(sample.make_seconds, 3)
    assert sample.seconds(passes=3, processes=2) == pytest.approx((blocks / share + making) / 2)


@pytest.mark.parametrize(
    ("loss", "pairs"), [("sop", "original"), ("sop", "adjacent"), ("none", "original")]
)
def test_the_average_over_lengths_is_that_of_many_passes(corpus, tokenizer, loss, pairs):
    """Of 512 positions a pass makes from 60 to hundreds of instances."""
    settings = SegmentSettings(512, 0.4, sentence_loss=loss, sentence_pairs=pairs)
    (block,) = cut_into_blocks([corpus])
    documents = read_documents(block, tokenizer)
    rng = random.Random(1)
    passes = [
        sum(1 for k in range(documents.count) for _ in pair_segments(documents, k, settings, rng))
        for _ in range(300)
    ]
    found = creation_sample.expected_instances(documents, settings)
    assert found == pytest.approx(sum(passes) / 300, rel=0.03)
    assert max(passes) > 1.1 * min(passes)


def test_warnings_are_those_of_real_blocks(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(creation_sample, "_BLOCK_BYTES", 500)
    path = tmp_path / "text"
    path.write_text("a b c d e f\n" * 200 + "\n" + "g h i\n" * 100)
    nsp = replace(SETTINGS, segments=SegmentSettings(48, sentence_loss=NSP))
    sample = take_sample([str(path)], tokenizer, nsp, clock=ticking(0.0))
    counts = sample.likely_counts(check_text([str(path)]).documents_cut)
    assert sample.counts["random_parts_of_only_document"] > 0
    assert (counts["documents"], counts["documents_cut"]) == (2, 0)
    assert counts["random_parts_of_only_document"] == 0
    path.write_text("a b c d e f\n" * 200)
    sample = take_sample([str(path)], tokenizer, nsp, clock=ticking(0.0))
    assert sample.likely_counts(5)["random_parts_of_only_document"] > 0
    assert sample.likely_counts(5)["documents_cut"] == 5


def test_text_is_checked_as_far_as_time_allows(tmp_path, monkeypatch):
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).write_text("words\n\n" * 700_000)
    Path(paths[1]).write_bytes(b"\xff\xfe" * 3_000_000)
    checked = check_text(paths, clock=ticking(10.0))
    assert 3_000_000 < checked.checked_bytes < checked.corpus_bytes == 10_900_000
    with pytest.raises(ValueError, match=r"/b is not UTF-8 text: byte 0"):
        check_text(paths)
    Path(paths[1]).write_text("\n \n")
    with pytest.raises(ValueError, match="There is no text in --input_file"):
        check_text(paths[1:])
