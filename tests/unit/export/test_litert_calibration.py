"""Texts to calibrate with, as the model will see them."""

import numpy as np
import pytest

from albert_tf.export.litert_calibration import MOST_SEQUENCES, calibration_sequences
from albert_tf.tokenization import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer(golden):
    return load_tokenizer(
        spm_model_file=str(golden / "hub" / "albert_directory" / "30k-clean.model")
    )


def test_texts_and_pairs_are_laid_out_as_for_the_model(tmp_path, tokenizer):
    path = tmp_path / "texts.txt"
    path.write_bytes("\ufeffThe end.\r\n\n  \nWhat is it?\tA very long answer to it.\n".encode())
    found = calibration_sequences(str(path), tokenizer, 9)
    first, question = tokenizer.encode("The end."), tokenizer.encode("What is it?")
    batch = found.padded(np.arange(2), 9)
    assert batch["input_ids"][0].tolist()[: len(first) + 2] == [
        tokenizer.cls_id,
        *first,
        tokenizer.sep_id,
    ]
    assert found.lengths.tolist() == [min(len(first) + 2, 9), 9]
    assert batch["segment_ids"][0].sum() == 0
    assert 0 < batch["segment_ids"][1].sum() < 9 - min(len(question), 3)


def test_of_many_lines_some_are_taken_from_everywhere(tmp_path, tokenizer):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{'word ' * (1 + number // 200)}\n" for number in range(1000)))
    lengths = calibration_sequences(str(path), tokenizer, 40).lengths
    assert len(lengths) == MOST_SEQUENCES
    assert len(set(lengths.tolist())) == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no text in it"),
        (b"\n \t\n\r\n", "has no text in it"),
        (b"good\n\xff\xfe\n", r"texts\.txt.*line 2"),
        (b"\na\tb\tc\n", r"line 2: expected a text, or two.*Received 2 tabs: 'a\\tb\\tc'"),
    ],
)
def test_unusable_files_are_named(tmp_path, tokenizer, content, message):
    path = tmp_path / "texts.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"--calibration_file.*{message}"):
        calibration_sequences(str(path), tokenizer, 9)


def test_a_missing_file_and_a_folder_are_named(tmp_path, tokenizer):
    with pytest.raises(ValueError, match=r"--calibration_file .*gone' does not exist"):
        calibration_sequences(str(tmp_path / "gone"), tokenizer, 9)
    with pytest.raises(ValueError, match=r"--calibration_file .* is a folder"):
        calibration_sequences(str(tmp_path), tokenizer, 9)
