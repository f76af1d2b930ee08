#!/usr/bin/env bash
# Fine-tunes a model on the tasks of GLUE with the published settings (--recipe=auto), predicts their
# test sets, and collects the development scores of all seeds in one table:
#
#   ./run_glue.sh --data_dir=GLUE --model=base_v2 --output_dir=glue_results
#
#   --data_dir=DIR          the GLUE download: CoLA/, MNLI/, ... and diagnostic/ (or AX/)
#   --model=MODEL           pretrained model: a name such as base_v2, a TF-Hub module (directory or URL),
#                           or a directory with albert_config.json, tokenizer and checkpoint
#   --output_dir=DIR        contains a directory <task>-seed<seed> per run, and the table
#   --tasks="RTE CoLA"      some of MNLI RTE STS-B MRPC CoLA SST-2 QNLI QQP WNLI; default: all
#   --seeds="1 2 3"         default: 1 2 3 4 5
#   --mnli_checkpoint=CKPT  an MNLI model of this size, from which RTE, STS-B and MRPC start
#   --submission=FILE.zip   also writes the zip file for the GLUE server; requires all tasks
#   --dry_run               print every command, check each task with its first seed, write nothing
#   -- FLAGS                additional flags of run_classifier.py, which override the published
#                           settings: -- --max_seq_length=128 --train_batch_size=8
#
# RTE, STS-B and MRPC start from the MNLI model of the same seed in --output_dir, if there is one.
# Each MNLI model also predicts the mismatched sets (mismnli-seed<seed>) and the diagnostic set
# (ax-seed<seed>). After an interruption, the same command skips finished runs and continues. Runs
# that fail are listed at the end, with exit status 1; the other runs are not affected.
#
# Uses the .venv created by demo.sh, unless a virtual environment is active.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DATA_DIR="" MODEL="" OUTPUT_DIR="" MNLI_CHECKPOINT="" SUBMISSION="" DRY_RUN="" SEEDS="1 2 3 4 5"
ALL_TASKS="mnli rte sts-b mrpc cola sst-2 qnli qqp wnli" # MNLI first: others start from its model
TASKS=$ALL_TASKS FAILED=""

fail() {
  echo "run_glue.sh: error: $*" >&2
  exit 1
}

contains() { # <words separated by spaces> <word>
  case " $1 " in *" $2 "*) ;; *) return 1 ;; esac
}

run_task() { # <task> <seed> <flags...>: runs run_classifier.py, unless this run is finished
  local task=$1 seed=$2 directory=$OUTPUT_DIR/$1-seed$2 flags known
  shift 2
  set -- --task_name="$task" --data_dir="$DATA_DIR" --output_dir="$directory" --seed="$seed" \
    --albert_hub_module_handle="$MODEL" --recipe=auto "$@"
  flags=$(printf '%q ' "$@")
  known=$(cat "$directory"/run_glue.*finished 2>/dev/null || echo "$flags")
  if [ "$known" != "$flags" ]; then
    echo "run_glue.sh: $directory contains a run with other flags: $known" >&2
    echo "Received: $flags. Remove the directory, or use another --output_dir." >&2
    FAILED="$FAILED $task-seed$seed"
    return
  fi
  [ ! -f "$directory/run_glue.finished" ] || return 0
  printf '\n+ run_classifier %s\n' "$flags"
  if [ -z "$DRY_RUN" ]; then
    mkdir -p "$directory" && echo "$flags" >"$directory/run_glue.unfinished" &&
      "$PYTHON" -m albert_tf.cli.run_classifier "$@" &&
      mv "$directory/run_glue.unfinished" "$directory/run_glue.finished"
  elif [ "$seed" = "${SEEDS%% *}" ] && ! contains "mismnli ax" "$task"; then
    "$PYTHON" -m albert_tf.cli.run_classifier "$@" --dry_run
  fi || FAILED="$FAILED $task-seed$seed"
}

