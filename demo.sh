#!/usr/bin/env bash
# Creates .venv and runs the demo: every step from text to an exported model, in a few minutes.
# Arguments are passed to the demo, for example: ./demo.sh --output_dir=/tmp/demo --num_train_steps=500
#
#   --output_dir=demo_output   local directory for all results
#   --max_documents=N          number of documents of the corpus; default: all
#   --vocab_size=1000          size of the vocabulary
#   --num_train_steps=1500     number of pretraining steps
#   --num_fine_tuning_steps=N  number of steps of fine-tuning the classifier; 0 skips it; default: the recipe of mini
#   --help                     prints this text and installs nothing
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh
show_help "$@"
make_environment requirements.txt
exec "$PYTHON" -m albert_tf.cli.demo "$@"
