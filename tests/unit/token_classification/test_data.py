"""Reading files of words and labels, and writing them with predictions."""

import json
from importlib.util import find_spec

import pytest

from albert_tf.token_classification import data
from albert_tf.token_classification.data import (
    Reading,
    lines_with_predictions,
    read_sentences,
    recognize_kind,
    split_words,
    text_entities,
)
from albert_tf.token_classification.labels import Sentence
from albert_tf.tokenization.word_piece import align_words
from tests.unusual_texts import UNUSUAL_TEXTS


@pytest.fixture
def read(tmp_path):
    def read(content: str | bytes, name="t.conll", needs_labels=False, **options) -> list[Sentence]:
        """Writes a file and reads its sentences."""
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(read_sentences(str(path), Reading(**options), needs_labels=needs_labels))

    return read


def written(path, predicted=(), scheme="IOB2", **options) -> str:
    """Returns a copy of a file with these labels and probabilities of its sentences."""
    rest = iter(predicted)
    predict = lambda words: [next(rest) for _ in words]  # noqa: E731
    groups = lines_with_predictions(str(path), predict, scheme, Reading(**options))
    return "".join(f"{line}\n" for lines in groups for line in lines)


def words_and_labels(sentences: list[Sentence]) -> list[tuple[str, str | None]]:
    return [("|".join(s.words), s.labels and "|".join(s.labels)) for s in sentences]


COLUMNS = """\
-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
-DOCSTART-
BRUSSELS NNP B-NP B-LOC
"""


def test_files_of_columns_are_read(read, tmp_path):
    expected = [
        ("EU|rejects", "B-ORG|O"),
        ("Peter|Blackburn", "B-PER|I-PER"),
        ("BRUSSELS", "B-LOC"),
    ]
    sentences = read(COLUMNS)
    assert words_and_labels(sentences) == expected
    assert sentences[1].guid == f"{tmp_path}/t.conll:6"
    assert sentences[1].where(1) == f"{tmp_path}/t.conll:7"
    assert sentences[1].text is sentences[1].offsets is None
    for other in (
        COLUMNS.replace(" ", "\t"),
        COLUMNS.replace("\n", "\r\n"),
        "\ufeff" + COLUMNS.removesuffix("\n"),
        COLUMNS.replace(" ", "  ").replace("\n\n", "\n \t\n\n\n"),
        COLUMNS.replace(" B-NP ", "\tB-NP\t").replace("\t", " ", 2),
    ):
        assert words_and_labels(read(other)) == expected
    tags = read(COLUMNS, token_column=-4, label_column=1)
    assert words_and_labels(tags)[0] == ("EU|rejects", "NNP|VBZ")


WORDS = ["", "New York", "a\u00a0b", "\u200b", "\u05e9\u05dc", "\u3000", "x\0", "A\u0301"]
HASH = "# newdoc\n# text = # 1\n#\tO\n1\tX\n\n#\tO\n"  # comments have other widths than rows
COLUMN_FILES = [
    ("".join(f"{word}\tX \n" for word in WORDS), {}, [("|".join(WORDS), "|".join("X" * 8))]),
    ("a\nb\n\nc", {}, [("a|b", None), ("c", None)]),
    ("a DT\n", {"label_column": 2}, [("a", None)]),
    ("a O\n", {"reads_labels": False}, [("a", None)]),
    ("a\tO\n", {"token_column": 1, "reads_labels": False}, [("O", None)]),
    (HASH, {}, [("#|1", "O|X"), ("#", "O")]),
    ("#\tO\n#\tO\n", {}, [("#|#", "O|O")]),
    ("# a comment here\n# O\na X\n", {}, [("#|a", "O|X")]),
    ("a O O\n# NN =\n", {}, [("a|#", "O|=")]),
    ("a O\n" * 99 + "b\n" + "a O\n" * 2, {}, [("a|" * 100 + "a", "O|" * 100 + "O")]),
]


@pytest.mark.parametrize(("content", "options", "expected"), COLUMN_FILES)
def test_words_and_labels_of_columns(read, content, options, expected):
    assert words_and_labels(read(content, **options)) == expected


