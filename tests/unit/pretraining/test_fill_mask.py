"""Predictions at [MASK] of a model with known predictions."""

import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.pretraining.fill_mask import FillMask
from albert_tf.tokenization.word_piece import WordPieceTokenizer
from tests import text_models
from tests.text_models import assert_rejected

CONFIG = text_models.CONFIG.replace(max_position_embeddings=16)


@pytest.fixture(scope="module", params=[True, False], ids=["two heads", "one head"])
def directory(request, tmp_path_factory, tokenizer) -> str:
    """A model that always predicts the tokens 100 and 200."""
    path = str(tmp_path_factory.mktemp("model"))
    ModelDirectory(path, CONFIG, tokenizer).write()
    model = AlbertForPretraining(CONFIG, has_sentence_order_head=request.param)
    variables = {name: variable.numpy() for name, variable in original_names(model).items()}
    variables["cls/predictions/output_bias"] = np.full(1000, -20.0, np.float32)
    variables["cls/predictions/output_bias"][[100, 200]] = np.log([0.75, 0.25])
    variables["bert/embeddings/word_embeddings"] *= 0
    write_checkpoint(f"{path}/model.ckpt-best", variables, global_step=1)
    return path


@pytest.fixture(scope="module")
def filler(directory):
    return FillMask.load(directory)


def test_each_mask_gets_its_most_probable_tokens(filler, tokenizer):
    (blanks,) = filler(["The [MASK] was 9, and [MASK]."], top_k=3)
    assert len(blanks) == 2
    for candidates in blanks:
        assert [c.piece for c in candidates[:2]] == [tokenizer.tokens[100], tokenizer.tokens[200]]
        np.testing.assert_allclose(
            [c.probability for c in candidates], [0.75, 0.25, 0.0], rtol=1e-5, atol=1e-5
        )


def test_embeddings_without_tokens_are_not_candidates(tokenizer):
    model = AlbertForPretraining(CONFIG.replace(vocab_size=1003))
    variables = original_names(model)
    variables["bert/embeddings/word_embeddings"].assign(np.zeros((1003, 8)))
    bias = np.full(1003, -20.0)
    bias[[100, 200, 1002]] = np.log([0.15, 0.05, 0.8])
    variables["cls/predictions/output_bias"].assign(bias)
    ((candidates,),) = FillMask(model, tokenizer)(["The [MASK]."], top_k=2000)
    assert len(candidates) == 1000
    assert [c.piece for c in candidates[:2]] == [tokenizer.tokens[100], tokenizer.tokens[200]]
    found = [c.probability for c in candidates[:2]]
    np.testing.assert_allclose(found, [0.15, 0.05], rtol=1e-4)


PIECES = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "法", "by", "."]


@pytest.mark.parametrize(
    ("text", "pieces", "tokens", "sequence"),
    [
        ("The film [MASK] Him.", ["▁was"], ["was"], "The film was Him."),
        ("The film[MASK]", ["▁was"], ["was"], "The film was"),
        ("(The [MASK]) [MASK]", ["s", "▁was"], ["s", "was"], "(Thes) was"),
        ("([MASK]) [MASK]", ["▁was", "."], ["was", "."], "(was)."),
        ("Is [MASK]", ["▁"], ["▁"], "Is"),
        ("[MASK] it", ["play"], ["play"], "play it"),
        ("[MASK] [MASK] it", ["play", "##ing"], ["play", "ing"], "playing it"),
        ("巴黎是[MASK]国[MASK] [MASK]", ["法", ".", "by"], ["法", ".", "by"], "巴黎是法国. by"),
    ],
)
def test_filled_texts(tokenizer, text, pieces, tokens, sequence):
    if not {*pieces} <= {*tokenizer.tokens}:
        tokenizer = WordPieceTokenizer(PIECES)
    config = CONFIG.replace(vocab_size=len(tokenizer))
    ids = tokenizer.convert_tokens_to_ids(pieces)
    filler = FillMask(AlbertForPretraining(config), tokenizer)
    filler._compute = lambda inputs: {"masked_lm_logits": tf.one_hot([ids], len(tokenizer)) * 9}
    ((*blanks,),) = filler([text], top_k=2)
    assert [blank[0].piece for blank in blanks] == pieces
    assert [blank[0].token for blank in blanks] == tokens
    assert {blank[0].sequence for blank in blanks} == {sequence}
    assert all(blank[1].sequence != sequence for blank in blanks)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The [MASK] the", ["▁the", "[MASK]", "▁the"]),
        ("the[MASK]", ["▁the", "[MASK]"]),
        ("[MASK].", ["[MASK]", "."]),  # not "▁", "."
        ("[MASK] .", ["[MASK]", "▁", "."]),
        ("([MASK]) the", ["▁", "(", "[MASK]", ")", "▁the"]),
        ("[MASK][MASK]", ["[MASK]", "[MASK]"]),
        ("[MASK]\u0301", ["[MASK]"]),  # the combining mark is removed
    ],
)
def test_text_around_a_mask(filler, text, tokens):
    (ids,) = filler._encode([text])
    assert filler.tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", *tokens, "[SEP]"]


def test_predictions_depend_on_the_position(directory):
    filler = FillMask.load(directory)
    for variable in filler.model.trainable_variables:
        variable.assign(np.random.default_rng(3).normal(size=variable.shape, scale=0.5))
    ((first, second),) = filler(["[MASK] the light the [MASK]"], top_k=1)
    assert first[0] != second[0]


def test_invalid_inputs(filler, tokenizer, tmp_path):
    for variable in (nan := AlbertForPretraining(CONFIG)).trainable_variables:
        variable.assign(np.full(variable.shape, np.nan))
    CONFIG.to_json_file(str(tmp_path / "albert_config.json"))
    assert_rejected([
        (lambda: filler(["[MASK]", "none"]), ValueError, r"\[MASK\].*texts\[1\]='none'"),
        (lambda: filler(["the " * 15 + "[MASK]"]), ValueError, r"texts\[0\].*14 tokens"),
        (lambda: FillMask.load(str(tmp_path)), ValueError, re.escape(str(tmp_path))),
        (lambda: filler(["[MASK]"], top_k=0), ValueError, "top_k must be at least 1"),
        (lambda: filler(["[MASK]"], top_k=2.0), TypeError, "top_k must be a whole number"),
        (lambda: FillMask.load("mini", do_lower_case="no"), TypeError, "do_lower_case must be"),
        (lambda: FillMask(nan, tokenizer)(["[MASK]"]), ValueError, "not finite"),
    ])  # fmt: skip
