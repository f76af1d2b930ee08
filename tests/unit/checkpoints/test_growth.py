"""Tests for models that get another vocabulary or another number of positions."""

import re

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.growth import MASKED_LM_BIAS, POSITIONS, WORDS
from albert_tf.config import GROWING
from tests.small_model import ONE_BLOCK, small_config, weights_of

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORD_PIECES = [*SPECIAL, "cat", "##cat", "dog", ",", "##,", "the", "猫"]


def word_pieces(path, tokens, **options):
    path.write_text("\n".join(tokens), "utf-8")
    return albert_tf.load_tokenizer(vocab_file=path, **options)


@pytest.fixture
def saved(tmp_path):
    """Returns a function that saves a model with random tables and a tokenizer."""

    def save(tokenizer, size=None, **changes):
        config = small_config(**ONE_BLOCK, vocab_size=size or tokenizer.vocab_size, **changes)
        model = albert_tf.AlbertForPretraining(config)
        random = np.random.default_rng(3)
        model.set_weights([random.normal(0.5, 2, w.shape) for w in model.get_weights()])
        model.tokenizer = tokenizer
        albert_tf.save(model, tmp_path / "old")
        return weights_of(model)

    return save


def assert_rows(new, old, pairs):
    """Checks that the rows of pieces, given as pairs of new and old ids, are kept."""
    for table in (WORDS, MASKED_LM_BIAS):
        for row, there in pairs:
            np.testing.assert_array_equal(new[table][row], old[table][there])


def test_word_pieces_are_matched_by_piece(saved, tmp_path, caplog):
    old = saved(word_pieces(tmp_path / "old.txt", WORD_PIECES))
    tokens = ["the", "##x", "[MASK]", "[PAD]", "[UNK]", "cow", "[CLS]", "##,", "[SEP]", "##cat"]
    tokenizer = word_pieces(tmp_path / "new.txt", tokens)
    caplog.set_level("INFO", logger="absl")
    model = albert_tf.grow(tmp_path / "old", tokenizer=tokenizer, max_position_embeddings=20)
    new = weights_of(model)
    kept = [(i, WORD_PIECES.index(token)) for i, token in enumerate(tokens) if i not in (1, 5)]
    assert_rows(new, old, kept)
    assert "pieces: 8 kept, 2 new, 4 dropped; positions: 16 kept, 4 copied, 0 dropped" in (
        caplog.text
    )
    np.testing.assert_array_equal(new[POSITIONS][:16], old[POSITIONS])
    np.testing.assert_array_equal(new[POSITIONS][16:], old[POSITIONS][:4])
    assert model.tokenizer is tokenizer
    assert (model.config.vocab_size, model.config.max_position_embeddings) == (10, 20)
    for name in old.keys() - {WORDS, MASKED_LM_BIAS, POSITIONS}:
        np.testing.assert_array_equal(new[name], old[name])
    albert_tf.save(model, tmp_path / "new")
    assert albert_tf.load(tmp_path / "new").tokenizer.tokens == tokens


def test_new_rows_have_the_mean_and_deviation_of_the_old_rows(saved, tmp_path):
    letters = [chr(ord("A") + n) for n in range(26)]
    old = saved(word_pieces(tmp_path / "old.txt", [*SPECIAL, *letters]))
    tokens = [*SPECIAL, *(f"word{n}" for n in range(4000))]
    tokenizer = word_pieces(tmp_path / "new.txt", tokens)
    first, second, other = (
        weights_of(albert_tf.grow(tmp_path / "old", tokenizer=tokenizer, seed=seed))
        for seed in (1, 1, 2)
    )
    for table in (WORDS, MASKED_LM_BIAS):
        values, new = old[table], first[table][5:]
        np.testing.assert_allclose(new.mean(0), values.mean(0), rtol=0, atol=0.15)
        np.testing.assert_allclose(new.std(0), values.std(0), rtol=0.1, atol=0)
        np.testing.assert_array_equal(first[table], second[table])
        assert (first[table][5:] != other[table][5:]).all()


