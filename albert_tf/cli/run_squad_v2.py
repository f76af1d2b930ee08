r"""Runs run_squad with --squad_version=2, as in the original release.

A question may have no answer in its context, as in SQuAD 2.0.

    albert_tf run_squad_v2 --train_file=train-v2.0.json --predict_file=dev-v2.0.json \
        --albert_hub_module_handle=base_v2 --recipe=auto --do_train --do_predict \
        --output_dir=squad2
"""

from dataclasses import dataclass

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.cli.run_squad import WITHOUT_EFFECT, run
from albert_tf.settings import setting
from albert_tf.squad.settings import SquadSettings


@dataclass(frozen=True, kw_only=True)
class Squad2Settings(SquadSettings):
    """Settings of one version."""

    squad_version: int | None = setting(2, "Data", at_least=2, at_most=2)("""
        Must be 2 in this command; run_squad supports both versions.""")


FLAGS = Flags(Squad2Settings, WITHOUT_EFFECT)

main = command(__name__, __doc__, FLAGS, run)
