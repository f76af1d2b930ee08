"""Collects scores of run_glue.sh in a table and predictions in a zip file.

The table contains the median, lowest and highest score of each task over all seeds. It is printed,
and written to --results_dir together with a figure.

    albert_tf glue_results --results_dir=glue_results --model=base_v2 --submission=submission.zip
"""

from dataclasses import dataclass

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.settings import Settings, required, setting


@dataclass(frozen=True, kw_only=True)
class ResultsSettings(Settings):
    """Settings of `glue_results`."""

    results_dir: str = required("Data")("""
        Directory with a subdirectory <task>-seed<seed> for each run, as written by run_glue.sh.""")
    model: str | None = setting(None, "Data")("""
        Model that the runs started from: a TF-Hub module, a directory with albert_config.json, or
        a name such as base_v2. Adds the published scores of a released model to the table.
        Default: only the results.""")
    submission: str | None = setting(None, "Output")("""
        Zip file to write, with test predictions for the GLUE server. Default: no file.""")
    allow_missing: bool = setting(False, "Output")("""
        Write --submission even if predictions of some tasks are missing, which is otherwise an
        error.""")


def run(settings: ResultsSettings) -> None:
    from albert_tf.tools.glue_results import read_runs, write_results, write_submission

    directory, zip_file = settings.results_dir, settings.submission
    runs = read_runs(directory)
    print(write_results(directory, runs, settings.model), end="")
    if zip_file:
        files = write_submission(zip_file, directory, runs, allow_missing=settings.allow_missing)
        print(f"\n{zip_file} contains", *files, sep="\n  ")


main = command(__name__, __doc__, Flags(ResultsSettings), run)
