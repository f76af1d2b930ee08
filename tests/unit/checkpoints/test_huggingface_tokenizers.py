"""Tests for reading tokenizers of transformers whose rules may differ from this package."""

import json
import pickle
import shutil
from functools import partial

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.convert import convert
from albert_tf.checkpoints.formats import huggingface
from albert_tf.checkpoints.formats.huggingface.tokenizer import read_tokenizer
from albert_tf.checkpoints.load_tokenizer import load_tokenizer
from albert_tf.finetuning.text_encoder import TextEncoder
from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.tokenization.library import LibraryTokenizer
from albert_tf.tools.inspect import describe
from tests.huggingface import models, rules

pytestmark = pytest.mark.usefixtures("eager")
RECORDED = json.loads((models.RECORDED / "rules.json").read_text())


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))


@pytest.fixture
def without_mask():
    """Returns the files of a tokenizer without a mask."""
    files = rules.unigram(rules.ALBERT, [rules.METASPACE])
    files["tokenizer.json"]["model"]["vocab"][4][0] = "x"
    del files["tokenizer.json"]["added_tokens"][4]
    return files


def ids_of(tokenizer) -> list[list[int]]:
    return [tokenizer(text)["input_ids"][0].tolist() for text in rules.TEXTS]


def stored(folder):
    return read_tokenizer(str(folder))


def loaded(folder):
    return stored(folder).load()


@pytest.mark.parametrize("name", rules.SAME)
def test_reproduced_rules(name, tmp_path):
    folder = rules.write(tmp_path / name, rules.SAME[name])
    assert not stored(folder).note
    assert ids_of(loaded(folder)) == RECORDED[name]


def test_rules_that_affect_some_texts_are_reported(tmp_path, caplog):
    folder = rules.write(tmp_path / "chinese", rules.NOTED["chinese"])
    ids = ids_of(loaded(folder))
    assert "'[UNK] [UNK]'" in stored(folder).note
    assert "'[UNK] [UNK]'" in caplog.text
    is_same = [row == theirs for row, theirs in zip(ids, RECORDED["chinese"], strict=True)]
    assert is_same == [True, True, True, False, True]


@pytest.mark.parametrize("name", rules.OTHER)
def test_the_library_runs_other_rules(name, tmp_path):
    folder = rules.write(tmp_path / name, rules.OTHER[name])
    assert not stored(folder).note
    tokenizer = loaded(folder)
    assert isinstance(tokenizer, LibraryTokenizer)
    assert ids_of(tokenizer) == RECORDED[name]
    again = pickle.loads(pickle.dumps(tokenizer))
    assert ids_of(again) == RECORDED[name]
    for name in ("tokens", "files", "rules"):
        assert getattr(again, name) == getattr(tokenizer, name)


@pytest.mark.parametrize("name", ["names", "bert_names"])
def test_special_tokens_with_other_names_are_not_found_in_texts(name, tmp_path):
    folder = rules.write(tmp_path / name, rules.FOLDERS[name])
    tokenizer = loaded(folder)
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id) == (0, 1, 2)
    assert (tokenizer.sep_id, tokenizer.mask_id) == (3, 4)
    assert not {*range(5)} - {1} & {*tokenizer.encode("<s> a </s> [CLS] <mask>")}
    assert tokenizer.encode_special(f"a{tokenizer.mask_token}")[-1] == 4
    assert tokenizer.encode_special("a[MASK]", special_tokens=["[MASK]"])[-1] == 4


