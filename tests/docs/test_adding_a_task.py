"""The task that docs/adding_a_task.md makes: its code, as it stands there."""

import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.losses import means
from tests.documentation import import_module, write_module
from tests.programs import run_program
from tests.small_model import small_config

WORDS = [chr(ord("a") + i) * length for i in range(8) for length in (2, 3)]
TAGS = ("NAME", "other")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return write_module("adding_a_task.md", tmp_path_factory.mktemp("program") / "tagging.py")


@pytest.fixture(scope="module")
def tagging(program):
    yield import_module(program, "tagging")
    del sys.modules["tagging"]


class Letters:
    """A tokenizer of one token for two letters, and one for the third."""

    cls_id, sep_id = 1, 2

    def encode(self, word):
        return [3 + ord(word[0]) - ord("a"), *([12] if len(word) == 3 else [])]


def sentences(count, seed):
    """Words of the first half of the letters are names."""
    random = np.random.default_rng(seed)
    rows = [random.choice(WORDS, random.integers(2, 7)) for _ in range(count)]
    return [[(word, TAGS[word[0] > "d"]) for word in row] for row in rows]


def write_sentences(path, rows):
    path.write_text("\n\n".join("\n".join("\t".join(pair) for pair in row) for row in rows) + "\n")
    return path


def test_files_become_sequences_with_a_tag_at_the_first_token_of_a_word(tagging, tmp_path):
    rows = [[("aa", "other"), ("bbb", "NAME")], [("ccc", "NAME"), ("dd", "other"), ("ee", "other")]]
    read = tagging.read_sentences(write_sentences(tmp_path / "rows.tsv", rows))
    assert [list(zip(s.words, s.tags, strict=True)) for s in read] == rows

    sequences, tag_ids = tagging.tag_features(read, list(TAGS), Letters(), 6)
    batch = sequences.padded(np.arange(2), 6)
    np.testing.assert_array_equal(batch["input_ids"], [[1, 3, 4, 12, 2, 0], [1, 5, 12, 6, 7, 2]])
    np.testing.assert_array_equal(tag_ids, [[-1, 1, 0, -1, -1, -1], [-1, 0, -1, 1, 1, -1]])
    shorter, tag_ids = tagging.tag_features(read, list(TAGS), Letters(), 5)
    assert list(shorter.lengths) == [5, 5]
    np.testing.assert_array_equal(tag_ids[1], [-1, 0, -1, 1, -1])


def test_what_is_wrong_with_a_file_is_said_with_its_place(tagging, tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("aa\tNAME\nbb NAME\n")
    with pytest.raises(ValueError, match=r"rows.tsv, line 2: .*Received: 'bb NAME'"):
        tagging.read_sentences(path)
    path.write_text("aa\tNAM\n")
    with pytest.raises(ValueError, match="'NAM' is none of the tags of --train_file"):
        tagging.tag_features(tagging.read_sentences(path), list(TAGS), Letters(), 6)


def test_padding_and_untagged_tokens_have_no_part_in_the_loss(tagging):
    config = small_config(num_hidden_layers=1, num_hidden_groups=1, inner_group_num=1)
    task = tagging.TaggingTask(config, list(TAGS), None, max_seq_length=6)
    tag_ids = tf.constant([[-1, 1, 0, -1, -1, -1], [-1, 0, -1, 1, 1, -1], [-1, 0, 0, 0, 0, -1]])
    features = {"tag_ids": tag_ids, "example_weights": tf.constant([1.0, 1.0, 0.0])}
    logits = np.zeros([3, 5, 2], np.float32)
    logits[0, 1, 1], logits[0, 2, 1] = 2.0, 1.0
    losses = task.losses({"logits": tf.constant(logits)}, features)
    assert float(task.loss_weights(features)["loss"]) == float(losses["loss"].weight) == 5
    expected = [np.log1p(np.exp(-2)), np.log1p(np.e), *3 * [np.log(2)]]
    np.testing.assert_allclose(losses["loss"].sum, np.sum(expected), rtol=1e-5, atol=0)
    np.testing.assert_allclose(task.total_loss(losses), np.mean(expected), rtol=1e-5, atol=0)
    scores = means([task.metrics({"logits": tf.constant(logits)}, features)])
    assert scores == {"accuracy": pytest.approx(2 / 5)}  # ties go to tag 0


@pytest.mark.slow
def test_the_program_learns_to_tag(program, tmp_path):
    train = write_sentences(tmp_path / "train.tsv", sentences(200, seed=1))
    dev = write_sentences(tmp_path / "dev.tsv", sentences(40, seed=2))
    config = small_config(vocab_size=26 + 5, num_hidden_layers=1, num_hidden_groups=1)
    config.to_json_file(str(tmp_path / "albert_config.json"))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    vocabulary += [f"##{letter}" for letter in "abcdefgh"]
    vocabulary += [f"[unused{i}]" for i in range(config.vocab_size - len(vocabulary))]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    flags = {
        "train_file": train,
        "dev_file": dev,
        "output_dir": tmp_path / "out",
        "do_train": True,
        "do_eval": True,
        "albert_config_file": tmp_path / "albert_config.json",
        "vocab_file": tmp_path / "vocab.txt",
        "max_seq_length": 16,
        "train_step": 60,
        "warmup_step": 5,
        "learning_rate": 0.01,
        "train_batch_size": 16,
        "save_checkpoints_steps": 30,
    }
    result = run_program(str(program), tmp_path, flags)
    assert result.code == 0, result.output
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    evaluations = [record for record in records if record["phase"] == "eval"]
    assert [record["step"] for record in evaluations] == [30, 60]
    assert evaluations[-1]["f1_macro"] > 0.9
    assert (tmp_path / "out" / "model.ckpt-best.index").exists()

    again = run_program(str(program), tmp_path, flags | {"train_step": 90})
    assert again.code == 0, again.output
    assert "model.ckpt-60" in again.output
