"""The notebooks, each run whole on tiny settings, and how they are kept."""

import ast
import json
import math
import random
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

from tests.classifier_run import texts
from tests.notebooks import (
    FEW_STEPS,
    NOTEBOOKS,
    as_kept,
    assert_clean,
    insert_parameters,
    pictures,
    printed,
    run_notebook,
    small_pretrained,
)

MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_what_running_it_left(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.read_text(encoding="utf-8") == as_kept(notebook), (
        f"{path.name} is not as it is kept: run `python -m tests.notebooks`"
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_compiles_and_needs_no_colab(path):
    notebook = nbformat.read(path, as_version=4)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    for source in cells:
        tree = ast.parse(TransformerManager().transform_cell(source))
        guarded = [node for node in ast.walk(tree) if isinstance(node, ast.Try)]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom | ast.Import) and "google" in ast.unparse(node):
                assert any(node in block.body for block in guarded), source
    insert_parameters(notebook, {})  # there is one cell of parameters


def test_names_that_are_no_parameters_are_refused():
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    with pytest.raises(
        ValueError, match=r"\['OUTPUT_DIRR'\] are no parameters\. Known: .*OUTPUT_D"
    ):
        insert_parameters(notebook, {"OUTPUT_DIRR": "x"})


def mrpc(folder: Path) -> Path:
    """A GLUE download with a few pairs for MRPC."""
    (folder / "MRPC").mkdir(parents=True)
    for seed, (split, count) in enumerate({"train": 17, "dev": 11, "test": 5}.items()):
        rows = [
            f"{number if split == 'test' else number % 2}\t{number}\t{number}\t{first}\t{second}\n"
            for number, ((_, first), (_, second)) in enumerate(
                zip(texts(count, seed), texts(count, seed + 3), strict=True)
            )
        ]
        header = MRPC_HEADER.replace("Quality", "index") if split == "test" else MRPC_HEADER
        (folder / "MRPC" / f"{split}.tsv").write_text(header + "".join(rows))
    return folder


@pytest.fixture(scope="module")
def glue(tmp_path_factory, golden) -> SimpleNamespace:
    """The notebook of GLUE, run, and the folder in which it ran."""
    inputs, folder = tmp_path_factory.mktemp("inputs"), tmp_path_factory.mktemp("glue")
    notebook = run_notebook(
        "fine_tune_glue",
        folder,
        MODEL=small_pretrained(inputs / "model", golden),
        TASK="MRPC",
        DATA_DIR=mrpc(inputs / "glue"),
        OUTPUT_DIR="output",
        SETTINGS={**FEW_STEPS, "do_predict": True},
        OWN_TEXTS=["It rains.", "He ran."],
        OWN_PAIRS=["Rain falls.", "She slept."],
    )
    return SimpleNamespace(notebook=notebook, folder=folder, output=folder / "output")


def metrics(output_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (output_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_glue_trains_evaluates_and_predicts(glue):
    assert_clean(glue.notebook, glue.folder, "output", "train.csv", "dev.csv")
    records = metrics(glue.output)
    assert [record["step"] for record in records if record["phase"] == "eval"] == [2, 4]
    assert [record["step"] for record in records if record["phase"] == "train"] == [1, 2, 3, 4]
    assert all(math.isfinite(record["loss"]) for record in records)
    assert (glue.output / "model.ckpt-best.index").exists()
    assert len((glue.output / "test_results.tsv").read_text().splitlines()) == 5


@pytest.mark.slow
def test_glue_shows_curves_mistakes_and_attention_and_classifies_texts(glue):
    assert len(pictures(glue.notebook)) == 3
    assert len([line for line in printed(glue.notebook).splitlines() if " → " in line]) == 2


@pytest.mark.slow
def test_texts_of_the_notebook_are_learned_without_a_network(tmp_path):
    notebook = run_notebook("fine_tune_glue", tmp_path, OUTPUT_DIR="output")
    assert_clean(notebook, tmp_path, "output", "train.csv", "dev.csv")
    evaluated = [r for r in metrics(tmp_path / "output") if r["phase"] == "eval"]
    assert max(record["eval_accuracy"] for record in evaluated) > 0.6  # by chance a third


def write_prose(path: Path) -> Path:
    """Thirty documents of three to eight sentences, of words made up."""
    source = random.Random(5)
    words = ["".join(source.choices("abdeiklmnorstu", k=4)) for _ in range(60)]
    with path.open("w") as file:
        for _ in range(30):
            for _ in range(source.randint(3, 8)):
                file.write(" ".join(source.choices(words, k=source.randint(3, 6))) + ".\n")
            file.write("\n")
    return path


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory) -> SimpleNamespace:
    """The notebook of pretraining, run, and the folder in which it ran."""
    inputs, folder = tmp_path_factory.mktemp("text"), tmp_path_factory.mktemp("pretraining")
    notebook = run_notebook(
        "pretrain_from_text",
        folder,
        TEXT_FILES=write_prose(inputs / "prose.txt"),
        OUTPUT_DIR="output",
        VOCAB_SIZE=70,
        SIZES={
            "embedding_size": 8,
            "hidden_size": 12,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 20,
        },
        TRAIN_STEPS=4,
        MORE_STEPS=2,
        SETTINGS={
            "train_batch_size": 7,
            "num_warmup_steps": 1,
            "save_checkpoints_steps": 2,
            "log_steps": 1,
        },
        SENTENCES=["baki [MASK] lo.", "s [MASK] mun."],
    )
    return SimpleNamespace(notebook=notebook, folder=folder, output=folder / "output")


@pytest.mark.slow
def test_pretraining_trains_and_goes_on(pretraining):
    assert_clean(pretraining.notebook, pretraining.folder, "output")
    records = metrics(pretraining.output / "pretrained")
    assert [record["step"] for record in records if record["phase"] == "train"] == list(range(1, 7))
    assert [record["step"] for record in records if record["phase"] == "eval"] == [2, 4, 6]
    assert all(math.isfinite(record["masked_lm_loss"]) for record in records)


@pytest.mark.slow
def test_pretraining_keeps_whole_documents_back(pretraining):
    parts = [
        (pretraining.output / f"{part}.txt").read_text().split("\n\n")
        for part in ("training", "held_out")
    ]
    assert [len(documents) for documents in parts] == [27, 3]
    assert not set(parts[0]) & set(parts[1])


@pytest.mark.slow
def test_pretraining_shows_curves_and_fills_in_blanks(pretraining):
    assert len(pictures(pretraining.notebook)) == 2
    answers = printed(pretraining.notebook).split("baki [MASK] lo.")[1:]
    assert len(answers) == 2  # the model, and after more steps
    assert all(answer.splitlines()[0].count("%") == 5 for answer in answers)
