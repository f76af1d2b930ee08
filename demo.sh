#!/usr/bin/env bash
# Creates .venv and trains two models in a few minutes: a language model on Python's documentation,
# from raw text to an exported model, and a classifier of paragraphs from the bundled model mini.
# The same command continues an interrupted demo.
#
#   --output_dir=demo_output   local directory for all results; other flags are passed to
#                              `albert_tf pretrain`, such as --num_train_steps=2000
#   --help                     prints this text and installs nothing
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh
show_help "$@"
output=demo_output others=()
for argument; do
  case "$argument" in
    --output_dir=*) output=${argument#*=} ;;
    *) others+=("$argument") ;;
  esac
done
make_environment requirements.txt requirements/languages.txt
most_frequent=$("$PYTHON" -m scripts.python_texts "$output/texts")
"$PYTHON" -m albert_tf pretrain --text="$output/texts/text" --output_dir="$output/language_model" \
  --size=tiny --max_seq_length=32 --num_train_steps=320 ${others[@]+"${others[@]}"}
printf '\nFine-tuning mini: which chapter of the documentation is a paragraph from?\n\n'
"$PYTHON" -m albert_tf run_classifier --task_name=custom --albert_hub_module_handle=mini \
  --train_file="$output/texts/train.csv" --dev_file="$output/texts/dev.csv" \
  --text_a_column=paragraph --label_column=chapter --output_dir="$output/classifier" \
  --do_train --do_eval --max_seq_length=64 --train_step=64 --warmup_step=6 --log_steps=16
echo "Always the most frequent chapter: accuracy=$most_frequent"
