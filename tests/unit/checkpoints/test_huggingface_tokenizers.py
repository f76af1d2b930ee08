"""Tests for reading tokenizers of transformers whose rules may differ from this package."""

import json
import shutil

import pytest

import albert_tf
from albert_tf.checkpoints import huggingface
from albert_tf.checkpoints.huggingface.tokenizer import read_tokenizer
from albert_tf.checkpoints.load_tokenizer import load_tokenizer
from albert_tf.checkpoints.loading import read_model
from albert_tf.finetuning.texts import TextEncoder
from albert_tf.tools.inspect import describe
from tests.huggingface import models, rules

RECORDED = json.loads((models.RECORDED / "rules.json").read_text())


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))


def ids_of(tokenizer) -> list[list[int]]:
    return [tokenizer(text)["input_ids"][0].tolist() for text in rules.TEXTS]


def stored(folder):
    return read_tokenizer(str(folder))[0]


def loaded(folder):
    tokenizer, lower_case = read_tokenizer(str(folder))
    return tokenizer.load(lower_case is not False)


@pytest.mark.parametrize("name", rules.SAME)
def test_reproduced_rules(name, tmp_path):
    folder = rules.write(tmp_path / name, rules.SAME[name])
    assert not stored(folder).note
    assert ids_of(loaded(folder)) == RECORDED[name]


@pytest.mark.parametrize("name", rules.NOTED)
def test_rules_that_affect_some_texts_are_reported(name, tmp_path, caplog):
    files, rule = rules.NOTED[name]
    folder = rules.write(tmp_path / name, files)
    ids = ids_of(loaded(folder))
    assert rule in stored(folder).note
    assert rule in caplog.text
    is_same = [row == theirs for row, theirs in zip(ids, RECORDED[name], strict=True)]
    assert any(is_same)
    assert all(is_same) == (name in rules.KEEP_ACCENTS)


@pytest.mark.parametrize("name", rules.REFUSED)
def test_other_rules_need_an_explicit_vocabulary(name, tmp_path, caplog):
    files, rule = rules.REFUSED[name]
    folder = rules.write(tmp_path / name, files)
    assert rule in stored(folder).note
    assert rule in caplog.text
    assert not stored(folder).files
    file = folder / ("vocab.txt" if "vocab.txt" in files else "tokenizer.json")
    assert str(file) in stored(folder).note
    assert ids_of(load_tokenizer(vocab_file=file)) != RECORDED[name]


@pytest.mark.parametrize("name", ["names", "bert_names"])
def test_special_tokens_with_other_names_are_not_found_in_texts(name, tmp_path):
    folder = rules.write(tmp_path / name, rules.SAME[name])
    tokenizer = loaded(folder)
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id) == (0, 1, 2)
    assert (tokenizer.sep_id, tokenizer.mask_id) == (3, 4)
    assert not {*range(5)} - {1} & {*tokenizer.encode("<s> a </s> [CLS] <mask>")}
    assert tokenizer.encode_special("a[MASK]")[-1] == 4


def test_special_names_of_both_kinds_are_exchanged(tmp_path):
    """The settings decide if a vocabulary also contains the usual name."""
    special = [*rules.SPECIAL[:2], "<s>", *rules.SPECIAL[3:]]
    files = rules.unigram(
        rules.ALBERT, [rules.METASPACE], [*rules.PIECES, ["[CLS]", -9.0]], special
    )
    folder = rules.write(tmp_path / "both", files)
    tokenizer = loaded(folder)
    assert tokenizer.cls_id == 2
    assert tokenizer.tokens[-1] == "<s>"


def test_added_special_tokens(tmp_path):
    """A mask that was added at the end of the vocabulary is part of it."""
    files = rules.unigram(rules.ALBERT, [rules.METASPACE])
    files["tokenizer.json"]["model"]["vocab"][4][0] = "x"
    del files["tokenizer.json"]["added_tokens"][4]
    size = 5 + len(rules.PIECES)
    files["tokenizer.json"]["added_tokens"] += rules.added_tokens(["<mask>"], size)
    files["tokenizer_config.json"] |= {"mask_token": "<mask>"}
    folder = rules.write(tmp_path / "mask", files)
    tokenizer = loaded(folder)
    assert (tokenizer.mask_id, tokenizer.vocab_size) == (size, size + 1)


