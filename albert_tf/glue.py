"""The tasks of GLUE."""

from dataclasses import dataclass, replace
from typing import Final

from albert_tf.data.errors import UserError
from albert_tf.labels import Labels


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE.

    Attributes:
        folder: name of the task's directory in the download.
        labels: the classes, or a regression.
        text_names: possible names of each text column, in lower case.
        labelled, unlabelled: columns of train and dev files, and of test files, in the order of
            GLUE: texts, "label", "index", or "-" for unused columns. There may be several orders.
        server_name: name of the task on GLUE's server. If empty, `folder`.
        best_metric: score that selects the best checkpoint.
        metrics: scores in addition to accuracy or mean squared error.
        dev_file, test_files: name of the dev file, and possible names of the test file.
        test_folders: directories of the test file. If empty, `folder`.
        has_header: whether train and dev files have a header.
        cuts_long_rows: whether additional cells in rows of train and dev files are ignored.
    """

    folder: str
    labels: Labels
    text_names: tuple[tuple[str, ...], ...]
    labelled: tuple[str, ...]
    unlabelled: tuple[str, ...] = ("index text_a text_b",)
    server_name: str = ""
    best_metric: str = "eval_accuracy"
    metrics: tuple[str, ...] = ()
    dev_file: str = "dev.tsv"
    test_files: tuple[str, ...] = ("test.tsv",)
    test_folders: tuple[str, ...] = ()
    has_header: bool = True
    cuts_long_rows: bool = False

    @property
    def submission_file(self) -> str:
        """Name of the file for GLUE's server."""
        return f"{self.server_name or self.folder}.tsv"


_BINARY = Labels(("0", "1"))
_TWO_WAY = Labels(("entailment", "not_entailment"))
_SENTENCE = (("sentence",),)
_SENTENCES = (("sentence1", "premise"), ("sentence2", "hypothesis"))
_SINGLE_TEST = ("index text_a",)
_PAIR = ("index text_a text_b label",)
_SKIPPED = "index - - - - - - -"
_MNLI = GlueTask(
    "MNLI",
    Labels(("contradiction", "entailment", "neutral")),
    _SENTENCES,
    (f"{_SKIPPED} text_a text_b - label", f"{_SKIPPED} text_a text_b - - - - - label"),
    (f"{_SKIPPED} text_a text_b",),
    "MNLI-m",
    dev_file="dev_matched.tsv",
    test_files=("test_matched.tsv",),
)

GLUE_TASKS: Final[dict[str, GlueTask]] = {
    "cola": GlueTask(
        "CoLA",
        _BINARY,
        _SENTENCE,
        ("- label - text_a",),
        _SINGLE_TEST,
        best_metric="matthew_corr",
        metrics=("matthews",),
        has_header=False,
    ),
    "mnli": _MNLI,
    "mismnli": replace(
        _MNLI,
        server_name="MNLI-mm",
        dev_file="dev_mismatched.tsv",
        test_files=("test_mismatched.tsv",),
    ),
    "mrpc": GlueTask(
        "MRPC",
        _BINARY,
        (("#1 string", "sentence1"), ("#2 string", "sentence2")),
        ("label - - text_a text_b",),
        ("index - - text_a text_b",),
        metrics=("f1",),
    ),
    "rte": GlueTask("RTE", _TWO_WAY, _SENTENCES, _PAIR),
    "sst-2": GlueTask("SST-2", _BINARY, _SENTENCE, ("text_a label",), _SINGLE_TEST),
    "sts-b": GlueTask(
        "STS-B",
        Labels(),
        _SENTENCES,
        ("index - - - - - - text_a text_b label",),
        ("index - - - - - - text_a text_b",),
        best_metric="pearson",
        metrics=("pearson", "spearman"),
    ),
    "qqp": GlueTask(
        "QQP",
        _BINARY,
        (("question1",), ("question2",)),
        ("index - - text_a text_b label",),
        metrics=("f1",),
        cuts_long_rows=True,
    ),
    "qnli": GlueTask("QNLI", _TWO_WAY, (("question",), ("sentence",)), _PAIR),
    "wnli": GlueTask("WNLI", _BINARY, _SENTENCES, _PAIR),
    "ax": replace(
        _MNLI,
        unlabelled=("index text_a text_b",),
        server_name="AX",
        test_files=("diagnostic.tsv", "test.tsv", "AX.tsv"),
        test_folders=("diagnostic", "AX"),
    ),
}

_OTHER_NAMES = {
    "mnli": ("mnlim", "mnlimatched"),
    "mismnli": ("mnlimm", "mnlimismatched"),
    "ax": ("diagnostic", "diagnostics"),
}


def glue_task_name(name: str) -> str:
    """Returns the key in `GLUE_TASKS` of a task in any spelling; raises ValueError if unknown."""
    for known in GLUE_TASKS:
        if plain_name(name) in (plain_name(known), *_OTHER_NAMES.get(known, ())):
            return known
    raise UserError(
        f"`task_name` must be one of {', '.join(GLUE_TASKS)}, or custom for other files. "
        f"Received: {name!r}"
    )


def plain_name(name: str) -> str:
    """Returns a name in lower case without hyphens and underscores."""
    return name.lower().replace("-", "").replace("_", "")
