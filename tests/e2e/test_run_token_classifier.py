"""The command `run_token_classifier.py`: training, evaluation, prediction, and its files."""

import json
from pathlib import Path

import pytest

import albert_tf
from albert_tf import TokenClassificationSettings, TokenClassifier, run_token_classification
from albert_tf.token_classification.data import read_sentences
from tests.token_run import TokenRun

LABELS = ["O", "B-animal", "B-place", "I-animal", "I-place"]


def columns(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, golden):
    """Returns a trained run, its output and the result."""
    run = TokenRun(tmp_path_factory.mktemp("trained"), golden)
    run.result = run_token_classification(
        TokenClassificationSettings(
            **run.flags(
                do_train=True,
                do_eval=True,
                do_predict=True,
                train_step=150,
                save_checkpoints_steps=75,
                learning_rate=0.01,
                train_batch_size=16,
            )
        )
    )
    return run


@pytest.mark.slow
def test_trains_and_labels_the_test_set_in_its_format(trained):
    assert trained.result.step in (75, 150)
    assert trained.result.scores["f1"] > 0.9
    assert trained.result.scores.keys() >= {"f1_animal", "f1_place", "eval_accuracy", "eval_loss"}
    names = {path.name for path in trained.output.iterdir()}
    assert names >= {"confusion_matrix.png", "eval_results.txt", "model.ckpt-best.index"}
    description = json.loads((trained.output / "labels.json").read_text())
    assert (description["task_name"], description["labels"]) == ("tokens", LABELS)
    rows = columns(trained.output / "test_results.conll")
    assert [row[:2] for row in rows] == columns(trained.folder / "test.conll")
    answered = [row for row in rows if row]
    assert {len(row) for row in answered} == {3}
    assert sum(row[1] == row[2] for row in answered) > 0.95 * len(answered)


@pytest.mark.slow
def test_the_python_class_equals_the_command(trained):
    sentences = list(read_sentences(str(trained.folder / "test.conll")))
    found = TokenClassifier.load(trained.output)([sentence.words for sentence in sentences])
    rows = [row[2] for row in columns(trained.output / "test_results.conll") if row]
    assert [word.label for one in found for word in one.words] == rows[1:]
    model = albert_tf.load(trained.output / "model.ckpt-best")
    (entity,) = TokenClassifier(model)("It was on this mat.").entities
    assert (entity.type, entity.text, entity.start, entity.end) == ("place", "this mat", 10, 18)


def test_a_dry_run_runs_all_checks_and_writes_nothing(tmp_path, golden, caplog):
    caplog.set_level("INFO", logger="absl")
    run = TokenRun(tmp_path, golden)
    flags = run.flags(do_train=True, do_eval=True, do_predict=True, dry_run=True)
    flags |= {"class_weights": "O=0.5,B-place=2"}
    assert run_token_classification(TokenClassificationSettings(**flags)).history == []
    assert "60 sentences (train)" in caplog.text
    assert "scheme IOB2" in caplog.text
    assert "O=0.5, B-animal=1, B-place=2" in caplog.text
    assert not run.output.exists()


def test_words_outside_of_entities_need_a_label(tmp_path, golden):
    run = TokenRun(tmp_path, golden)
    path = tmp_path / "train.conll"
    path.write_text("Ada B-PER\nLovelace I-PER\nwas -\n\n" * 4)
    flags = run.flags(do_train=True, dry_run=True, train_file=str(path))
    with pytest.raises(ValueError, match=r"4 words have no label .* Use O outside"):
        run_token_classification(TokenClassificationSettings(**flags))
    path.write_text(path.read_text() + "was O\n")
    assert run_token_classification(TokenClassificationSettings(**flags)).history == []


def test_the_unit_of_words_is_used_and_stored(tmp_path, golden):
    run = TokenRun(tmp_path, golden)
    path = tmp_path / "train.jsonl"
    rows = [
        '{"text": "the cats", "entities": [[4, 7, "animal"]]}',
        '{"text": "a mat", "label": []}',
    ]
    path.write_text("\n".join(rows) + "\n")
    flags = run.flags(do_train=True, train_file=str(path), train_step=1, train_batch_size=2)
    flags = {name: value for name, value in flags.items() if name not in ("dev_file", "test_file")}
    with pytest.raises(ValueError, match="`word_unit` is 'character'"):
        run_token_classification(TokenClassificationSettings(**flags))
    run_token_classification(TokenClassificationSettings(**flags, word_unit="character"))
    output = str(tmp_path / "predicted.jsonl")
    again = {"output_dir": flags["output_dir"], "predict_file": str(path)}
    run_token_classification(TokenClassificationSettings(**again, predict_output_file=output))
    expected = TokenClassifier.load(flags["output_dir"])("the cats")
    assert [word.text for word in expected.words] == list("thecats")
    first = json.loads(Path(output).read_text().splitlines()[0])["predicted_entities"]
    assert [(e["start"], e["end"]) for e in first] == [(e.start, e.end) for e in expected.entities]


def test_numbers_instead_of_words_are_logged(tmp_path, golden, caplog):
    run = TokenRun(tmp_path, golden)
    path = tmp_path / "numbered.conll"
    path.write_text("id word O\n\n1 the O\n2 mat B-place\n\n1 a O\n2 dog B-animal\n")
    flags = run.flags(do_train=True, train_file=path, dry_run=True)
    with caplog.at_level("INFO", logger="absl"):
        run_token_classification(TokenClassificationSettings(**flags))
    assert f"Reading {path} as columns (`token_column`=0, `label_column`=-1)" in caplog.text
    assert "the words are numbers. Is `token_column`=0" in caplog.text


@pytest.mark.slow
def test_the_command_predicts_all_file_formats(trained, tmp_path):
    """Columns without labels, JSON lines, texts, a sentence of 10,000 words, right-to-left text."""
    only = dict.fromkeys(("train_file", "dev_file", "test_file", "max_seq_length"))
    long = ["the"] * 9999 + ["mat"]
    (tmp_path / "unlabelled.conll").write_text("".join(f"{word}\n" for word in [*long, "", "cat"]))
    rows = [{"id": 7, "tokens": ["", "the", "cat"]}, {"text": "חתול on this mat"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("unlabelled.conll", "rows.jsonl"):
        trained.must_work(
            **only, predict_file=tmp_path / name, predict_output_file=tmp_path / f"{name}.out"
        )
    found = columns(tmp_path / "unlabelled.conll.out")
    assert [row[:1] for row in found] == [*([word] for word in long), [], ["cat"]]
    assert {len(row) for row in found} == {2, 0}
    first, second = map(json.loads, (tmp_path / "rows.jsonl.out").read_text().splitlines())
    assert first["id"] == 7
    assert len(first["predicted_labels"]) == 3
    places = {e["label"]: (e["start"], e["end"]) for e in second["predicted_entities"]}
    assert places["place"] == (8, 16)