BODY = "a DET\nman NOUN\n\na DET\ndog NOUN\n\n" * 5
HEADERS = [
    ("word pos\n" + BODY, (), 10),
    ("word id pos\n" + BODY.replace(" D", " 1 D").replace(" N", " 2 N"), (), 10),
    ("word pos\n\n" + BODY, (), 10),
    ("word ner\n" + BODY.replace("DET", "B-X").replace("NOUN", "O"), (), 10),
    (f"##1 x\n##1 y\nFORM art\n{BODY}##1 y\n{BODY}", (), 20),
    ("FORM art\na DET\n", ("DET", "NOUN"), 1),
    ("Word POS\na DET\n", (), 1),
    # Words
    ("oh INTJ\na DET\nman NOUN\n", (), 1),
    ("oh art\na DET\nman NOUN\n", ("DET", "X"), 1),
    ("#oh HT\nis DET\n\n" * 9 + BODY, (), 19),
    ("oh DET\n" + BODY, (), 10),
    ("oh B-Y\n" + BODY.replace("DET", "B-X").replace("NOUN", "O"), (), 10),
    ("oh -\n" + BODY, (), 10),
    (BODY + BODY.replace("a DET", "# DET"), (), 20),
    (BODY + "oh INTJ\n", (), 11),
]


@pytest.mark.parametrize(("content", "labels", "number"), HEADERS)
def test_headers_and_comments_have_labels_that_occur_nowhere_else(
    read, content, labels, number, caplog
):
    is_skipped = HEADERS.index((content, labels, number)) < 7
    for text in (content, content.replace(" ", "\t")):
        sentences = read(text, labels=labels)
        words = " ".join(" ".join(sentence.words) for sentence in sentences)
        assert len(sentences) == number
        assert is_skipped is not any(
            word in words.split() for word in ("word", "oh", "#", "#oh", "##1", "FORM", "Word")
        )
    assert is_skipped is ("skipped as a header or comment" in caplog.text)


def test_headers_get_a_name_for_the_column_of_predictions(tmp_path):
    (tmp_path / "t.tsv").write_text("word\tpos\n\n## 1\tx\na\tDET\na\tDET\n")
    found = written(tmp_path / "t.tsv", [(["DET", "X"], [1, 1])], labels=("DET", "X"))
    assert found == "word\tpos\tpredicted_label\n\n## 1\tx\na\tDET\tDET\na\tDET\tX\n"
    (tmp_path / "t.tsv").write_text("word\tlemma\na\tan\n")  # without labels of the model
    assert written(tmp_path / "t.tsv", [(["X", "X"], [1, 1])], labels=("DET", "X")).count("X") == 2


def test_words_may_have_no_label(read):
    found = [("a|b|c|d", "X|||Y")]
    for values in ("null, -100", '"-", "-100"'):
        line = f'{{"tokens": ["a", "b", "c", "d"], "labels": ["X", {values}, "Y"]}}\n'
        assert words_and_labels(read(line, "t.jsonl")) == found
    assert words_and_labels(read("a X\nb -\nc -100\nd Y\n")) == found
    with pytest.raises(ValueError, match="contains no labels"):
        read("a -\nb -\n", needs_labels=True)


def test_entities_inside_of_words_need_another_unit(read):
    row = '{"text": "김철수가 서울에", "entities": [[0, 3, "PER"], [5, 7, "LOC"]]}\n'
    with pytest.raises(ValueError, match="`word_unit` is 'character', or 'icu'"):
        read(row, "t.jsonl")
    [sentence] = read(row, "t.jsonl", word_unit="character")
    assert words_and_labels([sentence]) == [
        ("김|철|수|가|서|울|에", "B-PER|I-PER|I-PER|O|B-LOC|I-LOC|O")
    ]


@pytest.mark.skipif(find_spec("icu4py") is None, reason="the extra languages is not installed")
def test_words_of_icu_are_found_without_blanks():
    text = "😀 トヨタの車は、東京に"
    words = [text[start:end] for start, end in split_words(text, "icu")]
    assert words == ["😀", "トヨタ", "の", "車", "は", "、", "東京", "に"]


