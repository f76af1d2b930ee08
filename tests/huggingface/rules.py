"""Small tokenizers of transformers with various rules.

`record.py` stores the ids that transformers returns for `TEXTS` in `recorded/rules.json`.
"""

import json
from pathlib import Path
from typing import Any

TEXTS = ["the king (a guest) paid 3.5", "The King paid", "caf\u00e9 no", "\u4e2d\u6587 a", "covid"]
MARK = "\u2581"
NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
BERT_SPECIAL = ("[PAD]", "[UNK]", *SPECIAL[2:])
OTHER_SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
LETTERS = "abcdefghiknoprstuvTK"
PIECES = [["(", 0.0], [")", 0.0], [".", 0.0], [MARK, -2.0], [f"{MARK}the", -3.0], ["the", -6.0]]
PIECES += [[character, -5.0 - i / 100] for i, character in enumerate(f"{LETTERS}35")]
WORDS = ["the", "king", "guest", "no", *"()3.", *LETTERS, *(f"##{c}" for c in f"{LETTERS}5")]
METASPACE = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"}
OLD_METASPACE = {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}
SPACES, PUNCTUATION = {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}
LOWER, MARKS = {"type": "Lowercase"}, {"type": "StripAccents"}
SINGLE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
ALBERT = [{"type": "NFKD"}, MARKS, LOWER, SINGLE]
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
BERT |= {"strip_accents": None, "lowercase": True}
BERT_SPLIT = [{"type": "BertPreTokenizer"}]
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def added_tokens(
    names, first: int = 0, special: bool = True, normalized: bool = False
) -> list[dict]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    flags |= {"special": special, "normalized": normalized}
    return [{"id": i, "content": name, **flags} for i, name in enumerate(names, first)]


def unigram(normalizers, splits, pieces=PIECES, special=SPECIAL, added=(), **config) -> dict:
    """Returns the files of a tokenizer with a Unigram model."""
    tokens = [*([name, 0.0] for name in special), *pieces]
    model = {"type": "Unigram", "unk_id": 1, "byte_fallback": False, "vocab": tokens}
    return _files(normalizers, splits, model, special, added, config)


def wordpiece(normalizers, splits, prefix="##", words=WORDS, **config) -> dict:
    """Returns the files of a tokenizer with a WordPiece model."""
    tokens = [*BERT_SPECIAL, *(word.replace("##", prefix) for word in words)]
    settings = {"type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 100}
    model = {**settings, "continuing_subword_prefix": prefix}
    model["vocab"] = {token: i for i, token in enumerate(tokens)}
    return _files(normalizers, splits, model, BERT_SPECIAL, (), config)


def _files(normalizers, splits, model, special, added, config) -> dict:
    marks = [{"SpecialToken": {"id": name, "type_id": 0}} for name in special[2:4]]
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    template = {
        "type": "TemplateProcessing",
        "single": [marks[0], first, marks[1]],
        "pair": [marks[0], first, marks[1], second, marks[1]],
        "special_tokens": {
            name: {"id": name, "ids": [i], "tokens": [name]}
            for i, name in enumerate(special[2:4], 2)
        },
    }
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [*added_tokens(special), *added],
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits},
        "post_processor": template,
        "decoder": None,
        "model": model,
    }
    names = dict(zip(NAMES, special, strict=True))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **names, **config}
    return {"tokenizer.json": content, "tokenizer_config.json": settings}


def lines(words=WORDS, special=BERT_SPECIAL, added=None, **config) -> dict:
    """Returns the files of a BertTokenizer of transformers 4."""
    names = dict(zip(NAMES, special, strict=True))
    settings = {"tokenizer_class": "BertTokenizer", **names, **config}
    files = {"vocab.txt": "".join(f"{word}\n" for word in (*special, *words))}
    files |= {"tokenizer_config.json": settings}
    return {**files, "added_tokens.json": added} if added else files


def _symbols(*splits) -> dict:
    return unigram(ALBERT, splits, added=added_tokens("().", 5, special=False))


CHINESE = [*WORDS, "\u4e2d\u6587"]
ACCENTS = [*PIECES, ["\u00e9", -7.0]]
COVID = added_tokens(["covid"], 5 + len(PIECES), special=False, normalized=True)
# Files of tokenizers without `tokenizer.json` that this package reproduces for all texts.
SAME: dict[str, Any] = {
    "line_twice": lines(["king", *WORDS]),
    "bert_names": lines(special=OTHER_SPECIAL),
}
# For some texts.
NOTED: dict[str, Any] = {"chinese": lines(tokenize_chinese_chars=False)}
# Files that the tokenizers library runs.
OTHER: dict[str, Any] = {
    "albert": unigram(ALBERT, [SPACES, METASPACE]),
    "old_metaspace": unigram(ALBERT, [OLD_METASPACE]),
    "no_prefix": unigram(ALBERT, [{**METASPACE, "prepend_scheme": "never"}]),
    "not_lower": unigram([*ALBERT[:2], SINGLE], [METASPACE]),
    "names": unigram(ALBERT, [METASPACE], special=OTHER_SPECIAL),
    "piece_twice": unigram(ALBERT, [METASPACE], [["a", -9.0], *PIECES]),
    "bert": wordpiece([BERT], BERT_SPLIT),
    "bert_cased": wordpiece([{**BERT, "lowercase": False}], BERT_SPLIT),
    "null": unigram([], [METASPACE]),
    "lower_only": unigram([LOWER], [METASPACE]),
    "accents": unigram([LOWER], [METASPACE], ACCENTS),
    "symbols": _symbols(SPACES, METASPACE),
    "symbols_4": _symbols(METASPACE),
    "words": wordpiece([{"type": "NFD"}, LOWER, MARKS], [SPACES, PUNCTUATION]),
    "whitespace": unigram(ALBERT, [{"type": "Whitespace"}]),
    "bytes": unigram(ALBERT, [BYTES]),
    "added": unigram(ALBERT, [METASPACE], added=COVID),
    "prefix": wordpiece([BERT], BERT_SPLIT, "@@"),
    "no_split": wordpiece([BERT], [SPACES]),
    "words_of_chinese": lines(CHINESE, tokenize_chinese_chars=False),
    "added_line": lines(added={"covid": 5 + len(WORDS)}),
}
FOLDERS = SAME | NOTED | OTHER


def write(folder: Path, files: dict) -> Path:
    """Writes the files of a tokenizer and a configuration of ALBERT."""
    folder.mkdir(parents=True)
    for name, content in {**files, "config.json": {"model_type": "albert"}}.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, "utf-8")
    return folder