def test_contradicting_lower_case_is_refused(tmp_path):
    files = rules.unigram(rules.ALBERT, [rules.METASPACE], do_lower_case=False)
    tokenizer = stored(rules.write(tmp_path / "cased", files))
    assert "do_lower_case=False" in tokenizer.note
    assert not tokenizer.files
    # BertTokenizer of transformers uses its setting.
    files = rules.wordpiece([rules.BERT], rules.BERT_SPLIT, do_lower_case=False)
    tokenizer, lower_case = read_tokenizer(str(rules.write(tmp_path / "bert", files)))
    assert lower_case is False
    assert "do_lower_case=False" in tokenizer.note
    assert tokenizer.files


@pytest.mark.parametrize(
    ("is_bert", "change", "rule"),
    [
        (True, {"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        (True, {"do_basic_tokenize": False}, "do_basic_tokenize=False"),
        (True, {"never_split": ["[X]"]}, "never_split=['[X]']"),
        (True, {"strip_accents": False}, "strip_accents=False"),
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


@pytest.mark.parametrize("keeps", [True, False])
def test_accents_of_tokenizer_json(tmp_path, keeps):
    steps = [rules.LOWER] if keeps else rules.ALBERT
    files = rules.unigram(steps, [rules.METASPACE], rules.ACCENTS)
    folder = rules.write(tmp_path / "inferred", files)
    assert stored(folder).keep_accents is keeps
    assert loaded(folder).keep_accents is keeps
    files["tokenizer_config.json"]["keep_accents"] = not keeps
    tokenizer = stored(rules.write(tmp_path / "contradiction", files))
    assert f"keep_accents={not keeps} in tokenizer_config.json" in tokenizer.note
    assert not tokenizer.files


def test_patterns_of_unlimited_duration_are_refused(tmp_path):
    """Other patterns are not run, because they may take forever."""
    step = {"type": "Replace", "pattern": {"Regex": "((.+)+)+x"}, "content": ""}
    files = rules.unigram([step, *rules.ALBERT], [rules.METASPACE])
    tokenizer = stored(rules.write(tmp_path / "slow", files))
    assert "((.+)+)+x" in tokenizer.note
    assert not tokenizer.files


def test_models_are_loaded_without_a_refused_tokenizer(tmp_path, caplog):
    files, rule = rules.REFUSED["whitespace"]
    folder = tmp_path / "model"
    size = 5 + len(rules.PIECES)
    huggingface.write(str(folder), models.our_contents({}, {"vocab_size": size}))
    (folder / "tokenizer.json").write_text(json.dumps(files["tokenizer.json"]))
    assert albert_tf.load(folder).tokenizer is None
    assert rule in caplog.text
    assert rule in "\n".join(describe(str(folder)))
    for action in (load_tokenizer, TextEncoder.load):
        with pytest.raises(ValueError, match=rule) as raised:
            action(folder)
        assert str(folder / "tokenizer.json") in str(raised.value)
    contents, _ = read_model(str(folder), vocab_file=str(folder / "tokenizer.json"))
    assert contents.tokenizer is not None
    assert contents.tokenizer.vocab_size == size


def test_errors_name_files_of_the_user(tmp_path):
    """Files in the cache are not named."""
    files = rules.unigram(rules.ALBERT, [rules.METASPACE])
    files["tokenizer.json"]["model"]["vocab"][4][0] = "x"  # no [MASK]
    folder = tmp_path / "model"
    huggingface.write(str(folder), models.our_contents({}, {}))
    (folder / "tokenizer.json").write_text(json.dumps(files["tokenizer.json"]))
    with pytest.raises(ValueError, match=r"has no \[MASK\]") as raised:
        albert_tf.load(folder)
    assert str(folder / "tokenizer.json") in str(raised.value)
    assert "cache" not in str(raised.value)