@pytest.mark.parametrize("width", [1, 5])
def test_conllu_comments_are_comments_at_any_number_of_columns(read, tmp_path, width):
    row = " ".join(["#newdoc", *"O" * (width - 1)])
    comments = ["# newdoc", "# newpar id = a b", "# sent_id = 1", "#  text[en] = a = b"]
    text = "\n".join([*comments, row, "", *comments, row, ""])
    for _ in range(2):
        assert [sentence.words for sentence in read(text)] == [("#newdoc",)] * 2
        text = written(tmp_path / "t.conll", [(["X"], [1.0])] * 2)
        assert text.splitlines()[:4] == comments


def test_rows_of_conllu_without_words_are_skipped(read, tmp_path):
    rest = "\t_" * 6
    rows = ["# text = du vent", f"1-2\tdu\t_\t_{rest}", f"1\tde\tde\tADP{rest}"]
    rows += [f"2\tle\tle\tDET{rest}", f"2.1\t-\t_\t_{rest}", f"3\tvent\tvent\tNOUN{rest}", ""]
    [sentence] = read("\n".join(rows), token_column=1, label_column=3)
    assert (sentence.words, sentence.labels) == (("de", "le", "vent"), ("ADP", "DET", "NOUN"))
    assert [sentence.where(i)[-2:] for i in range(3)] == [":3", ":4", ":6"]
    predicted = [(["A", "D", "N"], [1.0] * 3)]
    text = written(tmp_path / "t.conll", predicted, token_column=1)
    last = [line.rpartition("\t")[2] for line in text.splitlines()]
    assert last == [rows[0], "_", "A", "D", "_", "N"]
    [again] = read(text, token_column=1)
    assert (again.words, again.labels) == (sentence.words, ("A", "D", "N"))


def test_tokens_of_json_lines_are_read(read, tmp_path):
    objects = [
        {"tokens": ["a", "", "\ud800"], "labels": ["O ", "\u00a0B-X\n", "two words"]},
        {"id": 1, "tokens": ["b"], "labels": None, "text": "not read"},
        {"tokens": [], "labels": []},
        {"text": "  "},
    ]
    content = "\ufeff" + "\n\n".join(map(json.dumps, objects))
    sentences = read(content, "t.JSONL")
    assert words_and_labels(sentences) == [("a||\ufffd", "O|B-X|two words"), ("b", None)]
    assert sentences[0].where(1) == f"{tmp_path}/t.JSONL:1, word 2"
    assert words_and_labels(read(content, "t.jsonl", reads_labels=False))[0][1] is None


def test_entities_of_texts_become_labels(read):
    text = "\U0001f600 In New  York-based caf\u00e9s, \u5317\u4eac"
    entities = [
        {"start": 21, "end": len(text), "label": "X"},
        {"start": 4, "end": 14.0, "label": "LOC", "id": 7},  # with the blank before it
        {"start": 15, "end": 20, "label": " W "},
    ]
    content = json.dumps({"text": text, "entities": entities})
    [sentence] = read(content, "t.json")
    assert sentence.text == text
    assert sentence.words == tuple(text[start:end] for start, end in sentence.offsets)
    assert sentence.words[1:6] == ("In", "New", "York", "-", "based")
    assert " ".join(sentence.labels) == "O O B-LOC I-LOC O B-W B-X I-X I-X I-X"
    found = text_entities(sentence.offsets, sentence.labels, [0.5] * 3 + [0.75] * 7, "IOB2")
    assert found[0] == {"start": 5, "end": 14, "label": "LOC", "probability": 0.625}
    assert [entity["start"] for entity in found] == [5, 15, 21]
    assert read('{"text": "a", "entities": []}', "t.json")[0].labels == ("O",)
    assert read('{"text": "a"}', "t.json")[0].labels is None


def _entities(*spans: tuple) -> str:
    entities = [{"start": start, "end": end, "label": label} for start, end, label in spans]
    return json.dumps({"text": "New Yorkers, too", "entities": entities})