@pytest.mark.parametrize("from_sentence_pieces", [False, True])
def test_sentence_pieces_and_word_pieces_are_matched(
    from_sentence_pieces, saved, tmp_path, tokenizer
):
    """Ids of pieces of both kinds are compared, and of pieces that only one of them can have."""
    special = dict(zip(SPECIAL, _special_ids(tokenizer), strict=True))
    inside = next(t for t in tokenizer.tokens[10:] if t.isalpha() and t.islower())
    word = next(t for t in tokenizer.tokens if re.fullmatch("▁[a-z]{3,}", t))
    assert "," in tokenizer.tokens
    names = {word[1:]: word, f"##{inside}": inside, ",": ",", "##qqqq": None, "[unused1]": None}
    pieces = word_pieces(tmp_path / "words.txt", [*special, *names])
    ids = {token: i for i, token in enumerate(tokenizer.tokens)}
    pairs = [
        *enumerate(special.values()),
        *((5 + n, ids[names[t]]) for n, t in enumerate(names) if names[t]),
    ]
    one, other = (tokenizer, pieces) if from_sentence_pieces else (pieces, tokenizer)
    old = saved(one)
    new = weights_of(albert_tf.grow(tmp_path / "old", tokenizer=other))
    if not from_sentence_pieces:
        pairs = [(there, row) for row, there in pairs]
        assert len(set(map(tuple, new[WORDS])) & set(map(tuple, old[WORDS]))) == len(pairs)
    assert_rows(new, old, pairs)


def _special_ids(tokenizer):
    return [getattr(tokenizer, f"{name}_id") for name in ("pad", "unk", "cls", "sep", "mask")]


def test_lower_case_is_matched_if_only_one_tokenizer_lower_cases(saved, tmp_path, caplog):
    """Rows that no token uses are kept."""
    old = saved(word_pieces(tmp_path / "old.txt", [*SPECIAL, "cafe", "tea"]), size=9)
    tokens = [*SPECIAL, "tea", "Tea", "Café"]
    for is_cased in (False, True):
        tokenizer = word_pieces(tmp_path / "new.txt", tokens, do_lower_case=not is_cased)
        new = weights_of(albert_tf.grow(tmp_path / "old", tokenizer=tokenizer))
        assert_rows(new, old, [(5, 6), *([(6, 6), (7, 5)] if is_cased else [])])
        assert (new[WORDS][6] == old[WORDS][6]).all() == is_cased
    caplog.set_level("INFO", logger="absl")
    new = weights_of(albert_tf.grow(tmp_path / "old", max_position_embeddings=5))
    np.testing.assert_array_equal(new[WORDS], old[WORDS])
    np.testing.assert_array_equal(new[POSITIONS], old[POSITIONS][:5])
    assert "9 kept, 0 new, 0 dropped; positions: 5 kept, 0 copied, 11 dropped" in caplog.text


def test_pieces_of_a_model_without_tokenizer_cannot_be_matched(tmp_path):
    model = albert_tf.AlbertForPretraining(small_config(**ONE_BLOCK))
    albert_tf.save(model, tmp_path / "bare")
    tokenizer = word_pieces(tmp_path / "new.txt", WORD_PIECES)
    with pytest.raises(ValueError, match=r"cannot be matched.* as 30k-clean\.model or vocab\.txt"):
        albert_tf.grow(tmp_path / "bare", tokenizer=tokenizer)
    grown = albert_tf.grow(tmp_path / "bare", max_position_embeddings=32)
    np.testing.assert_array_equal(weights_of(grown)[WORDS], weights_of(model)[WORDS])
    with pytest.raises(TypeError, match="load_tokenizer"):
        albert_tf.grow(tmp_path / "bare", tokenizer="new.txt")
    write_checkpoint(str(tmp_path / "model.ckpt-best"), {"a": [1.0]}, 0)
    small_config(**ONE_BLOCK).to_json_file(str(tmp_path / "albert_config.json"))
    with pytest.raises(ValueError, match="no variable of this model"):
        albert_tf.grow(tmp_path, max_position_embeddings=32)


def test_errors_name_the_flag(saved, tmp_path):
    saved(word_pieces(tmp_path / "old.txt", WORD_PIECES))
    config = small_config(**ONE_BLOCK, vocab_size=12)
    for sizes in ({"vocab_size": 33}, {"max_position_embeddings": 33}):
        model = albert_tf.AlbertEncoder(config.replace(**sizes))
        with pytest.raises(ValueError, match=GROWING) as error:
            albert_tf.load_weights(model, tmp_path / "old" / "model.ckpt-best")
        assert "init_from_group0" not in str(error.value)
    with pytest.raises(ValueError, match=GROWING):
        config.check_sequence_length(17)
