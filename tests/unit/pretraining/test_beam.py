"""Records created with Beam equal those of `create_records`."""

import dataclasses
from pathlib import Path

import pytest

from albert_tf.pretraining.create_data import create_pretraining_data
from albert_tf.pretraining.create_records import create_records, shuffled
from albert_tf.pretraining.instances import InstanceSettings, SegmentSettings
from albert_tf.pretraining.masking import MaskingSettings
from albert_tf.pretraining.settings import PretrainingDataSettings
from albert_tf.tokenization.base import Tokenizer
from tests.lazily import Lazily
from tests.usual import usual

beam = Lazily("albert_tf.pretraining.beam")

ROOT = Path(__file__).parents[3]
SETTINGS = InstanceSettings(
    SegmentSettings(48), MaskingSettings(max_predictions_per_seq=9), dupe_factor=2, random_seed=7
)
BLOCK_BYTES, CHUNK_BYTES = 6000, 90_000


@pytest.fixture(scope="module")
def inputs(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The corpus in three unequal files and an empty one."""
    text = Path(corpus).read_text("utf-8")
    folder = tmp_path_factory.mktemp("text")
    cuts = [0, 9001, 9001, 30_005, len(text)]
    paths = [folder / f"{number}.txt" for number in range(4)]
    for path, begin, end in zip(paths, cuts, cuts[1:], strict=False):
        path.write_text(text[begin:end], "utf-8")
    return list(map(str, paths))


def outputs(folder: Path, number: int) -> list[str]:
    return [str(folder / f"{k}.tfrecord") for k in range(number)]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def create_local(inputs: list[str], folder: Path, word_pieces: Tokenizer, files: int):
    return create_records(
        inputs, outputs(folder, files), word_pieces, SETTINGS, 1, BLOCK_BYTES, CHUNK_BYTES
    )


RUNS = {
    "in_memory": "DirectRunner",
    "processes": "DirectRunner --direct_running_mode=multi_processing --direct_num_workers=2",
    "job_server": "PortableRunner --job_endpoint=embed --environment_type=LOOPBACK",
}


@pytest.mark.parametrize("name", usual(RUNS, "in_memory"))
def test_files_and_counts_equal_those_of_create_records(
    name, inputs, tmp_path, word_pieces, monkeypatch
):
    runner, *options = RUNS[name].split()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the processes of workers
    local = create_local(inputs, tmp_path / "local", word_pieces, 3)
    sizes = BLOCK_BYTES, CHUNK_BYTES
    counts = beam.create_records(
        runner, options, inputs, outputs(tmp_path / "beam", 3), word_pieces, SETTINGS, *sizes
    )
    assert content(tmp_path / "beam") == content(tmp_path / "local")
    assert counts == local
    made = [len(data) for data in content(tmp_path / "local").values()]
    assert sum(made) > 2 * CHUNK_BYTES  # so that every file is joined from parts


def test_files_without_records_and_several_directories(tmp_path, word_pieces):
    (tmp_path / "text").write_text("the road was long\n\nthe bridge\nfell\n")
    text = [str(tmp_path / "text")]
    create_local(text, tmp_path / "local", word_pieces, 9)
    local = content(tmp_path / "local")
    assert local["8.tfrecord"] == b"" != local["0.tfrecord"]
    remote = [f"file://{tmp_path}/{k % 2}/{k}.tfrecord" for k in range(9)]
    beam.create_records("directrunner", (), [f"file://{text[0]}"], remote, word_pieces, SETTINGS)
    assert content(tmp_path / "0") | content(tmp_path / "1") == local


def test_repeated_steps(tmp_path):
    scratch = [str(tmp_path / "scratch" / name) for name in "ab"]
    jobs = [[b"a", b"b"], [b"c"], [b"d", b"e", b"f", b"g", b"h"]]
    chunks = beam._plan_chunks(map(beam._measure, enumerate(jobs)), shuffle_bytes=3)
    assert chunks == ([0, 0, 1], [0, 3, 8])
    gathered = (0, [(1, jobs[1]), (0, jobs[0])]), (1, [(2, jobs[2])])
    for _ in range(2):
        parts = [
            part for chunk in gathered for part in beam._write_parts(chunk, chunks, 5, scratch)
        ]
    expected = list(shuffled(jobs, 3, seed=5))
    for number, name in enumerate("ab"):
        names = [path for file, path in reversed(parts) if file == number]
        for _ in range(2):
            whole = beam._join((number, names), scratch)
        for _ in range(2):
            beam._publish(whole, [str(tmp_path / "a"), str(tmp_path / "b")])
        assert (tmp_path / name).read_bytes() == b"".join(expected[number::2])
    with pytest.raises(ValueError, match="is not on this worker"):
        beam._publish((0, str(tmp_path / "gone")), [str(tmp_path / "c")])


@pytest.mark.parametrize(
    ("runner", "options", "text", "message"),
    [
        ("DirectRunner", (), b"the road\n\x80\n", "text is not UTF-8 text: byte 9 .line 2"),
        ("DirectRunner", ("--direct_num_worker=2",), b"the", "no option --direct_num_worker"),
        ("no.such.Runner", (), b"the", "`runner`=no.such.Runner: No module named 'no'"),
    ],
)
def test_errors_leave_the_output_unchanged(runner, options, text, message, tmp_path, word_pieces):
    (tmp_path / "text").write_bytes(text)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "0").write_text("before")
    inputs, output = [str(tmp_path / "text")], [str(tmp_path / "out" / "0")]
    with pytest.raises(ValueError, match=message) as error:
        beam.create_records(runner, options, inputs, output, word_pieces, SETTINGS)
    assert "\n" not in str(error.value)
    assert content(tmp_path / "out") == {"0": b"before"}
    with pytest.raises(ValueError, match="`output_file` would overwrite the input"):
        beam.create_records(runner, options, inputs, inputs, word_pieces, SETTINGS)


GCP = "--region=us-east1 --project=my-project --temp_location=gs://my-bucket/t"


@pytest.mark.parametrize(
    ("runner", "options", "message"),
    [
        ("DataflowRunner", "--region=us", "temp_location.*Missing required option: proj"),
        ("DataflowRunner", GCP, r"No module named .*apache-beam\[gcp\]"),
        ("DirectRunner", "--direct_num_workers=two", "invalid: argument .*'two'$"),
        ("PortableRunner", "--job_endpoint=embed", "Docker is not installed"),
    ],
)
def test_missing_options_and_programs_are_one_line(
    runner, options, message, tmp_path, monkeypatch, capfd
):
    """The dry run finds them too."""
    monkeypatch.setenv("PATH", "")
    (tmp_path / "text").write_text("the road\n")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    settings = PretrainingDataSettings(
        input_file=str(tmp_path / "text"),
        output_file=str(tmp_path / "out"),
        vocab_file=str(tmp_path / "vocab.txt"),
        runner=runner,
        beam_options=options.split(),
    )
    for is_dry in (True, False):
        with pytest.raises(ValueError, match=f"^[^\n]*{message}") as error:
            create_pretraining_data(dataclasses.replace(settings, dry_run=is_dry))
        assert "\n" not in str(error.value)
    assert "usage" not in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
