from dataclasses import replace
from pathlib import Path

import pytest

from albert_tf.data.records import check_record_files
from albert_tf.data.tfrecord import count_records, read_records
from albert_tf.pretraining import create_records as pretraining_files
from albert_tf.pretraining.create_records import CreationReport, create_pretraining_data
from albert_tf.pretraining.instances import PretrainingDataSettings
from albert_tf.pretraining.masking import MaskingSettings
from albert_tf.pretraining.segments import SegmentSettings
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer

SETTINGS = PretrainingDataSettings(
    SegmentSettings(48), MaskingSettings(max_predictions_per_seq=9), dupe_factor=2, random_seed=7
)
OF_NEIGHBOURS = replace(SETTINGS, segments=SegmentSettings(48, sentence_pairs="adjacent"))


@pytest.fixture(scope="module")
def tokenizer(golden: Path) -> Tokenizer:
    return load_tokenizer(vocab_file=str(golden / "tokenizer" / "vocab.txt"))


@pytest.fixture(scope="module")
def corpus(golden: Path) -> str:
    return str(golden / "pretraining_data" / "corpus.txt")


def create(
    corpus: str,
    folder: Path,
    tokenizer: Tokenizer,
    settings: PretrainingDataSettings = SETTINGS,
    files: int = 3,
    **options: int,
) -> tuple[list[str], CreationReport]:
    outputs = [str(folder / f"{number}.tfrecord") for number in range(files)]
    options = {"num_workers": 1, "block_bytes": 7000} | options
    return outputs, create_pretraining_data([corpus], outputs, tokenizer, settings, **options)


def content(outputs: list[str]) -> list[bytes]:
    return [Path(output).read_bytes() for output in outputs]


def test_records_go_to_the_files_in_turn(corpus: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    outputs, report = create(corpus, tmp_path, tokenizer)
    sizes = [count_records([output]) for output in outputs]
    assert sum(sizes) == report.counts["instances"] > 600
    assert max(sizes) - min(sizes) <= 1
    check_record_files(outputs, SETTINGS.feature_specs)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0.tfrecord",
        "1.tfrecord",
        "2.tfrecord",
    ]


