"""The stored notebooks, and a run of each notebook with small settings."""

import ast
import base64
import html
import json
import os
import re
from pathlib import Path
from typing import Any

import matplotlib
import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.squad.question_answerer import QuestionAnswerer
from scripts.run_notebooks import METADATA
from tests.programs import ROOT, TIMEOUT, warm_python
from tests.small_model import small_config
from tests.squad_run import questions, write_squad
from tests.text_models import write_model

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Log lines of TensorFlow, progress bars, and warnings of this package about tiny settings.
_EXPECTED_ON_STDERR = re.compile(
    r"[IWE]\d{4} |WARNING: All log messages before absl|.*\d(%\||%  |batch )|INFO: Created "
    r"|WARNING:absl:|\x1b\[A$"
)


class NotebookRun:
    """An executed notebook, its working directory and its output directory."""

    def __init__(self, notebook: NotebookNode, folder: Path) -> None:
        self.notebook, self.folder, self.output = notebook, folder, folder / "output"

    def outputs(self) -> list[Any]:
        return [output for cell in self.notebook.cells for output in cell.get("outputs", ())]

    def data(self, kind: str) -> list[str]:
        """Returns the outputs of a MIME type."""
        return [o.data[kind] for o in self.outputs() if kind in o.get("data", {})]

    def printed(self) -> str:
        return "".join(o.text for o in self.outputs() if o.output_type == "stream")

    def assert_clean(self, pictures: int, *written: str, uses_cache: bool = False) -> None:
        """Checks that all cells ran without warnings, and wrote only `output` and `written`."""
        assert all(c.execution_count for c in self.notebook.cells if c.cell_type == "code")
        for output in self.outputs():
            assert output.output_type != "error"
            if output.get("name") == "stderr":
                lines = filter(str.strip, re.split(r"[\r\n]", output.text))
                assert [line for line in lines if not _EXPECTED_ON_STDERR.match(line)] == []
        found = self.data("image/png")
        assert len(found) == pictures
        assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in found)
        names = {path.name for path in self.folder.iterdir()}
        assert names == {"output", *written, "home", "settings"}
        assert [path.name for path in (self.folder / "home").iterdir()] == [".cache"] * uses_cache
        assert not list((ROOT / "notebooks").glob("[!.]*/"))


def run_notebook(name: str, folder: Path, **parameters: Any) -> NotebookRun:
    """Runs all cells in a separate process whose home directory is `home` in the folder.

    The parameters replace values of the cell tagged `parameters`. An error fails the test.
    """
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    insert_parameters(notebook, {**parameters, "OUTPUT_DIR": "output"})
    home, settings = folder / "home", folder / "settings"
    startup = settings / "ipython" / "profile_default" / "startup"
    home.mkdir()
    startup.mkdir(parents=True)
    # Commands of the cells do not import TensorFlow again, but processes of multiprocessing do.
    (startup / "commands.py").write_text(
        f"import multiprocessing.spawn, sys\nsys.executable = {str(warm_python())!r}\n"
    )
    environment = {
        **{key: os.environ[key] for key in os.environ if not re.match("XDG_|ALBERT_TF_", key)},
        "HOME": str(home),
        "IPYTHONDIR": str(settings / "ipython"),
        "KERAS_HOME": str(settings / "keras"),
        "MPLCONFIGDIR": matplotlib.get_cachedir(),  # creating its list of fonts takes seconds
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        startup_timeout=TIMEOUT,
        kernel_name="python3",
        coalesce_streams=True,  # as a browser shows them
        resources={"metadata": {"path": str(folder)}},
    )
    return NotebookRun(client.execute(env=environment), folder)


