"""A clone of the project with tiny versions of the files that the documentation uses."""

import csv
import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from albert_tf.checkpoints.formats.original import slot_variables, write_checkpoint
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.training.optimization import Lamb
from tests import documented_python
from tests.choice_run import choices, write_choices, write_race
from tests.classifier_run import texts
from tests.documentation import Block, prose_of
from tests.programs import ROOT, Program, warm_python
from tests.small_model import small_config
from tests.squad_run import questions, write_squad
from tests.token_run import tagged_sentences, write_conll

# Files of a clone that documented commands use.
_CLONE = ("*.py", "*.md", "*.toml", "*.txt", "*.sh", "albert_tf", "benchmarks", "docs", "notebooks",
          "requirements", "scripts")  # fmt: skip

# The model `base_v2` as if it had been downloaded, for `ALBERT_TF_HOME=cache`.
_DOWNLOADED = "cache/released/albert_base_v2/albert_base"

# Records that a document uses but does not create: length, predictions, sentence loss.
_RECORDS = {
    "formats.md": {"train": (64, 10, "sop")},
}  # fmt: skip

# Models that a document uses but does not train: directory, and the command that trains it.
_PAIRS = ("run_classifier.py", {"task_name": "RTE", "data_dir": "GLUE"})
_SQUAD_1 = ("run_squad.py", {"squad_version": 1, "train_file": "train-v1.1.json"})
_SQUAD_2 = ("run_squad.py", {"squad_version": 2, "train_file": "train-v2.0.json"})
_RACE = ("run_race.py", {"data_dir": "data"})
_FINE_TUNED: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "formats.md": {"mrpc": _PAIRS},
    "exporting.md": {"mrpc": _PAIRS, "squad2": _SQUAD_2, "race": _RACE},
    "phone.md": {"mrpc": _PAIRS, "squad1": _SQUAD_1},
    "server.md": {"mrpc": _PAIRS},
}  # fmt: skip


def german_text(seed: int) -> str:
    """Returns documents of paragraphs of made-up German sentences, the same words for all seeds."""
    syllables = re.findall(
        r"\w+", "ab schö ün ge tra ßen der lich keit mög ei ha ben zu rück fä hig"
    )
    rng = random.Random(0)
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(1500)]
    rng = random.Random(seed)

    def sentence() -> str:
        chosen = rng.choices(words, k=rng.randint(3, 14))
        return " ".join(chosen).capitalize() + rng.choice(".!?")

    paragraphs = (" ".join(sentence() for _ in range(5)) for _ in range(400))
    return "".join(f"{text}\n" + "\n" * (number % 4 == 0) for number, text in enumerate(paragraphs))


