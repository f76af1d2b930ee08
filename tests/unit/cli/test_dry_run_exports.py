"""`--dry_run` of conversions and exports: all is checked and told, nothing is written."""

import tarfile
import tempfile

import pytest

from albert_tf.checkpoints.formats import FORMAT_NAMES, format_module
from albert_tf.checkpoints.original import original_names, write_checkpoint
from albert_tf.cli import convert_checkpoint, export_checkpoints, export_litert, export_to_tfhub
from albert_tf.loading import read_contents
from albert_tf.models import AlbertForPretraining
from tests.dry_runs import blocks, run_here, tree
from tests.small_model import small_config

DRY = {"dry_run": True}
WITH_GRAPHS = ("tf1_hub", "tf2_hub")  # which take seconds to write


@pytest.fixture
def release(golden):
    return golden / "hub" / "albert_directory"


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """Whatever a command keeps anywhere lies below `tmp_path`."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("ALBERT_TF_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n in WITH_GRAPHS else []) for n in FORMAT_NAMES],
)
def test_a_conversion_names_what_the_target_cannot_hold(name, release, tmp_path, capsys):
    before = tree(tmp_path)
    run_here(
        convert_checkpoint,
        {"model": release, "format": name, "output_dir": tmp_path / "a" / "b", **DRY},
    )
    assert tree(tmp_path) == before
    printed = capsys.readouterr().out
    plan = blocks(printed)
    assert plan["Source"]["parameters"] == "14,586"
    assert plan["Source"]["heads"] == "masked LM, sentence order"
    contents, _ = read_contents(str(release))
    left_out = format_module(name).write(str(tmp_path), contents)
    assert plan["Target"]["not held"] == (", ".join(left_out) or "nothing")
    assert f"left out, {name} cannot hold it: {len(left_out)}\n" in printed


def test_what_a_format_cannot_hold_at_all_is_refused(tmp_path):
    config = small_config(parameter_sharing="attention", num_hidden_groups=1, inner_group_num=1)
    write_checkpoint(str(tmp_path / "model.ckpt"), original_names(AlbertForPretraining(config)), 0)
    config.to_json_file(str(tmp_path / "albert_config.json"))
    values = {"model": tmp_path, "format": "huggingface", "output_dir": tmp_path / "out", **DRY}
    before = tree(tmp_path)
    with pytest.raises(ValueError, match="has no form in Hugging Face's format"):
        run_here(convert_checkpoint, values)
    assert tree(tmp_path) == before


def test_a_place_that_cannot_be_written_is_refused_as_by_the_real_run(release, tmp_path):
    (tmp_path / "file").write_text("in the way")
    values = {"model": release, "format": "original", "output_dir": tmp_path / "file" / "out"}
    messages = []
    for more in ({}, DRY):
        with pytest.raises(OSError, match=r"--output_dir: .*file/out") as raised:
            run_here(convert_checkpoint, {**values, **more})
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    with pytest.raises(OSError, match=r"--export_path: .*"):
        run_here(
            export_checkpoints,
            {"albert_directory": release, "export_path": tmp_path / "file" / "model.ckpt", **DRY},
        )
    with pytest.raises(ValueError, match=r"--output_file: .* cannot be written"):
        run_here(
            export_litert, {"model": release, "output_file": tmp_path / "file" / "a.tflite", **DRY}
        )


def test_a_tar_file_is_not_unpacked_into_the_cache(release, tmp_path, capsys):
    path = tmp_path / "released.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(release, "albert")
    values = {"model": path, "format": "original", "output_dir": tmp_path / "out", **DRY}
    before = tree(tmp_path)
    run_here(convert_checkpoint, values)
    after = tree(tmp_path)
    assert after.keys() == before.keys()
    assert {name: file for name, (_, file) in after.items()} == {
        name: file for name, (_, file) in before.items()
    }
    assert blocks(capsys.readouterr().out)["Source"]["parameters"] == "14,586"


def test_what_the_cache_holds_is_read_there(release, tmp_path, monkeypatch):
    path = tmp_path / "released.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(release, "albert")
    values = {"model": path, "format": "original", "output_dir": tmp_path / "out", **DRY}
    read_contents(str(path))

    def never(*_):
        raise AssertionError("unpacked once more")

    monkeypatch.setattr("albert_tf.checkpoints.archives._extract", never)
    run_here(convert_checkpoint, values)


def test_an_export_for_the_hub_tells_of_its_preprocessor(release, tmp_path, capsys):
    values = {
        "albert_directory": release,
        "export_path": tmp_path / "encoder",
        "preprocessor_path": tmp_path / "preprocessor",
        **DRY,
    }
    before = tree(tmp_path)
    run_here(export_to_tfhub, values)
    assert tree(tmp_path) == before
    plan = blocks(capsys.readouterr().out)
    assert plan["Target"]["format"] == "tf2_hub"
    assert plan["Preprocessor"]["--preprocessor_path"] == str(tmp_path / "preprocessor")
    with pytest.raises(ValueError, match="must be different directories"):
        run_here(export_to_tfhub, {**values, "preprocessor_path": tmp_path / "encoder" / "in"})


def test_weights_alone_are_counted(release, tmp_path, capsys):
    values = {"albert_directory": release, "export_path": tmp_path / "out" / "model.ckpt"}
    before = tree(tmp_path)
    run_here(export_checkpoints, {**values, **DRY})
    assert tree(tmp_path) == before
    target = blocks(capsys.readouterr().out)["Target"]
    run_here(export_checkpoints, values)
    contents, _ = read_contents(
        str(tmp_path / "out" / "model.ckpt"), albert_config_file=str(release / "albert_config.json")
    )
    assert target["variables"] == str(len(contents.weights))
    assert target["not in the source"] == "nothing"


def test_a_litert_file_is_planned(release, tmp_path, capsys):
    values = {"model": release, "output_file": tmp_path / "a" / "model.tflite", **DRY}
    before = tree(tmp_path)
    run_here(export_litert, {**values, "quantization": "int8"})
    assert tree(tmp_path) == before
    target = blocks(capsys.readouterr().out)["Target"]
    assert target["made of"] == "AlbertEncoder"
    assert target["quantization"] == "int8"
    with pytest.raises(ValueError, match="--max_seq_length"):
        run_here(export_litert, {**values, "max_seq_length": 100_000})
