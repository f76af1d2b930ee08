"""Tests for `labels.json`, and for its comparison with the task of a command."""

import json

import numpy as np
import pytest

from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.strict_json import JsonError
from albert_tf.finetuning.flow import check_head_in
from albert_tf.finetuning.job import fresh_head
from albert_tf.labels import Labels
from albert_tf.training.training_directory import TrainingDirectory

THREE = Labels(("contradiction", "entailment", "neutral"))
MNLI = StoredTask("mnli", THREE, is_pair=True)
OWN = StoredTask("custom", Labels(("ja", "nö", "weiß nicht")), False, {"text_a_column": "Text"}, 64)
SQUAD = StoredTask(
    "squad2.0", max_seq_length=48, settings={"doc_stride": 11, "null_score_diff_threshold": -0.5}
)
UNKNOWN = StoredTask("custom", THREE, is_pair=None)  # of another library


def test_written_tasks_are_read(tmp_path):
    assert StoredTask.read(str(tmp_path)) is None
    scaled = StoredTask("custom", Labels(), False, scale=(-0.1, 1e-6))
    for task in (OWN, MNLI, SQUAD, UNKNOWN, scaled, StoredTask("sts-b", Labels(), True)):
        task.write(str(tmp_path))
        assert StoredTask.read(str(tmp_path)) == task
    assert json.loads((tmp_path / "labels.json").read_text())["regression"] is True
    assert SQUAD.to_dict().keys() == {"task_name", "settings", "max_seq_length"}


WHOLE = {"task_name": "mnli", "labels": ["a", "b"], "pairs": True}
DAMAGED = [
    ({"labels": ["a", 1]}, "labels[1]"),
    ({"pairs": 1}, "pairs"),
    ({"regression": False, "labels": []}, "regression"),
    ({"columns": {"label_column": 3}}, "columns.label_column"),
    ({"mean": 1.0, "deviation": 0}, "deviation"),
    ({"max_seq_length": "48"}, "max_seq_length"),
    ({"task_name": "squad2.0"}, "settings"),
    ({"task_name": "race", "settings": {"max_qa_length": "17"}}, "settings.max_qa_length"),
    (
        {"task_name": "squad2.0", "settings": {"null_score_diff_threshold": 10**400}},
        "settings.null_score_diff_threshold",
    ),
]


@pytest.mark.parametrize(("damage", "key"), DAMAGED)
def test_wrong_values_are_rejected(tmp_path, damage, key):
    path = tmp_path / "labels.json"
    path.write_text(json.dumps({**WHOLE, **damage}))
    with pytest.raises(JsonError) as raised:
        StoredTask.read(str(tmp_path))
    assert str(raised.value).startswith(f"{str(path)!r}: {key} ")


def test_duplicate_labels_are_rejected(tmp_path):
    (tmp_path / "labels.json").write_text(json.dumps({**WHOLE, "labels": ["a", "a"]}))
    with pytest.raises(ValueError, match=r"labels\.json'"):
        StoredTask.read(str(tmp_path))


def test_whole_numbers_can_be_floats(tmp_path):
    settings = {"doc_stride": 128.0, "null_score_diff_threshold": -2.0}
    content = {"task_name": "squad2.0", "max_seq_length": 384.0, "settings": settings}
    (tmp_path / "labels.json").write_text(json.dumps(content))
    task = StoredTask.read(str(tmp_path))
    assert task == StoredTask("squad2.0", max_seq_length=384, settings=settings)
    assert isinstance(task.settings["doc_stride"], int)
    assert isinstance(task.max_seq_length, int)


def test_interchangeable_and_unknown_tasks_are_accepted():
    for name in ("mnli", "mismnli", "ax"):
        MNLI.check_name(name, "out", is_training=False)
        MNLI.check_answers(StoredTask(name, THREE, True), "out")
    with pytest.raises(ValueError, match="task is mnli in out, but mismnli in this command"):
        MNLI.check_name("mismnli", "out", is_training=True)
    for is_pair in (True, False):
        UNKNOWN.check_answers(StoredTask("custom", THREE, is_pair), "out")


def test_head_of_another_task_is_not_loaded(tmp_path):
    checkpoint = str(tmp_path / "model.ckpt-7")
    head = {"output_weights": np.ones((3, 5)), "output_bias": np.ones(3)}
    write_checkpoint(checkpoint, {**head, "bert/x": np.ones(2)}, global_step=7)
    assert fresh_head(OWN, open_model(checkpoint)) == {}  # the task is unknown
    MNLI.write(str(tmp_path))
    assert fresh_head(MNLI, open_model(checkpoint)) == {}
    reasons = fresh_head(OWN, open_model(checkpoint))
    assert reasons.keys() == head.keys()
    assert "task is mnli in " in reasons["output_bias"]
    other_labels = StoredTask("mnli", Labels(THREE.names[::-1]), True)
    assert len(fresh_head(other_labels, open_model(checkpoint))) == 2


HEADS = {
    "squad1.1": {"cls/squad/output_weights": np.zeros([2, 5], "f")},
    "squad2.0": {"answer_class/dense_1/kernel": np.zeros([5, 1], "f")},
    "race": {"output_weights": np.zeros([1, 5], "f")},
    "mnli": {"output_weights": np.zeros([3, 5], "f")},
}


@pytest.mark.parametrize("trained", HEADS)
def test_heads_of_other_tasks_are_rejected(tmp_path, trained):
    write_checkpoint(str(tmp_path / "model.ckpt-best"), HEADS[trained], global_step=3)
    directory = TrainingDirectory(str(tmp_path))
    tasks = {name: StoredTask(name) for name in HEADS} | {"mnli": MNLI}
    check_head_in(directory, tasks.pop(trained))
    for task in tasks.values():
        with pytest.raises(ValueError, match=r"head is .* in the task .*ckpt-best"):
            check_head_in(directory, task)
