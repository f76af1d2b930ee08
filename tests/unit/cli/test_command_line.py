"""What is said of mistakes on a command line."""

import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from albert_tf.cli.command_line import commands_with, find_mistakes
from albert_tf.cli.flag_descriptions import defined_flags
from albert_tf.cli.flag_files import Argument

ROOT = Path(__file__).parents[3]
NEEDED = ["--output_dir=out"]


@pytest.fixture(scope="module")
def classifier():
    with defined_flags("run_classifier") as described:
        yield described.flags()


def mistakes(described, *texts, needed=True, **options):
    arguments = [Argument(text) for text in [*texts, *(NEEDED if needed else ())]]
    settings = {"takes_paths": False, **options}
    return find_mistakes("run_classifier", described, arguments, **settings)


@pytest.mark.parametrize(
    "texts",
    [
        ["--do_train", "--nodo_eval", "-seed=3", "--do_predict=False", "--do_eval=1"],
        ["--seed", "3", "--seed=-4", "--learning_rate", "-1e-3"],
        ["--task_name", "true", "--label_column=", "--text_a_column=--seed=3"],
        ["--verbosity=1", "--nonsense=3", "--undefok=nonsense,other", "--noother"],
        ["--cached_dir=two words", "--precision=float16"],
    ],
)
def test_what_is_right_is_let_pass(classifier, texts):
    assert mistakes(classifier, *texts) == []


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ["--trian_batch_size=3"],
            "There is no flag --trian_batch_size. Did you mean --train_batch_size?",
        ),
        (["--Train-Batch-Size", "3"], "no flag --Train-Batch-Size. Did you mean --train_batch_s"),
        (["--nodo_tarin"], "There is no flag --nodo_tarin. Did you mean --nodo_train?"),
        (
            ["--batch_size=8"],
            "Did you mean --train_batch_size or --eval_batch_size or --predict_batch_size?",
        ),
        (["--max-seq-len=8"], "There is no flag --max-seq-len. Did you mean --max_seq_length?"),
        (["--verbositi=1"], "Did you mean --verbosity?"),
        (
            ["--max_predictions_per_seq=20"],
            "--max_predictions_per_seq is a flag of create_pretraining_data, run_pretraining, "
            "memory, not of run_classifier.",
        ),
        (
            ["--num_train_steps=9"],
            "is a flag of run_pretraining, run_ablations, demo, not of run_classifier. Did you "
            "mean --train_step?",
        ),
        (["task_name=mrpc"], "Flags begin with two dashes: write --task_name=mrpc"),
        (["do_train"], "Flags begin with two dashes: write --do_train"),
        (["\N{EM DASH}task_name=mrpc"], "Flags begin with two dashes: write --task_name=mrpc"),
        (["\N{EN DASH}-do_train"], "Flags begin with two dashes: write --do_train"),
        (["--train_file", "a.csv", "b.csv"], "'b.csv' belongs to no flag. Write --name=value"),
        (["--seed="], "--seed must be an integer. Received: ''."),
        (
            ["--do_train", "true"],
            "--do_train takes its value after a =, or none: --do_train for true, --nodo_train for "
            "false. Received: --do_train true",
        ),
        (["--do_train=maybe"], "--do_train must be true or false. Received: 'maybe'."),
        (["--nodo_train=true"], "--nodo_train takes no value. Received: --nodo_train=true"),
        (["--seed=1e3"], "--seed must be an integer. Received: '1e3'."),
        (["--learning_rate=fast"], "--learning_rate must be a number. Received: 'fast'."),
        (
            ["--eval_batch_size=0"],
            "--eval_batch_size must be an integer of at least 1 (examples). Received: '0'.",
        ),
        (
            ["--optimizer=adam"],
            "--optimizer must be one of adamw, lamb. Received: 'adam'. Did you mean adamw?",
        ),
        (["--verbosity=loud"], "--verbosity: "),
        (["--task_name", "--do_train"], "--task_name needs a value: --task_name=TEXT."),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(classifier, texts, said):
    (mistake,) = mistakes(classifier, *texts)
    assert said in mistake


