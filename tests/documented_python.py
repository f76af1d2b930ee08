"""The `python` of documented commands, which appends flags for small sizes.

The flags in `SMALL` follow the flags of the command. The last value of a flag counts. This program
uses only the standard library:

    python documented_python.py INTERPRETER WORKSPACE ARGUMENTS...
"""

import glob
import json
import os
import re
import subprocess
import sys
import time

LOG = "commands.jsonl"  # in the workspace: commands and their durations, for debugging
EXPORTS = "exports.json"  # in the workspace: directories that are named after the time of an export

# Command: what its command line must have (a regular expression), and the flags that are added.
SMALL = {
    "pretrain": [
        ("", "--num_train_steps=8 --train_batch_size=4"),
        ("^(?!.*--init_checkpoint)", "--size=tiny"),
        ("--vocab_size", "--vocab_size=500"),
    ],
    "train_sentencepiece": [("", "--vocab_size=1000")],
    "run_pretraining": [
        ("", "--num_train_steps=2 --num_warmup_steps=1 --save_checkpoints_steps=2"),
        ("", "--train_batch_size=4 --eval_batch_size=4"),
        ("--gradient_accumulation_steps", "--gradient_accumulation_steps=2"),
        ("--num_decay_steps", "--num_decay_steps=1"),
        (
            r"--albert_config_file=(albert_config|\w+_layers).json",
            "--albert_config_file=small.json",
        ),
    ],
    "run_ablations": [
        ("", "--num_train_steps=2 --comparisons=depth --depths=1 --base_seeds=1"),
        ("", "--albert_config_file=small.json"),
    ],
    "run_classifier": [
        ("--do_train", "--train_step=2 --warmup_step=1 --save_checkpoints_steps=2"),
        ("--do_train", "--train_batch_size=4"),
    ],
    "run_token_classifier": [
        ("--do_train", "--train_step=2 --warmup_step=1 --save_checkpoints_steps=2"),
        ("--do_train", "--train_batch_size=4"),
    ],
    "run_squad": [
        ("--do_train", "--num_train_epochs=1 --train_batch_size=6 --save_checkpoints_steps=2")
    ],
    "run_race": [
        ("--do_train", "--train_step=2 --warmup_step=1 --save_checkpoints_steps=2"),
        ("--do_train", "--train_batch_size=2"),
    ],
    "run_glue": [("", "--seeds=1")],
    "pretraining_step": [("", "--batch_size=4 --max_seq_length=16 --rounds=1")],
    "rematerialization": [("", "--preset=base_v2 --max_seq_length=16 --batch_size=1 --steps=1")],
    "classifier_evaluation": [("", "--max_seq_length=16 --max_rows=2 --rounds=1")],
    "text_features": [("", "--rounds=1")],
    "data_creation": [("", "--rounds=1")],
    "tokenization": [("", "--rounds=1")],
    "graph_tokenizer": [("", "--lines=300")],
}


def name_of(arguments):
    """Returns the name of a command, such as `run_race` for `-m albert_tf.cli.run_race`."""
    if arguments[:2] == ["-m", "albert_tf"]:
        return arguments[2]
    if arguments[:1] == ["-m"]:
        return arguments[1].rpartition(".")[2]
    program = os.path.basename(arguments[0]) if arguments else ""
    return re.sub(r"\.(py|sh)$", "", program)


def with_small_sizes(arguments):
    """Returns the arguments with additional flags at the end or before `--`."""
    line = " ".join(arguments)
    further = [
        flag
        for needed, flags in SMALL.get(name_of(arguments), ())
        if re.search(needed, line) and "--help" not in arguments
        for flag in flags.split()
    ]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:end], *further, *arguments[end:]]


def link_exports(workspace):
    """Links the newest exports to the names in the documentation."""
    with open(os.path.join(workspace, EXPORTS)) as file:
        names = json.load(file)
    for name in names:
        written = glob.glob(os.path.join(os.path.dirname(name), "[0-9]" * 10))
        if written and not os.path.lexists(name):
            os.symlink(os.path.basename(max(written)), name)


def main(interpreter, workspace, *arguments):
    start = time.time()
    command = with_small_sizes(list(arguments))
    program = [] if command[0].endswith(".sh") else [interpreter]
    status = subprocess.call([*program, *command])
    if "--help" in command and status == 1:
        status = 0  # absl exits with status 1 after --help
    if status == 0:
        link_exports(workspace)
    record = {"status": status, "seconds": round(time.time() - start, 1), "command": command}
    with open(os.path.join(workspace, LOG), "a") as file:
        file.write(json.dumps(record) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