TWO = ["line 2", "2 columns of the first row, separated by"]
LABELS = {"needs_labels": True}
ERRORS = [
    ("a O\nb\n", {}, [*TWO, "blanks", "1: 'b'"]),
    ("a O\n# no comment any more\n", {}, [*TWO, "5: '#"]),
    ("a\tO\nb\t\n", {}, [*TWO, "tabs", "a label that is not empty"]),
    ("a\tO\rb\tO\r", {}, ["line 1", "no carriage return"]),
    ("a O\n" * 49 + "b\n" * 2 + "a O\n" * 49, {}, ["line 50 ", "Malformed rows: 2 of 100"]),
    ("", {}, ["contains no words"]),
    ("a O\n", {"token_column": 1}, ["`label_column`=-1", "Received: 1"]),
    ("a O\n", {"token_column": 2}, ["`token_column` must be from -2 to 1"]),
    ("\na DT\n", {"label_column": 2, **LABELS}, ["`label_column`=2", "contains no labels"]),
    ("a O\nb\u00e9 O\n".encode("latin-1"), {}, ["line 2", "0xe9", "UTF-8"]),
    (b"a O\n" * 3000 + b"b \xff\n", {}, ["line 3001", "0xff"]),
    ("word,label\na,O\n", {"name": "t.conll.csv"}, ["'word', 'label'", '"entities"']),
    ("tokens\n\"['a' 'b']\"\n", {"name": "t.conll.csv"}, ["line 2", "tokens must be a list"]),
]
JSON_ERRORS = [
    ('{"tokens": ["a"], "labels": ["X", "Y"]}', {}, ["1 tokens", "2 labels"]),
    ('{"tokens": ["a"], "labels": [0]}', {}, ["labels[0]", "text"]),
    ('{"tokens": ["a"], "labels": [" "]}', {}, ["labels[0]", "name of a label", "' '"]),
    ('{"word": ["a"]}', {}, ["has the keys 'word'", '"entities"']),
    ('{"text": "a", "label": [[0, 1]]}', {}, ["label[0]", "an object"]),
    ('{"tokens"', {}, ["not valid JSON"]),
    (_entities((0, 8, "LOC")), {}, ["entities[0]", "'New York'", "'Yorkers' (4 to 11)"]),
    (_entities((0, 11, "A"), (4, 11, "B")), {}, ["entities[1]", "overlap"]),
    (_entities((0, 17, "A")), {}, ["entities[0]", "end <= 16"]),
    (_entities((3, 4, "A")), {}, ["entities[0]", "' ' is in the words: none"]),
    (_entities((0, 3, "")), {}, ["entities[0].label", "name of a label", "''"]),
    ('{"tokens": ["b"], "id": 1}', LABELS, ["contains no labels", "not used: 'id'"]),
]


@pytest.mark.parametrize(("content", "options", "named"), [*ERRORS, *JSON_ERRORS])
def test_errors_name_the_file_and_the_problem(read, content, options, named):
    if isinstance(content, str) and content.startswith("{"):
        content, options = f'\n{{"tokens": ["a"]}}\n{content}\n', {"name": "t.jsonl", **options}
        named = ["line 3" if options.keys() == {"name"} else "t.jsonl", *named]
    with pytest.raises(ValueError, match=r"t\.(conll|jsonl)") as error:
        read(content, **options)
    assert all(part in str(error.value) for part in named), str(error.value)


