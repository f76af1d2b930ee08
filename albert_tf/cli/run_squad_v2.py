r"""Runs run_squad with --squad_version=2, as in the original release.

A question may have no answer in its context, as in SQuAD 2.0.

    albert_tf run_squad_v2 --train_file=train-v2.0.json --predict_file=dev-v2.0.json \
        --albert_hub_module_handle=base_v2 --recipe=auto --do_train --do_predict \
        --output_dir=squad2
"""

from albert_tf.cli.app import command, job
from albert_tf.cli.run_squad import flags_of_version

main = command(__name__, __doc__, flags_of_version(2), job("run_squad"))
