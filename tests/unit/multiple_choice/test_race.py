"""RACE as downloaded and in the original's form, and rejected files."""

import json
import logging

import pytest

from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.multiple_choice.data import read_race

OPTIONS = ["red", "green", "blue", "none"]


def passage(number, level="middle", questions=2, **changes):
    """Returns a passage; keys with the value ... are removed."""
    content = {
        "answers": ["A", "C", "D"][:questions],
        "options": [OPTIONS, OPTIONS[::-1], OPTIONS][:questions],
        "questions": [f"What is {number}?", "It is _.", "Why?"][:questions],
        "article": f"Passage {number},\nof two lines.",
        "id": f"{level}{number}.txt",
        **changes,
    }
    return {key: value for key, value in content.items() if value is not ...}


class Race:
    """A directory of passages."""

    def __init__(self, folder):
        self.folder = folder
        self.data_dir = str(folder)

    def write(self, name, content, level="middle", split=DEV):
        path = self.folder / "RACE" / split / level / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_bytes(text.encode())

    def read(self, *levels, split=DEV):
        return read_race(self.data_dir, split, levels=levels or ("middle",))


@pytest.fixture
def race(tmp_path):
    return Race(tmp_path)


def test_passages_are_sorted_by_level_and_number(race):
    for number in (10, 9, 100):
        race.write(f"{number}.txt", passage(number, questions=1))
    race.write("2000.txt", json.dumps(passage(2000, questions=1, id=...), indent=2))
    race.write("._9.txt", "no JSON: created by macOS")
    race.write("notes.md", "no JSON either")
    race.write("1.txt", passage(1, "high", 3), "high")
    examples = race.read("high", "middle")
    assert [example.example_id for example in examples] == [
        *("middle9.txt", "middle10.txt", "middle100.txt", "middle2000.txt"),
        *["high1.txt"] * 3,
    ]
    assert [example.level for example in examples] == ["middle"] * 4 + ["high"] * 3
    assert [example.label for example in examples] == [0, 0, 0, 0, 0, 2, 3]
    assert examples[5].endings()[0] == "It is none."
    assert examples[4].context is examples[6].context


@pytest.mark.parametrize("between", ["\n", "", "\n\n \r\n"])
def test_all_txt_gives_the_same_examples(race, between):
    contents = {number: json.dumps(passage(number)) for number in (3, 20, 100)}
    for number, text in contents.items():
        race.write(f"{number}.txt", text)
    expected = race.read()
    race.write("all.txt", "\ufeff \n" + between.join(contents.values()) + "\n")
    assert race.read() == expected
    assert len(expected) == 6


def test_data_dir_may_be_race_itself(race):
    race.write("1.txt", passage(1))
    assert read_race(f"{race.data_dir}/RACE/", DEV, levels=["middle"]) == race.read()


@pytest.mark.parametrize("answers", [..., [], None])
def test_a_test_set_may_have_no_answers(race, caplog, answers):
    race.write("1.txt", passage(1, answers=answers), split=TEST)
    with caplog.at_level(logging.WARNING):
        assert [example.label for example in race.read(split=TEST)] == [None] * 2
    assert not caplog.records


def test_questions_without_an_answer_are_skipped_in_train(race, caplog):
    race.write("1.txt", passage(1, answers=["B", None]), split=TRAIN)
    race.write("2.txt", passage(2, answers=...), split=TRAIN)
    with caplog.at_level(logging.WARNING):
        assert [example.label for example in race.read(split=TRAIN)] == [1]
    places = "(passages middle/1.txt, middle/2.txt, middle/2.txt)"
    assert f"rows=3 with no label, skipped {places}" in caplog.text


def test_empty_texts_are_kept_and_lone_surrogates_replaced(race, caplog):
    race.write("1.txt", passage(1, article=" "))
    race.write("2.txt", {**passage(2), "options": [["", "x", "y", "z"], OPTIONS]})
    race.write("3.txt", passage(3, article="\ud83d half"))
    race.write("4.txt", passage(4, questions=0))
    with caplog.at_level(logging.WARNING):
        contexts = [example.context for example in race.read()]
    assert contexts[::2] == [" ", "Passage 2,\nof two lines.", "\ufffd half"]
    assert "rows=1 with no question (passage middle/4.txt)" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(passage(1)) + "\n\n" + '{"a": }', "12.txt .*JSON.* line 3"),
        (passage(1, answers=["A"]), "2 questions, 2 lists of options and 1 answers"),
        (passage(1, options=[OPTIONS, OPTIONS[:3]]), r"options\[1\] must be .* 4 options"),
        (passage(1, answers=["A", "E"]), r"questions\[1\]: answer .*'A', 'B', 'C', 'D'.*'E'"),
    ],
)
def test_malformed_passages_are_rejected(race, content, message):
    race.write("3.txt", passage(3))
    race.write("12.txt", content)
    with pytest.raises(ValueError, match=message):
        race.read()


def test_missing_levels_and_answers_are_rejected(race):
    race.write("1.txt", passage(1))
    with pytest.raises(ValueError, match=r"no passages .*RACE/dev/high.*`middle_only`"):
        race.read("middle", "high")
    with pytest.raises(ValueError, match=r"no passages .*RACE/train/middle.*Received: "):
        race.read(split=TRAIN)
    race.write("1.txt", passage(1, answers=...))
    with pytest.raises(ValueError, match=r"No question has a label in .*RACE/dev, the dev data"):
        race.read()
