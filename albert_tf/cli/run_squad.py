r"""Fine-tunes and applies a model for question answering, such as SQuAD.

Each question comes with a context, and its answer is a span of the context. In version 1 every
question has an answer; in version 2 some questions have none. Select any combination of --do_train,
--do_predict, --predict_json and --export_dir.

    albert_tf run_squad --squad_version=2 --train_file=train-v2.0.json \
        --predict_file=dev-v2.0.json --albert_hub_module_handle=base_v2 --recipe=auto \
        --do_train --do_predict --output_dir=squad2

    albert_tf run_squad --output_dir=squad2 --predict_json=questions.jsonl \
        --predict_output_file=answers.jsonl
"""

from dataclasses import make_dataclass

from albert_tf.cli.app import command, job
from albert_tf.cli.flags import DEVICES, FEATURE_FILE, Flags
from albert_tf.settings import setting
from albert_tf.squad.settings import SquadSettings

_FEATURE_FILES = ("train_feature_file", "predict_feature_file", "predict_feature_left_file")
WITHOUT_EFFECT = {
    **DEVICES,
    **dict.fromkeys(_FEATURE_FILES, FEATURE_FILE),
    "use_einsum": (True, "No effect."),
}


def flags_of_version(version: int) -> Flags:
    """Returns the flags of the command for one version."""
    only = setting(version, "Data", at_least=version, at_most=version)(
        f"Must be {version} in this command; run_squad supports both versions."
    )
    fields = [("squad_version", int | None, only)]
    kind = make_dataclass("OneVersion", fields, bases=(SquadSettings,), frozen=True, kw_only=True)
    return Flags(kind, WITHOUT_EFFECT)


main = command(__name__, __doc__, Flags(SquadSettings, WITHOUT_EFFECT), job("run_squad"))