SPAN = {"start": 4, "end": 7, "label": "LOC"}
OFFSETS = {"id": 1, "label": "LOC", "start_offset": 4, "end_offset": 7}
OBJECTS = {
    "tags": {"tokens": ["to", "NYC"], "ner_tags": ["O", "B-LOC"], "pos_tags": ["TO", "NNP"]},
    "words": {"words": ["to", "NYC"], "tags": ["O", "B-LOC"]},
    "doccano": {"id": 1, "text": "to  NYC", "label": [[4, 7, "LOC"]], "Comments": []},
    "old doccano": {"text": "to  NYC", "labels": [[4, 7, "LOC"]]},
    "relations": {"text": "to  NYC", "entities": [OFFSETS], "relations": []},
    "Label Studio": {"text": "to  NYC", "label": [{**SPAN, "labels": ["LOC"], "label": None}]},
    "prodigy": {"text": "to  NYC", "tokens": [{"text": "to", "id": 0}], "spans": [SPAN]},
    "sentence": {"sentence": "to  NYC", "entities": [SPAN]},
}
TABLES = {
    "t.csv": 'tokens,labels\n"[\'to\', \'NYC\']","[""O"", ""B-LOC""]"\n',
    "entities.csv": "text;entities\nto  NYC;[[4, 7, 'LOC']]\n",
    "columns.json": '{"tokens": [["to", "NYC"]], "labels": [["O", "B-LOC"]]}',
    "pandas.json": '{"words": {"0": ["to", "NYC"]}, "tags": {"0": ["O", "B-LOC"]}}',
    **{f"{name}.json": json.dumps(value) for name, value in OBJECTS.items()},
    **{f"{name} list.json": json.dumps([value], indent=1) for name, value in OBJECTS.items()},
    **{f"{name} lines.json": f"{json.dumps(value)}\n" * 2 for name, value in OBJECTS.items()},
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_other_tools_are_read(name, read):
    assert words_and_labels(read(TABLES[name], name))[-1] == ("to|NYC", "O|B-LOC")


REJECTED = "an answer of the annotator other than accept"
LABELLED = '{"tokens": ["a"], "labels": ["O"]}\n'


SKIPPED = [
    ("t.conll", "a O\n", "b O O\n", "malformed values"),
    ("t.tsv", "a\tO\n", "b\t\n", "malformed values"),
    ("t.jsonl", LABELLED, '{"tokens"\n', "malformed values"),
    ("t.jsonl", LABELLED, '{"tokens": ["a"], "labels": [0]}\n', "malformed values"),
    ("t.jsonl", LABELLED, '{"tokens": ["b"]}\n', "no label"),
    ("t.jsonl", LABELLED, f'{LABELLED[:-2]}, "answer": "reject"}}\n', REJECTED),
    ("t.jsonl", LABELLED, f'{LABELLED[:-2]}, "answer": "ignore"}}\n', REJECTED),
    ("t.jsonl", LABELLED, f'{LABELLED[:-2]}, "was_cancelled": true}}\n', REJECTED),
]


@pytest.mark.parametrize(("name", "row", "bad", "problem"), SKIPPED)
def test_skipped_rows_are_logged(read, caplog, name, row, bad, problem):
    sentences = read(row * 50 + bad + row * 49, name, needs_labels=True)
    assert sum(len(sentence.words) for sentence in sentences) == 99
    [message] = caplog.messages
    assert f"rows=1 with {problem}, skipped (line 51)" in message
    if problem == REJECTED:  # texts to predict are all predicted
        assert len(read(row + bad, name, reads_labels=False)) == 2


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("t.txt", "Anna lives in Berlin .\nThe train to Oslo leaves .\n", "raw texts"),
        ("t.txt", "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\u3002\n", "raw texts"),
        ("t.TXT", "Anna NNP\nlives VBZ\nis O\nin\n", "raw texts"),
        ("t.txt", "Anna B-PER\nlives O\n", "columns"),
        ("t.txt", "Anna\tNNP\n", "columns"),
        ("t.txt", "Anna\nlives\n", "columns"),
        ("t.txt", "-DOCSTART- -X-\n\nAnna NNP\n", "columns"),
        ("t.conll", "Anna lives in Berlin .\n", "columns"),
        ("t.tsv", "", "columns"),
        ("t.csv", "", "CSV"),
        ("t.jsonl", "", "JSON Lines"),
        ("t", "Anna lives in Berlin .\n", "raw texts"),
    ],
)
def test_the_kind_of_a_file_to_predict_is_recognized(tmp_path, name, content, kind):
    path = tmp_path / name
    path.write_text(content, "utf-8")
    assert recognize_kind(str(path), ("O", "B-PER"), -1) == kind