class Workspace:
    """A directory in which documented commands run.

    Args:
        folder: an empty directory.
        golden: the reference data. Its tokenizer and GLUE files are used.
        document: the page with the commands.
        blocks: the blocks of the page.
    """

    def __init__(self, folder: Path, golden: Path, document: Path, blocks: list[Block]) -> None:
        self.folder = folder
        self._golden = golden
        self._config = small_config(
            vocab_size=1000,
            type_vocab_size=2,
            num_hidden_layers=2,
            num_hidden_groups=1,
            inner_group_num=1,
            max_position_embeddings=512,
        )
        self._link_clone()
        self._make_environment()
        self._write_texts()
        self._write_tasks()
        self._write_models()
        if document.name == "migrating.md":  # a model of the original and its recorded outputs
            hub = golden / "hub"
            shutil.copytree(hub / "albert_directory", folder / "your_model")
            shutil.copy(hub / "text_outputs.npz", folder / "original.npz")
        for name, settings in _RECORDS.get(document.name, {}).items():
            self._make_records(name, *settings)
        for name, recipe in _FINE_TUNED.get(document.name, {}).items():
            self._fine_tune(name, *recipe)
        exports = re.findall(r"[\w/]+/\d{10}\b", "".join(block.text for block in blocks))
        (folder / documented_python.EXPORTS).write_text(json.dumps(sorted(set(exports))))

    def path(self, name: str) -> Path:
        """Returns the path of a file, and creates its directory."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _link_clone(self) -> None:
        for pattern in _CLONE:
            for source in ROOT.glob(pattern):
                self.path(source.name).symlink_to(source)

    def _make_environment(self) -> None:
        """Creates `.venv` as demo.sh does, with the `python` of documented commands."""
        helper = f"{sys.executable} -I -S {documented_python.__file__}"
        python = f"{helper} {warm_python()} {self.folder}"
        self._program(".venv/bin/python", f'exec {python} "$@"')
        self._program(".venv/bin/albert_tf", f'exec {python} -m albert_tf "$@"')
        self._program("run_glue.sh", f'exec {python} {ROOT / "run_glue.sh"} "$@"')
        activate = f'export VIRTUAL_ENV={self.folder}/.venv PATH="{self.folder}/.venv/bin:$PATH"\n'
        self.path(".venv/bin/activate").write_text(activate)
        # scripts/environment.sh writes this file after an installation.
        installed = subprocess.check_output(
            ["cksum", "requirements.txt", "requirements/languages.txt", "pyproject.toml"],
            cwd=self.folder,
        )
        self.path(".venv/installed").write_bytes(installed)

    def _program(self, name: str, line: str) -> None:
        path = self.path(name)
        path.unlink(missing_ok=True)  # replaces a link to the repository
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def _write_texts(self) -> None:
        """Writes the documentation of the project, one sentence per line, as training text."""
        documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        lines = []
        for document in documents:
            for paragraph in prose_of(document).split("\n\n"):
                sentences = re.split(r"(?<=[.:;]) ", " ".join(paragraph.split()))
                lines += [*filter(None, sentences), ""]
        text = "\n".join(lines)
        for name in ("text/1.txt", "text/2.txt", "text.txt", "train.txt", "prose.txt"):
            self.path(name).write_text(text)
        few = "\n".join(lines[:300])
        for name in ("text/heldout/1.txt", "heldout.txt"):
            self.path(name).write_text(few)
        for name, seed in (("texts/1.txt", 1), ("texts/2.txt", 2)):
            self.path(name).write_text(german_text(seed), "utf-8")
        sentences = [line for line in lines if line][:50]
        self.path("texts.txt").write_text("".join(f"{line}\t{line}\n" for line in sentences))

    def _write_tasks(self) -> None:
        self.path("GLUE").symlink_to(self._golden / "glue" / "data")
        for seed, name in enumerate(("train", "dev", "test")):
            with self.path(f"{name}.csv").open("w", newline="") as file:
                rows = [row * 2 for row in texts(9, seed)]
                header = ("intent", "utterance", "emotions", "comment")
                csv.writer(file).writerows([header, *rows])
            write_conll(self.path(f"{name}.conll"), tagged_sentences(9, seed))
            write_choices(self.path(f"{name}.jsonl"), choices(5, seed, 5))
            for level in ("middle", "high"):
                write_race(self.path(f"data/RACE/{name}/{level}"), choices(3, seed, 4))
        for name in ("pairs.txt", "pairs.tsv"):
            self.path(name).write_text("A man sleeps.\tHe is awake.\nIt rains.\tIt is wet.\n")
        for name, version in (("train-v1.1", 1), ("dev-v1.1", 1), ("slice", 1), ("train-v2.0", 2),
                              ("dev-v2.0", 2)):  # fmt: skip
            write_squad(self.path(f"{name}.json"), questions(6, len(name), version))

    def _write_models(self) -> None:
        self._write_model(_DOWNLOADED, "model.ckpt-best")
        model = self._write_model("output", "model.ckpt-best")
        optimizer = Lamb()
        optimizer.build(list(original_names(model).values()))
        variables = {**original_names(model), **slot_variables(model, optimizer)}
        write_checkpoint(str(self.folder / "output" / "model.ckpt-5000"), variables, 5000)
        for name in ("albert_config.json", "small.json"):
            self._config.to_json_file(str(self.path(name)))
        tokenizer = self._golden / "tokenizer" / "small_1000.model"
        shutil.copy(tokenizer, self.path("30k-clean.model"))

    def _write_model(self, name: str, checkpoint: str) -> AlbertForPretraining:
        """Writes random weights with configuration and tokenizer, like pretraining."""
        model = AlbertForPretraining(self._config)
        prefix = self.path(f"{name}/{checkpoint}")
        write_checkpoint(str(prefix), original_names(model), global_step=3)
        self._config.to_json_file(str(self.path(f"{name}/albert_config.json")))
        for end in ("model", "vocab"):
            tokenizer = self._golden / "tokenizer" / f"small_1000.{end}"
            shutil.copy(tokenizer, self.path(f"{name}/30k-clean.{end}"))
        return model

    def _make_records(self, name: str, length: int, predictions: int, loss: str) -> None:
        flags = {
            "input_file": self.folder / "heldout.txt",
            "output_file": self.path(f"{name}.tfrecord"),
            "spm_model_file": self.folder / "30k-clean.model",
            "max_seq_length": length,
            "max_predictions_per_seq": predictions,
            "sentence_loss": loss,
            "dupe_factor": 1,
        }
        self._must_work("create_pretraining_data.py", flags)
        # The documented commands train other vocabularies, which must accept these records.
        records = self.path(f"{name}.tfrecord")
        records.with_name(f".{records.name}.vocabulary").unlink()

    def _fine_tune(self, name: str, script: str, flags: dict[str, Any]) -> None:
        flags = {
            key: self.folder / value if isinstance(value, str) and key != "task_name" else value
            for key, value in flags.items()
        }
        if script == "run_squad.py":
            flags |= {"predict_file": flags["train_file"], "do_predict": True, "doc_stride": 32}
            flags |= {"num_train_epochs": 1}
        else:
            flags |= {"do_eval": True, "train_step": 2, "warmup_step": 1}
        flags |= {"albert_hub_module_handle": self.folder / _DOWNLOADED, "do_train": True}
        flags |= {"output_dir": self.folder / name, "max_seq_length": 128, "train_batch_size": 4}
        self._must_work(script, {**flags, "save_checkpoints_steps": 1})

    def _must_work(self, script: str, flags: dict[str, Any]) -> None:
        result = Program(script, self.folder, flags).wait()
        assert result.code == 0, result.output
