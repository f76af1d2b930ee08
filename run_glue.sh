#!/usr/bin/env bash
# Fine-tunes a model on the tasks of GLUE with the published settings (--recipe=auto), predicts their
# test sets, and puts the development scores of all seeds into one table:
#
#   ./run_glue.sh --data_dir=GLUE --model=albert_base --output_dir=glue_results
#
#   --data_dir=DIR          the GLUE download: CoLA/, MNLI/, ... and diagnostic/ (or AX/)
#   --model=MODEL           what to start from: a TF-Hub module (directory or URL) or a directory with
#                           albert_config.json, tokenizer and checkpoint
#   --output_dir=DIR        takes a directory <task>-seed<seed> for each run, and the table
#   --tasks="RTE CoLA"      some of MNLI RTE STS-B MRPC CoLA SST-2 QNLI QQP WNLI; default: all
#   --seeds="1 2 3"         default: 1 2 3 4 5
#   --mnli_checkpoint=CKPT  an MNLI model of this size, for RTE, STS-B and MRPC to start from
#   --submission=FILE.zip   also writes the zip GLUE's server takes; needs all tasks
#   --dry_run               print every command, check each task with its first seed, write nothing
#   -- FLAGS                further flags of run_classifier.py, which override the published settings:
#                           -- --max_seq_length=128 --train_batch_size=8
#
# RTE, STS-B and MRPC start from the MNLI model of the same seed: that of this call, or one that lies
# in --output_dir from an earlier call, or --mnli_checkpoint; without any of these, from --model. Each
# MNLI model is also scored on the mismatched sets (mismnli-seed<seed>) and answers the diagnostic set
# (ax-seed<seed>), if the download has them.
#
# The same call resumes one that was stopped: finished runs are skipped, unfinished ones resume at
# their last checkpoint; a run with other flags needs another --output_dir. A run that fails is named
# at the end, with status 1; the others are not affected.
#
# An active environment (VIRTUAL_ENV or CONDA_PREFIX) that has TensorFlow is used; otherwise .venv, as
# demo.sh makes it.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DATA_DIR="" MODEL="" OUTPUT_DIR="" MNLI_CHECKPOINT="" SUBMISSION="" DRY_RUN="" SEEDS="1 2 3 4 5"
ALL_TASKS="MNLI RTE STS-B MRPC CoLA SST-2 QNLI QQP WNLI"
TASKS=$ALL_TASKS
FURTHER=()
FAILED=()

fail() {
  echo "run_glue.sh: error: $*" >&2
  exit 1
}

read_arguments() {
  while [ $# -gt 0 ]; do
    case "$1" in
      --data_dir=*) DATA_DIR=${1#*=} ;;
      --model=*) MODEL=${1#*=} ;;
      --output_dir=*) OUTPUT_DIR=${1#*=} ;;
      --tasks=*) TASKS=${1#*=} ;;
      --seeds=*) SEEDS=${1#*=} ;;
      --mnli_checkpoint=*) MNLI_CHECKPOINT=${1#*=} ;;
      --submission=*) SUBMISSION=${1#*=} ;;
      --dry_run) DRY_RUN=1 ;;
      -h | --help)
        sed -n -e '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" # the comment above
        exit 0
        ;;
      --)
        shift
        FURTHER=("$@")
        return 0
        ;;
      *) fail "unknown argument '$1'. Write --name=value; flags of run_classifier.py come after --. ./run_glue.sh --help lists them." ;;
    esac
    shift
  done
}

lower() {
  echo "$1" | tr '[:upper:]' '[:lower:]'
}