def test_texts_to_predict_are_not_json(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text('\n{"text": "a b"}\n', "utf-8")
    with pytest.raises(ValueError, match=r"t\.txt contains JSON objects\. Rename it .* \.jsonl"):
        recognize_kind(str(path), ("O", "B-PER"), -1)


@pytest.mark.parametrize("text", [*UNUSUAL_TEXTS, "don't co\u00adop \u200f\u05d0\u200d", "\u200b"])
def test_texts_are_split_like_berts_basic_tokenizer(text):
    positions = [word.positions for word in align_words(text, do_lower_case=False)]
    assert split_words(text) == [(found[0], found[-1] + 1) for found in positions]


CITY = '[{"start": 3, "end": %d, "label": "LOC", "probability": 0.5}]'
PREDICTIONS = [
    (
        COLUMNS.replace("EU NNP B-NP B-ORG\n", "# O\nEU NNP B-NP B-ORG\r\n"),
        ["B-X O", "B-Y I-Y", "a\u00a0b"],
        "-DOCSTART- -X- -X- O O\n\n# O\nEU NNP B-NP B-ORG B-X\r\nrejects VBZ B-VP O O\n\n"
        "Peter NNP B-NP B-PER B-Y\nBlackburn NNP I-NP I-PER I-Y\n-DOCSTART-\n"
        "BRUSSELS NNP B-NP B-LOC a_b\n",
    ),
    ("# two words\nto\n", ["a\u00a0b"], "# two words\nto\ta b\n"),  # remains a comment
    ("New York\tX\nbad\n\n", ["a\u00a0b"], "New York\tX\ta b\nbad\n\n"),  # bad lines are copied
    ("to NYC\r\n\n", ["O B-LOC"], f'{{"text": "to NYC", "predicted_entities": {CITY % 6}}}\n'
     '{"text": "", "predicted_entities": []}\n'),
    ('{"tokens": ["é", ""], "predicted_labels": 1, "id": 2.5}\n\n{"tokens": []}\n', ["O B-X"],
     '{"tokens": ["é", ""], "predicted_labels": ["O", "B-X"], "id": 2.5}\n\n'
     '{"tokens": [], "predicted_labels": []}\n'),
    ('{"text": "to New York", "entities": [{}]}\n{"text": " "}\n', ["O B-LOC I-LOC"],
     f'{{"text": "to New York", "entities": [{{}}], "predicted_entities": {CITY % 11}}}\n'
     '{"text": " ", "predicted_entities": []}\n'),
    ('{"tokens": ["\\ud800"]}\n{]\n', ["O"],
     '{"tokens": ["\\ud800"], "predicted_labels": ["O"]}\n{]\n'),
    ("text,id\nto NYC,1\n", ["O B-LOC"],
     f'{{"text": "to NYC", "id": "1", "predicted_entities": {CITY % 6}}}\n'),
]  # fmt: skip
NAMES = {"to": "t.txt", '{"': "t.jsonl", "te": "t.csv"}  # by the beginnings of the contents


@pytest.mark.parametrize(("content", "predicted", "expected"), PREDICTIONS)
def test_predictions_have_the_format_of_the_file(tmp_path, content, predicted, expected):
    path = tmp_path / NAMES.get(content[:2], "t.conll")
    path.write_bytes(content.encode())
    labels = [[label.replace("\u00a0", " ") for label in row.split(" ")] for row in predicted]
    kind = "raw texts" if path.suffix == ".txt" else None
    assert written(path, [(row, [0.5] * len(row)) for row in labels], kind=kind) == expected


@pytest.mark.parametrize(
    ("name", "row"), [("t.conll", "w{}\n\n"), ("t.jsonl", '{{"text": "w{}"}}\n{{"text": ""}}\n')]
)
def test_large_files_are_predicted_in_groups(tmp_path, monkeypatch, name, row):
    monkeypatch.setattr(data, "SENTENCES_AT_ONCE", 2)
    path, groups = tmp_path / name, []
    path.write_text("".join(row.format(number) for number in range(5)))

    def predict(words):
        groups.append(len(words))
        return [([f"B-{word}"], [1.0]) for (word,) in words]

    found = [*lines_with_predictions(str(path), predict, "IOB2")]
    assert groups == [2, 2, 1]
    lines = [line for group in found for line in group if "w" in line]
    assert len(lines) == 5
    assert all(line.count(f"w{number}") == 2 for number, line in enumerate(lines))