@pytest.mark.parametrize("settings", [SETTINGS, OF_NEIGHBOURS], ids=["original", "adjacent"])
def test_number_of_processes_changes_no_byte(
    settings: PretrainingDataSettings, corpus: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    made = []
    for n in (1, 2, 3):
        options = {"num_workers": n, "shuffle_bytes": 20_000}
        made.append(content(create(corpus, tmp_path / str(n), tokenizer, settings, **options)[0]))
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("settings", [SETTINGS, OF_NEIGHBOURS], ids=["original", "adjacent"])
def test_every_pass_is_there_and_different(
    settings: PretrainingDataSettings, corpus: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """The first pass over tokenized blocks is the same whether or not another one follows."""
    once = replace(settings, dupe_factor=1)
    (one,), _ = create(corpus, tmp_path / "a", tokenizer, once, files=1)
    (two,), _ = create(corpus, tmp_path / "b", tokenizer, settings, files=1)
    first, both = set(read_records(one)), set(read_records(two))
    assert first < both
    assert len(both) > 1.9 * len(first)


def test_small_chunks_are_shuffled_too(corpus: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    (all_at_once,), _ = create(corpus, tmp_path / "a", tokenizer, files=1)
    (chunks,), _ = create(corpus, tmp_path / "b", tokenizer, files=1, shuffle_bytes=9000)
    assert sorted(read_records(chunks)) == sorted(read_records(all_at_once))
    assert content([chunks]) != content([all_at_once])


def test_remote_paths_are_read_and_written(
    corpus: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """Through `tf.io.gfile`, for which file:// stands in for gs:// here."""
    local, _ = create(corpus, tmp_path / "a", tokenizer)
    remote = [f"file://{tmp_path}/b/{number}" for number in range(3)]
    create_pretraining_data([f"file://{corpus}"], remote, tokenizer, SETTINGS, 1, 7000)
    assert [(tmp_path / "b" / str(n)).read_bytes() for n in range(3)] == content(local)
    assert count_records(remote) == count_records(local)


def test_jobs_run_in_random_order() -> None:
    blocks = [pretraining_files.Block(()) for _ in range(9)]
    jobs = pretraining_files.shuffled_jobs(blocks, replace(SETTINGS, dupe_factor=5))
    assert {(job.pass_number, job.block_number) for job in jobs} == {
        (p, b) for p in range(5) for b in range(9)
    }
    assert len({job.pass_number for job in jobs[:9]}) > 2


def test_documents_are_counted_once(corpus: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    _, report = create(corpus, tmp_path, tokenizer)
    lines = Path(corpus).read_text("utf-8").split("\n")
    assert report.counts["documents"] == 60
    assert report.counts["segments"] == sum(bool(line.strip()) for line in lines)
    assert report.counts["text_tokens"] == sum(map(len, tokenizer.encode_batch(lines)))


def fails(message: str, inputs: list[str], outputs: list[str], tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=message):
        create_pretraining_data(inputs, outputs, tokenizer, SETTINGS, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "--input_file"),
        (b"\n\n \n", "--input_file"),
        ("\u200b\n".encode(), "--input_file contains no token"),
        (b"the road\n\x80\n", "text is not UTF-8 text: byte 9 .line 2"),
    ],
    ids=["empty", "blank", "without tokens", "binary"],
)
def test_bad_input_leaves_the_output_alone(
    text: bytes, message: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    (tmp_path / "text").write_bytes(text)
    (tmp_path / "o").write_text("before")
    outputs = [str(tmp_path / "o"), str(tmp_path / "new" / "file")]
    fails(message, [str(tmp_path / "text")], outputs, tokenizer)
    assert (tmp_path / "o").read_text() == "before"
    assert message.startswith("--input_file contains no token") or not (tmp_path / "new").exists()


def test_output_must_not_be_an_input(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "text").write_text("the road\n")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    for name in ("text", "link", "../" + tmp_path.name + "/text"):
        fails(
            "--output_file would overwrite the input",
            [str(tmp_path / "text")],
            [str(tmp_path / name)],
            tokenizer,
        )
    assert (tmp_path / "text").read_text() == "the road\n"


def test_outputs_must_be_files_of_their_own(
    corpus: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path = str(tmp_path / "o")
    fails("--output_file names .*o twice", [corpus], [path, path], tokenizer)
    fails(f"--output_file: {tmp_path}", [corpus], [str(tmp_path)], tokenizer)
    fails("--output_file names no file", [corpus], [], tokenizer)
    (tmp_path / "file").write_text("x")
    fails("file/o cannot be written", [corpus], [path, str(tmp_path / "file" / "o")], tokenizer)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_one_sentence_documents_and_a_single_document(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "many").write_text("the road\n\nwas long\n\nthe bridge\nfell\n")
    _, report = create(str(tmp_path / "many"), tmp_path / "a", tokenizer)
    assert report.counts["one_segment_documents"] == 2
    assert report.counts["random_parts"] >= 4
    assert not list(report.warnings())
    (tmp_path / "one").write_text("the road was long\n")
    _, report = create(str(tmp_path / "one"), tmp_path / "b", tokenizer)
    assert report.counts["random_parts_of_only_document"] == 2
    (warning,) = report.warnings()
    assert "2 of 2 random second parts come from the document of the first part" in warning


def test_one_sentence_documents_make_no_pair_of_neighbours(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    (tmp_path / "some").write_text("the road\n\nwas long\n\nthe bridge\nfell\n")
    (path,), report = create(
        str(tmp_path / "some"), tmp_path / "a", tokenizer, OF_NEIGHBOURS, files=1
    )
    assert report.counts["instances"] == count_records([path]) == 2
    assert (report.counts["random_parts"], report.counts["one_segment_documents"]) == (0, 2)
    assert any(line.startswith("2 of 3 documents have one line") for line in report.warnings())
    (tmp_path / "none").write_text("the road\n\nwas long\n")
    with pytest.raises(ValueError, match=r"--sentence_pairs=adjacent.*two lines.*none"):
        create(str(tmp_path / "none"), tmp_path / "b", tokenizer, OF_NEIGHBOURS)
    assert not list((tmp_path / "b").iterdir())
