"""What `run_config.json` says of the loss, and what it is compared with."""

import json
import logging

import pytest

from albert_tf.pretraining.task import (
    SENTENCE_LOSS_KEY,
    check_continued_loss,
    trained_sentence_loss,
    warn_of_another_loss,
)
from albert_tf.training.run_log import RunLog


@pytest.fixture
def directory(tmp_path):
    log = RunLog(str(tmp_path), total_steps=3)
    log.write_config({"model": {"vocab_size": 7}, SENTENCE_LOSS_KEY: "nsp"})
    log.close()
    return str(tmp_path)


def test_is_what_the_last_start_was_given(directory):
    assert trained_sentence_loss(directory) == "nsp"


@pytest.mark.parametrize("content", [None, {}, {"config": {"model": 1}}, {"config": "nsp"}])
def test_is_unknown_without_a_run_of_pretraining(tmp_path, content):
    if content is not None:
        (tmp_path / "run_config.json").write_text(json.dumps(content))
    assert trained_sentence_loss(str(tmp_path)) is None
    check_continued_loss(str(tmp_path), "none")


def test_a_run_goes_on_with_its_own_loss_only(directory):
    check_continued_loss(directory, "nsp")
    with pytest.raises(ValueError, match=r"--sentence_loss=nsp, which cannot .*=sop.*--output_dir"):
        check_continued_loss(directory, "sop")


def test_evaluation_with_another_loss_is_told(directory, caplog):
    with caplog.at_level(logging.WARNING):
        warn_of_another_loss(f"{directory}/model.ckpt-3", "nsp")
        assert not caplog.messages
        warn_of_another_loss(f"{directory}/model.ckpt-3", "none")
    (message,) = caplog.messages
    assert (
        "was trained with --sentence_loss=nsp and is evaluated with --sentence_loss=none" in message
    )
