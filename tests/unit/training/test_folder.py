"""What may lie in the directory of a training."""

import pytest

from albert_tf.training.trainer import check_training_folder


def test_a_new_directory_and_one_of_a_run_are_fine(tmp_path):
    check_training_folder(str(tmp_path / "new" / "run"), "--output_dir")
    for name in ("tensorboard", "train_state"):
        (tmp_path / name).mkdir()
    for name in ("run_config.json", "metrics.jsonl", "training_curves.png"):
        (tmp_path / name).write_text("")
    check_training_folder(str(tmp_path), "--output_dir")


@pytest.mark.parametrize("name", ["run_config.json", "metrics.jsonl", "training_curves.png"])
def test_a_folder_in_the_place_of_a_file_is_told(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"^--output_dir .* has a folder {name}, where"):
        check_training_folder(str(tmp_path), "--output_dir")


@pytest.mark.parametrize("name", ["tensorboard", "train_state"])
def test_a_file_in_the_place_of_a_folder_is_told(tmp_path, name):
    (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match=f"^--output_dir .* has a file {name}, where"):
        check_training_folder(str(tmp_path), "--output_dir")
