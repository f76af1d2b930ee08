r"""Runs run_squad with --squad_version=1, as in the original release.

Every question has an answer in its context, as in SQuAD 1.1.

    albert_tf run_squad_v1 --train_file=train-v1.1.json --predict_file=dev-v1.1.json \
        --albert_hub_module_handle=base_v2 --recipe=auto --do_train --do_predict \
        --output_dir=squad1
"""

from dataclasses import dataclass

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.cli.run_squad import WITHOUT_EFFECT, run
from albert_tf.settings import setting
from albert_tf.squad.settings import SquadSettings


@dataclass(frozen=True, kw_only=True)
class Squad1Settings(SquadSettings):
    """Settings of one version."""

    squad_version: int | None = setting(1, "Data", at_least=1, at_most=1)("""
        Must be 1 in this command; run_squad supports both versions.""")


FLAGS = Flags(Squad1Settings, WITHOUT_EFFECT)

main = command(__name__, __doc__, FLAGS, run)