def insert_parameters(notebook: NotebookNode, parameters: dict[str, Any]) -> None:
    """Adds a cell after the cell tagged `parameters`, which must set all of these names."""
    tagged = ["parameters" in cell.metadata.get("tags", ()) for cell in notebook.cells]
    (place,) = (place for place, is_tagged in enumerate(tagged) if is_tagged)
    known = re.findall(r"^(\w+) = ", notebook.cells[place].source, re.MULTILINE)
    assert parameters.keys() <= set(known)
    plain = {k: str(v) if isinstance(v, Path) else v for k, v in parameters.items()}
    lines = [f"{name} = {value!r}" for name, value in plain.items()]
    notebook.cells.insert(place + 1, new_code_cell("\n".join(lines)))


EVERY_NOTEBOOK = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
FEW_STEPS = {
    "max_seq_length": 24,
    "learning_rate": 1e-3,
    "train_batch_size": 5,
    "train_step": 4,
    "warmup_step": 1,
    "save_checkpoints_steps": 2,
    "log_steps": 1,
}


@EVERY_NOTEBOOK
def test_notebooks_contain_readable_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size <= 300_000
    assert notebook.metadata == METADATA
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert not re.search(r"/(tmp|root|home|work|Users)/", json.dumps(outputs))
    (seconds,) = re.findall(r"This run took (\d+ CPU seconds)", json.dumps(outputs))
    assert re.findall(r"\d+ CPU seconds", notebook.cells[0].source) == [seconds]
    for cell in notebook.cells:
        assert cell.metadata.keys() <= {"tags"}


@EVERY_NOTEBOOK
def test_every_cell_compiles_and_needs_no_colab(path):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            tree = ast.parse(TransformerManager().transform_cell(cell.source))
            guarded = [node for node in ast.walk(tree) if isinstance(node, ast.Try)]
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom | ast.Import) and "google" in ast.unparse(node):
                    assert any(node in block.body for block in guarded), cell.source
    insert_parameters(notebook, {"OUTPUT_DIR": "output"})