def test_repeated_and_added_special_tokens(tmp_path, without_mask):
    """The settings decide if there are two names. An added mask is part of the vocabulary."""
    special = [*rules.SPECIAL[:2], "<s>", *rules.SPECIAL[3:]]
    pieces = [*rules.PIECES, ["[CLS]", -9.0]]
    files = rules.unigram(rules.ALBERT, [rules.METASPACE], pieces, special)
    tokenizer = loaded(rules.write(tmp_path / "both", files))
    assert (tokenizer.cls_id, tokenizer.tokens[-1]) == (2, "[CLS]")
    size, files = 5 + len(rules.PIECES), without_mask
    files["tokenizer.json"]["added_tokens"] += rules.added_tokens(["<mask>"], size)
    files["tokenizer_config.json"] |= {"mask_token": "<mask>"}
    tokenizer = loaded(rules.write(tmp_path / "mask", files))
    assert (tokenizer.mask_id, tokenizer.vocab_size) == (size, size + 1)


@pytest.mark.parametrize(
    ("is_bert", "change", "rule"),
    [
        (True, {"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        (True, {"do_basic_tokenize": False}, "do_basic_tokenize=False"),
        (True, {"never_split": ["[X]"]}, "never_split=['[X]']"),
        (True, {"strip_accents": False}, "caf\u00e9"),
        (True, {"strip_accents": None, "tokenize_chinese_chars": True, "never_split": []}, None),
        (False, {"keep_accents": True}, None),
        (False, {"remove_space": False}, "remove_space=False"),
        (False, {"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs="),
        (False, {"tokenizer_class": "XLNetTokenizer"}, "XLNetTokenizer"),
        (False, {"keep_accents": False, "sp_model_kwargs": {}}, None),
    ],
)
def test_settings_of_tokenizers_without_tokenizer_json(tmp_path, golden, is_bert, change, rule):
    files = rules.lines(**change) if is_bert else {"tokenizer_config.json": change}
    folder = rules.write(tmp_path / "model", files)
    if not is_bert:
        shutil.copy(golden / "tokenizer" / "small_1000.model", folder / "spiece.model")
    tokenizer = stored(folder)
    assert rule in tokenizer.note if rule else not tokenizer.note
    assert bool(tokenizer.files) == ("tokenizer_class" not in change)
    assert tokenizer.keep_accents == change.get("keep_accents")


@pytest.mark.parametrize(
    ("key", "steps", "value"),
    [
        ("do_lower_case", rules.ALBERT, True),
        ("keep_accents", rules.ALBERT, False),
        ("keep_accents", [rules.LOWER], True),
    ],
)
def test_the_normalizer_decides_about_case_and_accents(tmp_path, key, steps, value):
    files = rules.unigram(steps, [rules.METASPACE], rules.ACCENTS)
    for name, settings in (("inferred", {}), ("contradiction", {key: not value})):
        files["tokenizer_config.json"] |= settings
        folder = rules.write(tmp_path / name, files)
        assert getattr(stored(folder), key) is getattr(loaded(folder), key) is value
        contradiction = f"{key} is {value} in tokenizer.json, but {not value} in "
        assert (contradiction in stored(folder).note) == bool(settings)


def test_failures_of_the_library_are_errors(tmp_path):
    """Panics are not derived from Exception; patterns that take too long cause a panic."""
    damaged = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    files = rules.unigram([damaged], [rules.METASPACE])
    tokenizer = stored(rules.write(tmp_path / "damaged", files))
    assert "charsmap" in tokenizer.note
    assert not tokenizer.files
    slow = {"type": "Replace", "pattern": {"Regex": "(a|a)*d"}, "content": ""}
    files = rules.unigram([slow, *rules.ALBERT], [{"type": "Whitespace"}])
    tokenizer = loaded(rules.write(tmp_path / "slow", files))
    for action in (tokenizer.encode, tokenizer.encode_with_offsets, tokenizer.clean):
        with pytest.raises(ValueError, match=r"slow.tokenizer\.json"):
            action("a" * 30 + "xd")
    assert tokenizer.encode("a")


def test_unusual_texts(tmp_path):
    tokenizer = loaded(rules.write(tmp_path / "bert", rules.OTHER["no_split"]))
    text = "The [MASK] caf\u00e9 \U00010348 \ud800king"
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    assert tokenizer.mask_id not in ids
    assert ids == tokenizer.encode(text)
    assert starts == sorted(starts)
    slices = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    assert slices[-2:] == ["\U00010348", "king"]
    assert tokenizer.encode_special("the [MASK]")[-1] == tokenizer.mask_id
    assert tokenizer.encode_batch([]) == tokenizer.encode(" ") == []
    assert tokenizer.clean(" ") == ""
    assert tokenizer.decode(tokenizer.encode("the king")) == "the king"
    continuing = {t for t in tokenizer.tokens if t.startswith("##")}
    assert {tokenizer.tokens[i] for i in np.flatnonzero(~tokenizer.starts_word)} == continuing


def test_offsets_include_blanks_before_words_of_sentencepiece(tmp_path):
    tokenizer = loaded(rules.write(tmp_path / "albert", rules.OTHER["albert"]))
    text = "the  the 3 \u00e9"
    encoding = zip(*tokenizer.encode_with_offsets(text), strict=True)
    slices = [(tokenizer.tokens[i], text[start:end]) for i, start, end in encoding]
    mark = rules.MARK
    words = [(f"{mark}the", "the"), (f"{mark}the", "  the"), (mark, " "), ("3", "3")]
    assert slices == [*words, (mark, " "), ("e", "\u00e9")]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A directory of transformers whose tokenizer has custom rules and names of special tokens."""
    pieces = [["[CLS]", -9.0], *rules.PIECES]
    files = rules.unigram(rules.ALBERT, [{"type": "Whitespace"}], pieces, rules.OTHER_SPECIAL)
    folder, changes = tmp_path_factory.mktemp("other"), {"vocab_size": 5 + len(pieces)}
    huggingface.write(str(folder), models.our_contents({}, changes))
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def model(other):
    return albert_tf.load(other)


def test_other_rules_are_stored_with_models(other, model, tmp_path):
    tokenizer = model.tokenizer
    assert isinstance(tokenizer, LibraryTokenizer)
    assert (tokenizer.cls_token, tokenizer.mask_token) == ("<s>", "<mask>")
    expected = ids_of(tokenizer)
    albert_tf.save(model, tmp_path / "original")
    albert_tf.save(model, tmp_path / "huggingface", format="huggingface")
    model.save(tmp_path / "model.keras")
    for name in ("original", "huggingface", "model.keras"):
        again = albert_tf.load(tmp_path / name).tokenizer
        assert isinstance(again, LibraryTokenizer)
        assert ids_of(again) == expected
    written = (tmp_path / "huggingface" / "tokenizer.json").read_bytes()
    assert written == (other / "tokenizer.json").read_bytes()
    assert "Library" in "\n".join(describe(str(tmp_path / "original")))
    vectors = [TextEncoder.load(path)(rules.TEXTS) for path in (other, tmp_path / "original")]
    np.testing.assert_allclose(*vectors)


def test_formats_without_other_rules_are_refused_before_writing(other, model, tmp_path):
    target = tmp_path / "target"
    for name in ("keras_hub", "tf1_hub", "tf2_hub"):
        for write in (
            partial(albert_tf.save, model, target, format=name),
            partial(convert, other, name, target),
        ):
            with pytest.raises(ValueError, match=r"tokenizer\.json"):
                write()
    assert not target.exists()
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        GraphTokenizer(model.tokenizer)
    assert "Library" in "\n".join(describe(str(other / "tokenizer.json")))


def test_errors_name_files_of_the_user(tmp_path, without_mask):
    """Files in the cache are not named."""
    folder = tmp_path / "model"
    huggingface.write(str(folder), models.our_contents({}, {}))
    (folder / "tokenizer.json").write_text(json.dumps(without_mask["tokenizer.json"]))
    assert albert_tf.load(folder).tokenizer is None
    with pytest.raises(ValueError, match=r"has no \[MASK\]") as raised:
        load_tokenizer(folder)
    assert str(folder / "tokenizer.json") in str(raised.value)
    assert "cache" not in str(raised.value)
