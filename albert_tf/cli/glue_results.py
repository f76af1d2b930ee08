"""Puts the results of `run_glue.sh` into a table, its predictions into a zip.

The table holds the median over the seeds of each task, the lowest and the highest score; it is
printed, and written to --results_dir together with a picture.

    glue_results --results_dir=glue_results --model=base_v2 --submission=submission.zip
"""

from absl import flags

from albert_tf.cli.command import run_command
from albert_tf.cli.flag_groups import DATA, OUTPUT, flag_group


def define_flags() -> None:
    """Defines the flags of this command; nothing is defined by importing it."""
    with flag_group(DATA):
        flags.DEFINE_string(
            "results_dir",
            None,
            "Directory with a directory <task>-seed<seed> for each run, as run_glue.sh makes them.",
            required=True,
        )
        flags.DEFINE_string(
            "model",
            None,
            "Model the runs started from: a TF-Hub module, a directory with albert_config.json, or "
            "a name such as base_v2. Scores published of a released model stand beside the "
            "results. Not given: the results alone.",
        )
    with flag_group(OUTPUT):
        flags.DEFINE_string(
            "submission",
            None,
            "Zip file to write: test predictions for GLUE's server. Not given: none is written.",
        )
        flags.DEFINE_bool(
            "allow_missing",
            False,
            "Write the --submission although predictions of tasks are missing. Otherwise that is "
            "an error.",
        )


def run() -> None:
    """Prints the table and writes the files."""
    from albert_tf.tools import glue_results

    values = flags.FLAGS
    runs = glue_results.read_runs(values.results_dir)
    model, published = glue_results.published_scores(values.model) if values.model else (None, {})
    rows = glue_results.summarize(runs, published)
    print(glue_results.write_results(values.results_dir, rows, model, runs), end="")
    if values.submission:
        files = glue_results.choose_files(runs)
        allow_missing = values.allow_missing
        glue_results.write_submission(values.submission, files, allow_missing=allow_missing)
        print(f"\n{values.submission} holds", *sorted(files.values()), sep="\n  ")


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