@pytest.fixture
def model(tmp_path, tokenizer) -> str:
    """Writes a model with two layers, its configuration and its tokenizer."""
    sizes = {"num_hidden_layers": 2, "inner_group_num": 1, "max_position_embeddings": 48}
    config = small_config(vocab_size=1000, **sizes)
    return write_model(tmp_path / "model", AlbertForPretraining(config), tokenizer)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Returns the working directory of a notebook. Its inputs are in the parent directory."""
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def assert_trained(run: NotebookRun, steps: int, name: str = "") -> list[dict]:
    """Checks the steps in metrics.jsonl and returns the records of the evaluations."""
    lines = (run.output / name / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    phases = "train", "eval"
    trained, evaluated = ([r for r in records if r["phase"] == phase] for phase in phases)
    assert [record["step"] for record in trained] == list(range(1, steps + 1))
    assert [record["step"] for record in evaluated] == list(range(2, steps + 1, 2))
    return evaluated


def shown_answers(run: NotebookRun) -> list[str]:
    return [line.split(" → ")[1] for line in run.printed().splitlines() if " → " in line]


@pytest.mark.slow
def test_glue_trains_evaluates_predicts_and_classifies_texts(folder, golden, model):
    run = run_notebook(
        "fine_tune_glue",
        folder,
        MODEL=model,
        TASK="MRPC",
        DATA_DIR=golden / "glue" / "data",
        SETTINGS={**FEW_STEPS, "do_predict": True},
        OWN_TEXTS=["It rains.", "He ran."],
        OWN_PAIRS=["Rain falls.", "She slept."],
    )
    run.assert_clean(2, "train.csv", "dev.csv")  # confusion matrix, probabilities
    assert_trained(run, 4)
    assert (run.output / "model.ckpt-best.index").exists()
    assert (run.output / "test_results.tsv").exists()
    assert len(shown_answers(run)) == 2


@pytest.mark.slow
def test_texts_in_the_notebook_are_learned_without_a_network(tmp_path):
    run = run_notebook("fine_tune_glue", tmp_path)
    run.assert_clean(2, "train.csv", "dev.csv")
    scores = re.findall(r"^(?:mini|counting words) +(\S+)%", run.printed(), re.MULTILINE)
    model, counting = map(float, scores)
    assert model > 60 > 30 > counting  # 25 by chance


@pytest.mark.slow
def test_pretraining_trains_resumes_and_fills_in_blanks(folder, golden):
    sizes = {"embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 2}
    settings = {"train_batch_size": 7, "num_warmup_steps": 1, "save_checkpoints_steps": 2}
    run = run_notebook(
        "pretrain_from_text",
        folder,
        TEXT_FILES=golden / "pretraining_data" / "corpus.txt",
        VOCAB_SIZE=200,
        SIZES={**sizes, "num_attention_heads": 3, "intermediate_size": 20},
        TRAIN_STEPS=4,
        MORE_STEPS=2,
        SETTINGS={**settings, "log_steps": 1},
        SENTENCES=["The [MASK] was wide.", "It [MASK]."],
    )
    run.assert_clean(1)  # curves
    assert_trained(run, 6, "pretrained")
    texts = ((run.output / f"{part}.txt").read_text() for part in ("training", "held_out"))
    training, held_out = (text.split("\n\n") for text in texts)
    assert len(training) > len(held_out) > 1
    assert not set(training) & set(held_out) - {""}
    early, late = run.printed().split("The [MASK] was wide.")[1:]
    assert [line.count("%") for line in early.splitlines()[1:2]] == [5]
    assert [line.count("%") for line in late.splitlines()[1:3]] == [5, 5]  # 4 steps and 6 steps
    assert early.splitlines()[1].strip() in late.splitlines()[1]


@pytest.mark.slow
def test_raw_text_becomes_a_model_that_is_fine_tuned(folder):
    settings = {"size": "tiny", "num_train_steps": 4, "max_seq_length": 32, "vocab_size": 400}
    run = run_notebook("raw_text_to_model", folder, SETTINGS=settings)
    run.assert_clean(1)  # curves
    planned, trained = run.printed().split("model     tiny")[1:]
    for stage in ("training 1, 16 tokens", "training 2, 32 tokens"):
        assert re.search(rf"{stage} +about 00:\d\d +2 steps of 256", planned)
        assert stage in trained
    assert trained.count("[MASK]") == 3 + 3  # of the summary, and of the notebook
    assert (run.output / "run" / "model" / "model.safetensors").exists()
    assert re.search(r"accuracy for 200 other sentences: \d+%", trained)


@pytest.mark.slow
def test_a_table_is_classified_with_scikit_learn(folder, tmp_path, model):
    rows = [f"{text},{label}" for text, label in 6 * [("a fine day", "yes"), ("it rains", "no")]]
    (tmp_path / "table.csv").write_text("\n".join(["text,label", *rows]))
    run = run_notebook(
        "scikit_learn",
        folder,
        MODEL=model,
        TABLE=tmp_path / "table.csv",
        SETTINGS={"epochs": 1, "max_seq_length": 16},
        OWN_TEXTS=["It rains.", "Fine."],
    )
    run.assert_clean(1, uses_cache=True)  # calibration curve; the tokenizer of the loaded file
    assert len(shown_answers(run)) == 2
    assert re.search(r"predicted_labels \[b'(yes|no)', b'(yes|no)'\]", run.printed())
    assert (run.output / "reviews.joblib").exists()


@pytest.mark.slow
@pytest.mark.parametrize("is_plain", [False, True], ids=["entities", "plain labels"])
def test_words_are_labeled_and_displayed(folder, tmp_path, model, is_plain):
    for part in ("train", "dev"):
        (tmp_path / f"{part}.conll").write_text("the DET\ncat NOUN\n\nit PRON\nsat VERB\n\n" * 9)
    given = ["Florence <b>met</b> Anna & Tom.", "Nothing was said."]
    data = f"{tmp_path}/{{}}.conll" if is_plain else ""
    run = run_notebook(
        "label_words", folder, MODEL=model, DATA=data, SETTINGS=FEW_STEPS, OWN_TEXTS=given
    )
    run.assert_clean(1)  # confusion matrix
    assert ("f1" in assert_trained(run, 4)[0]) != is_plain
    (drawn,) = run.data("text/html")
    names = r" <small><b>(.*?)</b></small>"
    assert html.unescape(re.sub(r"<[^>]*>", "", re.sub(names, "", drawn))) == "".join(given)
    shown = re.findall(r" → (\S+) \d+%", run.printed())
    assert re.findall(names, drawn) == shown
    if is_plain:
        assert len(shown) == 17  # every word and mark has a label
        return
    found = {}
    for part in ("train", "dev"):
        rows = map(json.loads, (run.output / f"{part}.jsonl").read_text().splitlines())
        found[part] = {row["text"][e["start"] : e["end"]] for row in rows for e in row["entities"]}
    assert found["train"] & found["dev"] <= {"Florence", "Austin", "Victoria", "Jordan"}


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
def test_the_exported_model_equals_the_notebook(folder, tmp_path, model, version):
    for part, count, seed in (("train", 15, 1), ("dev", 11, 2)):
        write_squad(tmp_path / f"{part}.json", questions(count, seed, 1))
    settings = {key: FEW_STEPS[key] for key in FEW_STEPS if not key.endswith("_step")}
    lengths = {"max_seq_length": 48, "doc_stride": 11, "max_query_length": 13}
    text = "The mill was built in 1871. It grinds rye."
    asked = ["When was it built?", "Who owns it?"]
    run = run_notebook(
        "question_answering_squad",
        folder,
        SQUAD_VERSION=version,
        MODEL=model,
        DATA=f"{tmp_path.as_uri()}/{{}}.json" if version == 1 else "",
        PARAGRAPHS=12 if version == 1 else 7,
        SETTINGS={**settings, **lengths, "num_train_epochs": 1.7 if version == 1 else 1.0},
        OWN_TEXT=text,
        OWN_QUESTIONS=asked,
    )
    run.assert_clean(1)  # candidates
    assert_trained(run, 4)
    paragraphs = json.loads((run.output / "dev.json").read_text())["data"][0]["paragraphs"]
    answered = json.loads((run.output / "predictions.json").read_text())
    assert answered.keys() == {question["id"] for part in paragraphs for question in part["qas"]}
    exported = [answer.replace("(no answer)", "") for answer in shown_answers(run)]
    answers = QuestionAnswerer.load(run.output)(asked, contexts=[text] * len(asked))
    assert exported == [answer.answer for answer in answers]


@pytest.mark.slow  # a minute, and needs transformers
def test_exports_equal_the_model(folder, model):
    run = run_notebook("hub_and_exports", folder, MODEL=model, LEARNING_RATE=1e-2, EPOCHS=3)
    run.assert_clean(1)  # similarity
    text = run.printed()
    assert "heads                         masked LM, sentence order" in text
    formats = ("original", "huggingface", "keras_hub", "tf1_hub")
    numbers = re.findall(r"differ by at most (\S+)", text)
    assert len(numbers) == len(formats) + 1
    for words in (
        "largest difference to the model here:",
        "AlbertModel of transformers differs by",
        "AlbertBackbone of keras_hub differs by",
    ):
        numbers.append(text.split(words)[1].split()[0])
    assert max(map(float, numbers)) < 1e-5
    written = {path.name for path in run.output.iterdir()}
    assert written == {*formats, "encoder", "preprocessor", "classifier", "encoder.tflite"}
    table = text.split("loaded by\n")[1].splitlines()
    assert [line.split()[0] for line in table[:6]] == [*formats, "encoder", "encoder.tflite"]
    answers = shown_answers(run)
    assert len(answers) == 4
    assert {answer.split()[0] for answer in answers} <= {"cooking", "sailing"}
