r"""Fine-tunes and applies a text classifier, on GLUE tasks or custom data.

Custom files are TSV, CSV or JSON Lines with a column of texts and a column of labels (numbers with
--regression). Select any combination of --do_train, --do_eval, --do_predict,
--predict_file and --export_dir.

    albert_tf run_classifier --task_name=mrpc --data_dir=GLUE \
        --albert_hub_module_handle=base_v2 --recipe=auto --do_train --do_eval \
        --output_dir=mrpc

    albert_tf run_classifier --task_name=custom --train_file=train.csv --dev_file=dev.csv \
        --albert_hub_module_handle=mini --do_train --do_eval --max_seq_length=128 \
        --train_step=1000 --warmup_step=100 --output_dir=topics

    albert_tf run_classifier --output_dir=topics --predict_file=texts.txt \
        --predict_output_file=labels.tsv
"""

from albert_tf.classification.settings import ClassificationSettings
from albert_tf.cli.app import command, job
from albert_tf.cli.flags import DEVICES, FEATURE_FILE, Flags

FLAGS = Flags(ClassificationSettings, DEVICES | {"cached_dir": FEATURE_FILE})
main = command(__name__, __doc__, FLAGS, job("run_classification"))
