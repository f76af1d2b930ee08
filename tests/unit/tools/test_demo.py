"""The parts of the demo that need no training; the rest is tests/e2e/test_demo.py."""

from pathlib import Path

import numpy as np
import pytest

from albert_tf.data.tfrecord import encode_examples, frame_records
from albert_tf.pretraining.instances import pretraining_feature_specs
from albert_tf.tools import demo
from albert_tf.tools.python_corpus import Paragraph


def test_baselines_count_masked_tokens_and_labels_only_where_there_are_any(tmp_path):
    specs = pretraining_feature_specs(7, 3)
    columns = {spec.name: np.zeros((5, spec.length), np.int64) for spec in specs}
    columns["masked_lm_ids"] = np.array([[9, 4, 4], [9, 6, 4], [9, 9, 4], [5, 5, 4], [6, 7, 8]])
    columns["masked_lm_weights"] = np.array(
        [[1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1]], np.float32
    )
    columns["next_sentence_labels"] = np.array([[1], [0], [1], [1], [0]])
    path = tmp_path / "records"
    path.write_bytes(b"".join(frame_records(encode_examples(columns, specs))))

    found = demo.baselines(str(path), max_seq_length=7, max_predictions_per_seq=3)
    assert (found.predictions, found.token_id) == (10, 9)
    np.testing.assert_allclose(found.masked_lm_accuracy, 4 / 10, rtol=1e-12, atol=0)
    np.testing.assert_allclose(found.sentence_order_accuracy, 3 / 5, rtol=1e-12, atol=0)


@pytest.fixture
def stopped(monkeypatch):
    """The demo, stopped at its first step."""

    def stop(*_):
        raise InterruptedError

    monkeypatch.setattr(demo, "write_corpus", stop)
    return lambda folder: demo.run_demo(str(folder), num_train_steps=3, vocab_size=90)


def test_a_directory_that_is_not_from_a_demo_is_refused_and_left_alone(tmp_path, stopped):
    mine = tmp_path / "model" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    for folder in (tmp_path, mine, "gs://bucket/demo"):
        with pytest.raises(ValueError, match="--output_dir"):
            stopped(folder)
    assert mine.read_text() == "mine"


def test_an_earlier_run_is_replaced(tmp_path, stopped):
    with pytest.raises(InterruptedError):
        stopped(tmp_path / "new")
    model = tmp_path / "new" / "pretraining" / "model.ckpt-3.index"
    model.parent.mkdir()
    model.touch()
    with pytest.raises(InterruptedError):
        stopped(tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["demo_settings.json"]


def test_the_answers_of_the_classifier_stand_beside_the_chapters(tmp_path, monkeypatch, capsys):
    dev = [
        Paragraph(text, chapter)
        for text, chapter in (("a", "mail"), ("b", "web"), ("c", "mail"), ("d", "files"))
    ]

    def run(command, **flags):
        assert command == "run_classifier"
        assert flags["albert_hub_module_handle"] == "mini"
        assert Path(flags["predict_file"]).read_text() == "a\nb\nd\n"
        flags["output_dir"].mkdir()
        results = "eval_accuracy = 0.625\nglobal_step = 5\n"
        Path(flags["output_dir"], "eval_results.txt").write_text(results)
        Path(flags["predict_output_file"]).write_text("mail\tm=0.75\nfiles\tm=0\nfiles\tm=0.1\n")

    (tmp_path / "chapters").mkdir()
    monkeypatch.setattr(demo, "write_chapters", lambda folder: ([], dev))
    monkeypatch.setattr(demo, "run", run)
    demo.classify_chapters(tmp_path, 5)
    lines = capsys.readouterr().out.splitlines()
    (accuracy,) = (line for line in lines if line.startswith("chapter accuracy"))
    assert [part for part in accuracy.split() if part.endswith("%")] == ["62.5%", "50.0%"]
    answers = [lines[lines.index(text) + 1].split() for text in "abd"]
    assert [(words[0].strip(","), words[-1]) for words in answers] == [
        ("mail", "mail"),
        ("files", "web"),
        ("files", "files"),
    ]
