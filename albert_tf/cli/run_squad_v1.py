r"""Runs run_squad with --squad_version=1, as in the original release.

Every question has an answer in its context, as in SQuAD 1.1.

    albert_tf run_squad_v1 --train_file=train-v1.1.json --predict_file=dev-v1.1.json \
        --albert_hub_module_handle=base_v2 --recipe=auto --do_train --do_predict \
        --output_dir=squad1
"""

from albert_tf.cli.app import command, job
from albert_tf.cli.run_squad import flags_of_version

main = command(__name__, __doc__, flags_of_version(1), job("run_squad"))
