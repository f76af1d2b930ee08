"""Raw text becomes one sentence per line, with an empty line between documents."""

import bz2
import gzip
import io
import lzma
import os
import re
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from absl import logging

import albert_tf
from albert_tf.pretraining import prepare_text, raw_text
from albert_tf.pretraining.prepare_text import Splitter, language_code
from albert_tf.pretraining.raw_text import PART_BYTES, read_documents, read_parts

GERMAN = "Das kostet z. B. 3 Euro. Wirklich?\n\n„Ja!“ sagte er.\n"
SENTENCES = "Das kostet z. B. 3 Euro.\nWirklich?\n\n„Ja!“ sagte er.\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepare(text: str | bytes, name: str = "raw/text", language: str = "de", **settings) -> str:
    """Returns the prepared text of a file."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    run(name, language=language, **{"num_workers": 1, **settings})
    return Path("out.txt").read_text("utf-8")


def run(input_file: str, output_file: str = "out.txt", **settings) -> dict[str, int]:
    settings = {"input_file": input_file, "output_file": output_file, "language": "de", **settings}
    return albert_tf.prepare_text(albert_tf.PrepareTextSettings(**settings))


EXTRACTED = """<doc id="1" url="u" title="A > B">
A > B

Eins &amp; zwei. &lt;doc&gt;
<doc id=2>
Innen.
</doc>
Danach.
</doc>
<doc id=3>Drei. Vier.</doc>
<doc id=4>
Ohne Ende.
"""
FORMATS = {
    "plain": (GERMAN, SENTENCES),
    "windows": ("\ufeff" + GERMAN.replace("\n", "\r\n"), SENTENCES),
    "macintosh": (GERMAN.replace("\n", "\r"), SENTENCES),
    "blanks": ("\n \t\n  Eins.\u00a0\u2028 Zwei  drei. \n\n\n\n", "Eins.\nZwei drei.\n"),
    "extracted": (
        EXTRACTED,
        "A > B\nEins & zwei. <doc>\n\nInnen.\n\nDanach.\n\nDrei.\nVier.\n\nOhne Ende.\n",
    ),
    "json": (
        '{"text": "Eins. Zwei.\\n\\nDrei.", "id": NaN}\n\n{"id": 1, "text": null}\n'
        '{"text": "Vier"}',
        "Eins.\nZwei.\nDrei.\n\nVier\n",
    ),
    "streams": (gzip.compress(b"Eins.\n\n") + gzip.compress(b"Zwei.") + b"\0", "Eins.\n\nZwei.\n"),
    **{
        module.__name__: (module.compress(GERMAN.encode()), SENTENCES)
        for module in (bz2, gzip, lzma, zstandard)
    },
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_content_of_a_file_determines_its_format(name):
    text, expected = FORMATS[name]
    assert prepare(text) == expected


@pytest.mark.parametrize(
    ("module", "most", "size"), [(bz2, 1, 3), (lzma, 1, 3), (gzip, 2, 9), (zstandard, 32, 40)]
)
def test_memory_does_not_depend_on_the_compression(module, most, size):
    content = module.compress(bytes(size << 20)) + module.compress(b"Zwei.")
    blocks = iter(partial(io.BytesIO(content).read, raw_text._BYTES_AT_ONCE), b"")
    sizes = [len(block) for block in raw_text._contents(blocks, "a", int)]
    assert sum(sizes) == (size << 20) + len("Zwei.")
    assert max(sizes) <= most << 20


def test_requests_for_much_memory_are_rejected(monkeypatch):
    monkeypatch.setattr(raw_text, "_MOST_MEMORY", 1 << 20)
    Path("a").write_bytes(lzma.compress(b"Eins."))
    with pytest.raises(ValueError, match="a cannot be decompressed: Memory usage limit exceeded"):
        list(read_parts("a", int))


LONG = f"{'a' * 999}\n" * (PART_BYTES // 1000 + 1)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("Schön.\nGrün.\n".encode("latin1"), "a", "raw/a is not UTF-8 text: line 1.*0xf6"),
        (LONG + "\udcff", "a", f"line {LONG.count(chr(10)) + 1} contains byte 0xff"),
        ("Gut. Ja.".encode("utf-16-le"), "a", "raw/a is not UTF-8 text: line 1 .*0x00"),
        (gzip.compress(GERMAN.encode())[:-9], "a", "raw/a is truncated"),
        (lzma.compress(GERMAN.encode())[:-9], "a", "raw/a is truncated"),
        (zstandard.compress(GERMAN.encode())[:-9], "a", "raw/a is truncated"),
        (gzip.compress(b"Eins.") + b"Zwei.", "a", "raw/a cannot be decompressed"),
        ('{"text": "A."}\n{"text": "B', "a", "raw/a, line 2 is not valid JSON"),
        ('[{"text": "A."},\n{"text": "B."}]', "a", r"line 1 is not valid JSON.*\(JSON Lines\)"),
        ("Kein JSON.", "a.jsonl", r"raw/a\.jsonl, line 1 is not valid JSON"),
        ('{"content": "A."}', "a", r"line 1: text is missing.*'content'.*`text_key`"),
        ('{"text": ["A."]}', "a", r"line 1: text must be text\. Received: \['A\.'\]"),
        ("<?xml version='1.0'?><mediawiki>", "a", "raw/a contains HTML or XML"),
        (" \n\t\n", "a", r"There is no text in `input_file`: raw/a"),
    ],
)
def test_files_that_are_not_text_are_rejected_before_writing(text, name, message, folder):
    content = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    with pytest.raises(ValueError, match=message):
        prepare(content, f"raw/{name}")
    assert os.listdir() == ["raw"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"language": "german"}, "ISO 639.*'german'"),
        ({"input_file": "raw", "output_file": "raw/out.txt"}, "is in the input directory raw"),
        ({"output_file": "raw/a"}, "would overwrite the input"),
        ({"input_file": "raw/a,-"}, "no file matches '-'"),
        ({"input_file": "raw/b", "text_key": "name", "dry_run": True}, "name is missing.*'text'"),
    ],
)
def test_invalid_settings_are_rejected_before_writing(settings, message):
    Path("raw").mkdir()
    Path("raw/a").write_text(GERMAN)
    Path("raw/b").write_text('{"text": "A."}')
    with pytest.raises(ValueError, match=message):
        run(**{"input_file": "raw/a", **settings})
    assert (os.listdir(), sorted(os.listdir("raw"))) == (["raw"], ["a", "b"])
    assert not run("raw/a", dry_run=True)
    assert os.listdir() == ["raw"]


def test_missing_packages_are_named(monkeypatch):
    for name in ("icu4py.locale", "sentencex"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ValueError, match=rf"{name[:6]}.*albert_tf\[languages\]"):
            language_code("de")


def test_codes_of_languages():
    codes = {"de": "de", "deu": "de", "deu_Latn": "de", "pt-BR": "pt", "ZH": "zh", "xx": "xx"}
    assert {language: language_code(language) for language in codes} == codes


@pytest.mark.parametrize(
    ("code", "text", "number"),
    [
        ("hi", "यह एक है। वह दो है।", 2),
        ("zh", "你好。“再见。”他说", 3),
        ("ar", "هل هذا صحيح؟ نعم.", 2),
        ("th", "ต่าง ๆ ที่ทำงาน เขาไปแล้ว ปี 2530 นี้", 3),
        ("lo", "ສະບາຍດີ ຂ້ອຍໄປ", 2),
        ("km", "ខ្ញុំទៅសាលា។ អ្នកទៅណា", 2),
        ("xx", "Aa bb. Cc dd!", 2),
    ],
)
def test_sentences_of_other_languages(code, text, number):
    sentences = list(Splitter(code, "text").sentences([text]))
    assert len(sentences) == number
    assert "".join(sentences).replace(" ", "") == text.replace(" ", "")


def test_the_output_does_not_depend_on_the_number_of_processes(monkeypatch):
    """The files are read in parts; a document, a line and a sentence are longer than a part."""
    for module in (raw_text, prepare_text):
        monkeypatch.setattr(module, "PART_BYTES", 9999)
    Path("raw/sub").mkdir(parents=True)
    lines = [f"Satz {i} mit ü. Noch einer!" + "\n" * (1 + i % 3) for i in range(900)]
    Path("raw/a.txt").write_text("".join(lines), "utf-8")
    Path("raw/sub/b.txt").write_text("".join(lines).replace("\n", " "), "utf-8")
    Path("raw/sub/c.txt").write_bytes(("ü" * 19_999).encode())
    Path("raw/.hidden").write_bytes(b"\xff")
    texts = []
    for number in (1, 3):
        counts = run("raw", f"out{number}/part@3.txt", num_workers=number)
        files = [f"out{number}/part-0000{i}-of-00003.txt" for i in range(3)]
        texts.append([Path(name).read_text("utf-8") for name in files])
    assert texts[0] == texts[1]
    assert all(texts[0])
    assert counts["documents"] == sum(len(text.strip().split("\n\n")) for text in texts[0]) == 602
    assert max(len(line.encode()) for text in texts[0] for line in text.split("\n")) <= 4192
    written = re.sub(r"\s", "", "".join(texts[0]))
    names = "raw/a.txt", "raw/sub/b.txt", "raw/sub/c.txt"
    raw = "".join(Path(name).read_text("utf-8") for name in names)
    assert sorted(written) == sorted(re.sub(r"\s", "", raw))


def test_duplicates_are_dropped_on_request():
    text = "Eins. Zwei.\n\nDrei.\n\nEins.  Zwei.\n"
    assert prepare(text) == "Eins.\nZwei.\n\nDrei.\n\nEins.\nZwei.\n"
    assert prepare(text, drop_duplicates=True) == "Eins.\nZwei.\n\nDrei.\n"


def test_the_standard_input_is_read(monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO(gzip.compress(GERMAN.encode())))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run("-", num_workers=1)["sentences"] == 3
    assert Path("out.txt").read_text("utf-8") == SENTENCES


@pytest.mark.parametrize(("text", "is_wrapped"), [("Das ist\nein Satz.\n", True), (GERMAN, False)])
def test_wrapped_lines_are_reported(text, is_wrapped, caplog, monkeypatch):
    monkeypatch.setattr(logging.get_absl_logger(), "propagate", True)
    prepare(text)
    assert ("join the lines of each paragraph" in caplog.text) == is_wrapped


def test_long_lines_of_json_are_rejected(monkeypatch):
    monkeypatch.setattr(raw_text, "_LONGEST_JSON", 3 * PART_BYTES)
    Path("a").write_text('{"text": "A."}\n{"text": "' + "b" * 4 * PART_BYTES)
    parts = read_parts("a", int)
    assert read_documents(next(parts), "text") == [[], ["A."], []]
    with pytest.raises(ValueError, match="a, line 2 has more than 3,145,728 bytes"):
        next(parts)
