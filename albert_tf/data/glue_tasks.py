"""What there is in the GLUE benchmark: its tasks, their files, columns, labels and scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from albert_tf.data.text_examples import Labels


@dataclass(frozen=True)
class Columns:
    """The columns of one kind of file, in GLUE's order.

    Attributes:
        widths: cells of a row, for the layouts there are.
        text_a, text_b, label, guid: places from 0; -1 is the last; None for what is not there.
        has_header: whether the first row names the columns.
    """

    widths: tuple[int, ...]
    text_a: int
    text_b: int | None = None
    label: int | None = None
    guid: int | None = None
    has_header: bool = True


@dataclass(frozen=True)
class GlueTask:
    """A task of the benchmark.

    Attributes:
        folder: where its files are in the download.
        labels: what is predicted.
        text_names: what headers call the texts, in lower case: one tuple for each text.
        labelled, unlabelled: columns of train and dev, and of test.
        submission_file: name of the file GLUE's server takes.
        best_metric, metrics: see `TextData`.
        dev_file: its name.
        test_files: names the test file may have.
        test_folders: where the test file is looked for, if not in `folder`.
        cuts_long_rows: whether cells past the last are cut off rows of train and dev.
    """

    folder: str
    labels: Labels
    text_names: tuple[tuple[str, ...], ...]
    labelled: Columns
    unlabelled: Columns
    submission_file: str
    best_metric: str = "eval_accuracy"
    metrics: tuple[str, ...] = ()
    dev_file: str = "dev.tsv"
    test_files: tuple[str, ...] = ("test.tsv",)
    test_folders: tuple[str, ...] = ()
    cuts_long_rows: bool = False


_BINARY = Labels(("0", "1"))
_TWO_WAY = Labels(("entailment", "not_entailment"))
_THREE_WAY = Labels(("contradiction", "entailment", "neutral"))
_SENTENCE = (("sentence",),)
_SENTENCES = (("sentence1", "premise"), ("sentence2", "hypothesis"))
_PAIR = Columns((4,), guid=0, text_a=1, text_b=2, label=-1)
_PAIR_TEST = Columns((3,), guid=0, text_a=1, text_b=2)
_MNLI = Columns((12, 16), guid=0, text_a=8, text_b=9, label=-1)
_MNLI_TEST = Columns((10,), guid=0, text_a=8, text_b=9)

GLUE_TASKS: Final[dict[str, GlueTask]] = {
    "cola": GlueTask(
        "CoLA",
        _BINARY,
        _SENTENCE,
        Columns((4,), text_a=3, label=1, has_header=False),
        Columns((2,), guid=0, text_a=1),
        "CoLA.tsv",
        best_metric="matthew_corr",
        metrics=("matthews",),
    ),
    "mnli": GlueTask(
        "MNLI",
        _THREE_WAY,
        _SENTENCES,
        _MNLI,
        _MNLI_TEST,
        "MNLI-m.tsv",
        dev_file="dev_matched.tsv",
        test_files=("test_matched.tsv",),
    ),
    "mismnli": GlueTask(
        "MNLI",
        _THREE_WAY,
        _SENTENCES,
        _MNLI,
        _MNLI_TEST,
        "MNLI-mm.tsv",
        dev_file="dev_mismatched.tsv",
        test_files=("test_mismatched.tsv",),
    ),
    "mrpc": GlueTask(
        "MRPC",
        _BINARY,
        (("#1 string", "sentence1"), ("#2 string", "sentence2")),
        Columns((5,), text_a=3, text_b=4, label=0),
        Columns((5,), guid=0, text_a=3, text_b=4),
        "MRPC.tsv",
        metrics=("f1",),
    ),
    "rte": GlueTask("RTE", _TWO_WAY, _SENTENCES, _PAIR, _PAIR_TEST, "RTE.tsv"),
    "sst-2": GlueTask(
        "SST-2",
        _BINARY,
        _SENTENCE,
        Columns((2,), text_a=0, label=1),
        Columns((2,), guid=0, text_a=1),
        "SST-2.tsv",
    ),
    "sts-b": GlueTask(
        "STS-B",
        Labels(),
        _SENTENCES,
        Columns((10,), guid=0, text_a=7, text_b=8, label=-1),
        Columns((9,), guid=0, text_a=7, text_b=8),
        "STS-B.tsv",
        best_metric="pearson",
        metrics=("pearson", "spearman"),
    ),
    "qqp": GlueTask(
        "QQP",
        _BINARY,
        (("question1",), ("question2",)),
        Columns((6,), guid=0, text_a=3, text_b=4, label=5),
        Columns((3,), guid=0, text_a=1, text_b=2),
        "QQP.tsv",
        metrics=("f1",),
        cuts_long_rows=True,
    ),
    "qnli": GlueTask(
        "QNLI", _TWO_WAY, (("question",), ("sentence",)), _PAIR, _PAIR_TEST, "QNLI.tsv"
    ),
    "wnli": GlueTask("WNLI", _BINARY, _SENTENCES, _PAIR, _PAIR_TEST, "WNLI.tsv"),
    "ax": GlueTask(
        "MNLI",
        _THREE_WAY,
        _SENTENCES,
        _MNLI,
        _PAIR_TEST,
        "AX.tsv",
        dev_file="dev_matched.tsv",
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
    """The name of a task as `GLUE_TASKS` has it, whatever its case and hyphens.

    Other names of MNLI's two sets and of the diagnostic set are known too.

    Raises:
        ValueError: no task of GLUE.
    """
    for known in GLUE_TASKS:
        if plain_name(name) in (plain_name(known), *_OTHER_NAMES.get(known, ())):
            return known
    raise ValueError(
        f"--task_name must be one of {', '.join(GLUE_TASKS)}, or custom for other files. "
        f"Received: {name!r}"
    )


def plain_name(name: str) -> str:
    """A name without what people write in different ways: case, hyphens and underscores."""
    return name.lower().replace("-", "").replace("_", "")
