"""Whether a directory can take what a training leaves in it, found out before the training."""

from __future__ import annotations

import os

import tensorflow as tf

from albert_tf.checkpoints.directory_lock import TRAINING, check_unlocked
from albert_tf.checkpoints.training_directory import TRAIN_STATE
from albert_tf.data.disk import check_folder
from albert_tf.run_log import CURVES_FILE, METRICS_FILE, RUN_CONFIG_FILE, TENSORBOARD_FOLDER


def check_training_folder(path: str, flag: str) -> None:
    """Makes sure that a training can write its files and folders.

    Args:
        path: directory of the run; need not exist.
        flag: where it came from.

    Raises:
        ValueError: it cannot be written to, or has a folder where a file is to be, or a file where
            a folder is to be.
        DirectoryLockedError: another run trains there.
    """
    check_folder(path, flag)
    check_unlocked(path, TRAINING)
    for name in (RUN_CONFIG_FILE, METRICS_FILE, CURVES_FILE):
        if tf.io.gfile.isdir(os.path.join(path, name)):
            raise ValueError(
                f"{flag} {path!r} has a folder {name}, where a training writes a file of that "
                "name. Move the folder away, or give another directory."
            )
    for name in (TENSORBOARD_FOLDER, TRAIN_STATE):
        place = os.path.join(path, name)
        if tf.io.gfile.exists(place) and not tf.io.gfile.isdir(place):
            raise ValueError(
                f"{flag} {path!r} has a file {name}, where a training makes a folder of that "
                "name. Move the file away, or give another directory."
            )