fine_tune() { # <task> <seed> <flags...>
  local task=$1 seed=$2 mnli=$OUTPUT_DIR/mnli-seed$2 start=()
  shift 2
  if contains "rte sts-b mrpc" "$task"; then
    if [ -n "$MNLI_CHECKPOINT" ]; then
      start=(--init_checkpoint="$MNLI_CHECKPOINT")
    elif [ -f "$mnli/run_glue.finished" ]; then
      start=(--init_checkpoint="$mnli/model.ckpt-best")
    elif [ -z "$DRY_RUN" ] && contains "$TASKS" mnli; then
      FAILED="$FAILED $task-seed$seed" # the MNLI model, from which it would start, failed
      return
    else
      echo "run_glue.sh: $task starts from --model; published scores start from an MNLI model"
    fi
  fi
  run_task "$task" "$seed" --do_train --do_eval --do_predict ${start[@]+"${start[@]}"} "$@"
  if [ "$task" = mnli ] && { [ -n "$DRY_RUN" ] || [ -f "$mnli/run_glue.finished" ]; }; then
    run_task mismnli "$seed" --nodo_train --do_eval --do_predict --checkpoint="$mnli/model.ckpt-best" "$@"
    [ -z "$(ls "$DATA_DIR"/{diagnostic,AX}/diagnostic.tsv 2>/dev/null)" ] ||
      run_task ax "$seed" --nodo_train --nodo_eval --do_predict --checkpoint="$mnli/model.ckpt-best" "$@"
  fi
}

while [ $# -gt 0 ]; do
  case "$1" in
    --data_dir=*) DATA_DIR=${1#*=} ;;
    --model=*) MODEL=${1#*=} ;;
    --output_dir=*) OUTPUT_DIR=${1#*=} ;;
    --tasks=*) TASKS=$(echo "${1#*=}" | tr '[:upper:]' '[:lower:]') ;;
    --seeds=*) SEEDS=${1#*=} ;;
    --mnli_checkpoint=*) MNLI_CHECKPOINT=${1#*=} ;;
    --submission=*) SUBMISSION=${1#*=} ;;
    --dry_run) DRY_RUN=1 ;;
    -h | --help)
      sed -n -e '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" # the comment above
      exit
      ;;
    --)
      shift
      break # "$@" is now the flags for run_classifier.py
      ;;
    *) fail "unknown argument '$1'. Use --name=value; flags of run_classifier.py follow --. See --help." ;;
  esac
  shift
done
[ -n "$DATA_DIR" ] && [ -n "$MODEL" ] && [ -n "$OUTPUT_DIR" ] || fail "--data_dir, --model and --output_dir are required"
case "$OUTPUT_DIR" in *://*) fail "--output_dir must be a local directory. Received: '$OUTPUT_DIR'" ;; esac
[ -n "${TASKS// /}" ] || fail "--tasks must name at least one of $ALL_TASKS"
for task in $TASKS; do
  contains "$ALL_TASKS" "$task" || fail "--tasks: unknown task '$task'. Supported: $ALL_TASKS"
done
case "${SEEDS// /}" in "" | *[!0-9]*) fail "--seeds must be whole numbers separated by spaces. Received: '$SEEDS'" ;; esac
if [ -z "${VIRTUAL_ENV:-}" ] && [ -x "$ROOT/.venv/bin/python" ]; then PYTHON=$ROOT/.venv/bin/python; else PYTHON=python; fi
export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH}
trap 'exit 130' INT # ends this script, not only the current run
for seed in $SEEDS; do
  for task in $ALL_TASKS; do
    if contains "$TASKS" "$task"; then
      fine_tune "$task" "$seed" "$@"
    fi
  done
done
if [ -z "$DRY_RUN" ]; then
  "$PYTHON" -m albert_tf.cli.glue_results --results_dir="$OUTPUT_DIR" --model="$MODEL" \
    ${SUBMISSION:+--submission="$SUBMISSION"} || FAILED="$FAILED glue_results"
fi
[ -z "$FAILED" ] || fail "These runs failed:$FAILED. The same command runs them again."