check_arguments() {
  local task wanted=" "
  [ -n "$DATA_DIR" ] || fail "--data_dir is missing: the GLUE download"
  [ -n "$MODEL" ] || fail "--model is missing: what to start from"
  [ -n "$OUTPUT_DIR" ] || fail "--output_dir is missing: where results go"
  case "$OUTPUT_DIR" in
    *://*) fail "--output_dir must be a local directory. Received: '$OUTPUT_DIR'" ;;
    /*) ;;
    *) OUTPUT_DIR=./$OUTPUT_DIR ;; # so that no command takes it for an option
  esac
  for task in $TASKS; do
    case " $(lower "$ALL_TASKS") " in
      *" $(lower "$task") "*) ;;
      *) fail "--tasks: unknown task '$task'. Tasks are $ALL_TASKS; the sets MNLI-mm and AX come with MNLI." ;;
    esac
    case "$wanted" in *" $(lower "$task") "*) ;; *) wanted="$wanted$(lower "$task") " ;; esac
  done
  case "$wanted" in *" mnli "*) wanted="mnli${wanted/ mnli / }" ;; esac # others start from its model
  TASKS=$wanted
  [ -n "${TASKS// /}" ] || fail "--tasks names no task. Tasks are $ALL_TASKS."
  case "$SEEDS" in *[!0-9\ ]*) fail "--seeds must be whole numbers with blanks between. Received: '$SEEDS'" ;; esac
  SEEDS=$(echo $SEEDS)
  [ -n "$SEEDS" ] || fail "--seeds names no seed."
}

# Sets PYTHON to the interpreter of the active environment, or to that of .venv, which a dry run does
# not make.
choose_python() {
  local active=${VIRTUAL_ENV:-${CONDA_PREFIX:-}} start=$PWD
  if [ -n "$active" ] && "$active/bin/python" -c 'import importlib.util as u; assert u.find_spec("tensorflow")' 2>/dev/null; then
    PYTHON=$active/bin/python
    return 0
  fi
  if [ -n "$DRY_RUN" ]; then
    PYTHON=.venv/bin/python
  else
    cd "$ROOT"
    . scripts/environment.sh
    make_environment requirements.txt || exit 1
    cd "$start"
  fi
  PYTHON=$ROOT/$PYTHON
}

python_module() {
  PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} "$PYTHON" -m "$@"
}

# run_task <task> <seed> <flags...>: one run of run_classifier.py, unless it has finished earlier.
# Its directory holds the flags of the run, in run_glue.unfinished until it ends well, then in
# run_glue.finished.
run_task() {
  local task=$1 seed=$2 directory=$OUTPUT_DIR/$1-seed$2 flags file
  shift 2
  set -- --task_name="$task" --data_dir="$DATA_DIR" --output_dir="$directory" --seed="$seed" \
    --albert_hub_module_handle="$MODEL" "$@" ${FURTHER[@]+"${FURTHER[@]}"}
  flags=$(printf '%q ' "$@")
  for file in "$directory/run_glue.finished" "$directory/run_glue.unfinished"; do
    if [ -f "$file" ] && [ "$(cat "$file")" != "$flags" ]; then
      # Its checkpoints came from other settings: resuming from them would mix the two.
      printf '\nrun_glue.sh: %s holds a run with other flags:\n  %s\nnow:\n  %s\nRemove it, or give another --output_dir.\n' \
        "$directory" "$(cat "$file")" "$flags" >&2
      return 1
    fi
  done
  if [ -f "$directory/run_glue.finished" ]; then
    printf '\n%s with seed %s: finished earlier\n' "$task" "$seed"
    return 0
  fi
  printf '\n+ run_classifier %s\n' "$flags"
  if [ -n "$DRY_RUN" ]; then
    check_task "$seed" "$directory" "$@"
    return
  fi
  mkdir -p "$directory" || return 1
  printf '%s\n' "$flags" >"$directory/run_glue.unfinished" || return 1
  python_module albert_tf.cli.run_classifier "$@" || return 1
  mv "$directory/run_glue.unfinished" "$directory/run_glue.finished"
}

# --dry_run of a run: of the first seed, and of runs that have begun; the others differ in nothing that
# can be wrong. What needs an MNLI model that is still to be trained is checked without it.
check_task() {
  local seed=$1 directory=$2 mnli=$OUTPUT_DIR/mnli-seed$1/model.ckpt-best argument checked=()
  shift 2
  [ "$seed" = "${SEEDS%% *}" ] || [ -d "$directory" ] || return 0
  for argument; do
    if [ "${argument#*=}" = "$mnli" ] && [ ! -f "$mnli.index" ]; then
      echo "${argument%%=*}: the MNLI model is not there yet"
      [ "${argument%%=*}" = --init_checkpoint ] || return 0
    else
      checked+=("$argument")
    fi
  done
  python_module albert_tf.cli.run_classifier "${checked[@]}" --dry_run
}

# Prints the MNLI model of a seed the others start from; nothing where there is none.
mnli_checkpoint() {
  local directory=$OUTPUT_DIR/mnli-seed$1
  if [ -n "$MNLI_CHECKPOINT" ]; then
    echo "$MNLI_CHECKPOINT"
  elif [ -f "$directory/run_glue.finished" ] || { [ -n "$DRY_RUN" ] && [ "${TASKS%% *}" = mnli ]; }; then
    echo "$directory/model.ckpt-best"
  fi
}

note_failure() {
  FAILED+=("$1-seed$2")
  echo "run_glue.sh: $1 with seed $2 failed${3:+: $3}" >&2
}

# The task of a seed; for MNLI its further sets as well.
fine_tune() {
  local task=$1 seed=$2 checkpoint="" start=()
  case "$task" in
    rte | sts-b | mrpc)
      checkpoint=$(mnli_checkpoint "$seed")
      if [ -n "$checkpoint" ]; then
        start=(--init_checkpoint="$checkpoint")
      elif [ "${TASKS%% *}" = mnli ]; then
        note_failure "$task" "$seed" "it starts from the MNLI model of this seed, which failed"
        return 0
      else
        echo "run_glue.sh: $task starts from --model; published scores start from an MNLI model (--tasks with MNLI, or --mnli_checkpoint)"
      fi
      ;;
  esac
  if ! run_task "$task" "$seed" --recipe=auto --do_train --do_eval --do_predict ${start[@]+"${start[@]}"}; then
    note_failure "$task" "$seed"
  elif [ "$task" = mnli ]; then
    checkpoint=$OUTPUT_DIR/mnli-seed$seed/model.ckpt-best
    run_task mismnli "$seed" --recipe=auto --nodo_train --do_eval --do_predict --checkpoint="$checkpoint" ||
      note_failure mismnli "$seed"
    if [ -f "$DATA_DIR/diagnostic/diagnostic.tsv" ] || [ -f "$DATA_DIR/AX/diagnostic.tsv" ]; then
      run_task ax "$seed" --recipe=auto --nodo_train --nodo_eval --do_predict --checkpoint="$checkpoint" ||
        note_failure ax "$seed"
    fi
  fi
}

trap 'exit 130' INT # ends the script, not only the run under way
read_arguments "$@"
check_arguments
choose_python
for seed in $SEEDS; do
  for task in $TASKS; do
    fine_tune "$task" "$seed"
  done
done
echo
if [ -z "$DRY_RUN" ]; then
  python_module albert_tf.cli.glue_results --results_dir="$OUTPUT_DIR" --model="$MODEL" \
    ${SUBMISSION:+--submission="$SUBMISSION"} || FAILED+=("the table or the zip file")
fi
if [ ${#FAILED[@]} -gt 0 ]; then
  echo "run_glue.sh: failed: ${FAILED[*]}. The same call tries these again." >&2
  exit 1
fi
