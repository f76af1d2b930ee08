r"""Fine-tunes and applies a token classifier, for example for named entities.

Files are in the column format of CoNLL (one word per line, blank lines between sentences) or in
JSON Lines. Select any combination of --do_train, --do_eval, --do_predict, --predict_file and
--export_dir.

    albert_tf run_token_classifier --train_file=train.conll --dev_file=dev.conll \
        --albert_hub_module_handle=mini --do_train --do_eval --max_seq_length=128 \
        --train_step=1000 --warmup_step=100 --output_dir=entities

    albert_tf run_token_classifier --output_dir=entities --predict_file=- < texts.txt
"""

from albert_tf.cli.app import command, job
from albert_tf.cli.flags import DEVICES, Flags
from albert_tf.token_classification.settings import TokenClassificationSettings

FLAGS = Flags(TokenClassificationSettings, DEVICES)
main = command(__name__, __doc__, FLAGS, job("run_token_classification"))
