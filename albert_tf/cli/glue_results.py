"""Collects scores of run_glue.sh in a table and predictions in a zip file.

The table contains the median, lowest and highest score of each task over all seeds. It is printed,
and written to --results_dir together with a figure.

    albert_tf glue_results --results_dir=glue_results --model=base_v2 --submission=submission.zip
"""

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flag, Groups

FLAGS: Groups = {
    "Data": {
        Flag("results_dir", required=True): "Required. Directory with a subdirectory "
        "<task>-seed<seed> for each run, as written by run_glue.sh.",
        Flag("model"): "Model that the runs started from: a TF-Hub module, a directory with "
        "albert_config.json, or a name such as base_v2. Adds the published scores of a released "
        "model to the table. Default: only the results.",
    },
    "Output": {
        Flag("submission"): "Zip file to write, with test predictions for the GLUE server. "
        "Default: no file.",
        Flag("allow_missing", False): "Write --submission even if predictions of some tasks are "
        "missing, which is otherwise an error.",
    },
}


def run() -> None:
    from albert_tf.tools.glue_results import read_runs, write_results, write_submission

    values = flags.FLAGS
    directory, zip_file = values.results_dir, values.submission
    runs = read_runs(directory)
    print(write_results(directory, runs, values.model), end="")
    if zip_file:
        files = write_submission(zip_file, directory, runs, allow_missing=values.allow_missing)
        print(f"\n{zip_file} contains", *files, sep="\n  ")


main = command(__name__, __doc__, FLAGS, run)