@pytest.mark.parametrize("name", ["quiz", "lr"])
def test_what_resembles_no_flag_has_no_suggestion(classifier, name):
    assert mistakes(classifier, f"--{name}=1") == [f"There is no flag --{name}."]


def test_at_the_end_a_value_and_what_is_required_are_missed(classifier):
    assert mistakes(classifier, "--seed", needed=False) == [
        "--seed needs a value: --seed=INTEGER.",
        "--output_dir is missing. Directory of checkpoints, logs and results. A training found "
        "there goes on where it ended.",
    ]


def test_all_mistakes_are_told_at_once_with_their_places(classifier):
    arguments = [
        Argument("--sede=1", "my.flags, line 2"),
        Argument("--seed=x", "my.flags, line 3"),
        Argument("--do_eval"),
        Argument("yes"),
        *map(Argument, NEEDED),
    ]
    found = find_mistakes("run_classifier", classifier, arguments, takes_paths=False)
    assert len(found) == 3
    assert found[0] == "There is no flag --sede. Did you mean --seed? (my.flags, line 2)"
    assert found[1].endswith("Received: 'x'. (my.flags, line 3)")
    assert found[2].endswith("Received: --do_eval yes")


def test_paths_are_no_mistakes_where_they_have_a_meaning(classifier):
    assert mistakes(classifier, "a", "--do_train", "true", "-", takes_paths=True) == []


def test_looking_for_mistakes_sets_no_flag_and_looking_elsewhere_loses_none(classifier):
    names = set(flags.FLAGS)
    mistakes(classifier, "--seed=77", "--quiz")
    assert commands_with("model_dir", [flag.name for flag in classifier]) == ["fill_mask"]
    assert set(flags.FLAGS) == names
    assert flags.FLAGS["seed"].value != 77
    assert flags.FLAGS["seed"].using_default_value


def run_script(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_script_ends_with_the_mistakes_alone(tmp_path):
    flag_file = tmp_path / "my.flags"
    flag_file.write_text("# a run\n--input_file='a, b'\n--vocab_sise=7\n")
    done = run_script(
        "-m", "albert_tf.cli.train_sentencepiece", f"--flagfile={flag_file}", "--", "more"
    )
    assert done.returncode == 1
    assert not done.stdout
    assert done.stderr.splitlines() == [
        "error: 3 mistakes on the command line:",
        f"  There is no flag --vocab_sise. Did you mean --vocab_size? ({flag_file}, line 3)",
        "  --model_prefix is missing. Where to write: this path with .model and with .vocab at its "
        "end.",
        "  Nothing can stand after a --. Received: more",
        "`python -m albert_tf.cli.train_sentencepiece --help` lists the flags.",
    ]


def test_a_command_runs_with_a_file_of_flags_and_what_follows_wins(tmp_path):
    text = tmp_path / "two words.txt"
    text.write_text("A cat sat on a mat.\nA dog lay on the rug.\n" * 20)
    common, own = tmp_path / "common.flags", tmp_path / "own.flags"
    common.write_text(f"# of all runs\n--input_file={text}\n--vocab_size 500  # too many\n")
    own.write_text(f"--flagfile={common}\n\n--model_prefix='{tmp_path}/of file'\n")
    done = run_script(
        *("-m", "albert_tf", "train_sentencepiece"),
        *("--vocab_size=400", f"--flagfile={own}", "--vocab_size=29"),
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "of file.vocab").read_text().splitlines()) == 29


def test_a_missing_file_of_flags_is_named(tmp_path):
    done = run_script("run_squad.py", f"--flagfile={tmp_path}/none")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: --flagfile={tmp_path}/none: there is no such file.\n")


def test_a_flag_behind_a_path_is_a_flag():
    done = run_script("-m", "albert_tf.cli.inspect", "/no/path", "--verbosiy=1")
    assert done.returncode == 1
    assert "There is no flag --verbosiy. Did you mean --verbosity?" in done.stderr
