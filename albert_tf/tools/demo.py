"""The demo: all steps from text to an exported model and a classifier.

Each step is a command, which is printed before it runs. The texts are from Python's documentation:
the topics of the manual (`pydoc_data.topics`) and the docstrings of the standard library. The
classifier predicts the chapter of the documentation.
"""

import ast
import csv
import math
import re
import shlex
import shutil
import sysconfig
import time
from collections import Counter
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import is_remote
from albert_tf.pretraining.batching import evaluation_batches
from albert_tf.pretraining.instances import pretraining_feature_specs
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tools.commands import command_arguments, read_evaluations, run

PUBLISHED_FILES = (  # no optimizer, no logs
    "albert_config.json",
    "30k-clean.model",
    "30k-clean.vocab",
    "model.ckpt-best.index",
    "model.ckpt-best.data-00000-of-00001",
)
TEXTS = (
    "Return True [MASK] the object is a string.",
    "This method [MASK] not be called directly.",
    "The first argument is the name of the [MASK].",
    "If the [MASK] is not given, the default value is used.",
    "Raise an exception if the file does [MASK] exist.",
)
_SIZES = {"max_seq_length": 32, "max_predictions_per_seq": 10}
_FLAGS_OF_SIZES = " ".join(command_arguments(_SIZES))
# Classes of the task: packages, and "language" for the topics of the manual.
CHAPTERS = ("asyncio", "email", "language", "logging", "unittest")
# Sentences with these names would reveal the chapter.
_NAMES = re.compile("|".join(CHAPTERS), re.IGNORECASE)
_MAX_PARAGRAPHS = 150  # per chapter
_PARAGRAPH_WORDS = 25  # minimum
_SENTENCE = re.compile(r"\b[A-Z][a-z]*(?: [A-Za-z'-]+[,;:]?){3,}[.!?](?=\s|$)")
_SKIPPED_FOLDER = re.compile("(^|/)(site-packages|dist-packages|tests?|idlelib|lib2to3)/")


def run_demo(
    output_dir: str,
    *,
    num_train_steps: int,
    vocab_size: int,
    max_documents: int | None = None,
    num_fine_tuning_steps: int | None = 0,
) -> None:
    """Pretrains, evaluates and exports a model, fills in masks, and fine-tunes a classifier.

    docs/flags.md describes the arguments. The results of an earlier demo are replaced. Raises
    `ValueError` if the directory is remote or contains other files, or if a step failed.
    """
    start, out = time.monotonic(), Path(output_dir)
    marker = out / "demo_settings.json"  # exists in directories of a demo
    if is_remote(output_dir) or (out.exists() and not marker.exists() and any(out.glob("*"))):
        raise UserError(
            "`output_dir` must be a local directory that is empty, does not exist, or contains an "
            f"earlier demo. Received: {output_dir!r}"
        )
    for name in ("model", "pretraining", "published", "evaluation", "chapters", "classifier"):
        shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    marker.write_text("{}\n")

    _title("An English corpus from Python's own documentation")
    write_corpus(out / "corpus", max_documents)
    _create_records(out, vocab_size)
    _pretrain(out, vocab_size, num_train_steps)
    _publish(out)
    if num_fine_tuning_steps != 0:
        _title("Fine-tuning mini: which chapter is this paragraph from?")
        _classify_chapters(out, num_fine_tuning_steps)
    print(f"\nAll output is in {out} ({time.monotonic() - start:.0f} s in total).")
    print(f"Use the model in any command with --albert_hub_module_handle={out / 'published'}")


def _title(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def _create_records(out: Path, vocab_size: int) -> None:
    here = shlex.quote(str(out))
    _title("A SentencePiece vocabulary")
    run(
        f"""train_sentencepiece --input_file={here}/corpus/training.txt
        --model_prefix={here}/model/30k-clean --vocab_size={vocab_size}"""
    )
    _title("Pretraining records, with new masks in each pass")
    for part, dupe_factor in (("training", 10), ("held_out", 1)):
        run(  # with twice the usual share of masked tokens, to learn in minutes
            f"""create_pretraining_data --input_file={here}/corpus/{part}.txt
            --output_file={here}/records/{part}.tfrecord
            --spm_model_file={here}/model/30k-clean.model --masked_lm_prob=0.3
            --dupe_factor={dupe_factor} --sentence_pairs=adjacent {_FLAGS_OF_SIZES}"""
        )


def _pretrain(out: Path, vocab_size: int, num_train_steps: int) -> None:
    here = shlex.quote(str(out))
    _title("Pretraining")
    config = AlbertConfig(
        vocab_size=vocab_size,
        embedding_size=128,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=_SIZES["max_seq_length"],
    )
    config.to_json_file(str(out / "model" / "albert_config.json"))
    run(
        f"""run_pretraining --do_train --do_eval --input_file={here}/records/training.tfrecord
        --eval_input_file={here}/records/held_out.tfrecord
        --albert_config_file={here}/model/albert_config.json --output_dir={here}/pretraining
        --train_batch_size=128 --num_train_steps={num_train_steps}
        --num_warmup_steps={min(100, num_train_steps // 10)} --learning_rate=0.02
        --save_checkpoints_steps={math.ceil(num_train_steps / 4)}
        --log_steps={math.ceil(num_train_steps / 20)} --shuffle_buffer_size=20000
        {_FLAGS_OF_SIZES}"""
    )


def _publish(out: Path) -> None:
    """Copies the files of the best model, evaluates it and fills in masks with it."""
    here, published = shlex.quote(str(out)), out / "published"
    _title("Publishing")
    published.mkdir()
    for name in PUBLISHED_FILES:
        shutil.copy(out / "pretraining" / name, published)
        print(f"{published / name} ({(published / name).stat().st_size:,} bytes)")
    _title("Evaluating the exported model on held-out documents")
    run(
        f"""run_pretraining --nodo_train --do_eval --input_file={here}/records/held_out.tfrecord
        --albert_config_file={here}/published/albert_config.json
        --eval_checkpoint={here}/published/model.ckpt-best --output_dir={here}/evaluation
        --max_eval_steps=1000 {_FLAGS_OF_SIZES}"""
    )
    _compare_with_baselines(out)
    _title("Filling in masks")
    texts = " ".join(shlex.quote(f"--text={text}") for text in TEXTS)
    run(f"fill_mask --model_dir={here}/published {texts}")


def _compare_with_baselines(out: Path) -> None:
    """Prints the accuracies, next to the accuracies of always giving the most frequent answer."""
    records = str(out / "records" / "held_out.tfrecord")
    specs = pretraining_feature_specs(**_SIZES)
    tokens: Counter[int] = Counter()
    orders: Counter[int] = Counter()
    for batch in evaluation_batches([records], specs, 1024).as_numpy_iterator():
        tokens.update(batch["masked_lm_ids"][batch["masked_lm_weights"] > 0].tolist())
        orders.update(batch["next_sentence_labels"][:, 0].tolist())
    ((token_id, count),) = tokens.most_common(1)
    tokenizer = tokenizer_from_files(spm_model_file=str(out / "model" / "30k-clean.model"))
    (results,) = read_evaluations(str(out / "evaluation")).values()
    print(
        f"\nmasked-LM accuracy       {results['masked_lm_accuracy']:6.1%}"
        f"   against {count / tokens.total():.1%} for always answering "
        f"{tokenizer.tokens[token_id]!r}, the most frequent of the {tokens.total():,} "
        "masked tokens of these documents"
        f"\nsentence-order accuracy  {results['sentence_order_accuracy']:6.1%}"
        f"   against 50.0% by chance and {max(orders.values()) / orders.total():.1%} for always "
        "giving the more frequent answer"
    )


def _classify_chapters(out: Path, steps: int | None) -> None:
    """Fine-tunes mini to classify paragraphs by chapter. Prints a prediction per chapter."""
    chapters = write_chapters(out / "chapters")
    samples = [texts[0] for texts in chapters.values()]
    questions = "".join(f"{text}\n" for text in samples)
    (out / "chapters" / "asked.txt").write_text(questions, encoding="utf-8")
    here = shlex.quote(str(out))
    given = f"--train_step={steps} --warmup_step={steps // 10}" if steps else ""
    run(
        f"""run_classifier --task_name=custom --train_file={here}/chapters/train.csv
        --dev_file={here}/chapters/dev.csv --text_a_column=paragraph --label_column=chapter
        --albert_hub_module_handle=mini --output_dir={here}/classifier --do_train --do_eval
        --max_seq_length=80 --log_steps=20 {given} --predict_file={here}/chapters/asked.txt
        --predict_output_file={here}/chapters/answers.tsv"""
    )
    (results,) = read_evaluations(str(out / "classifier")).values()
    counts = [len(texts) for texts in chapters.values()]
    print(
        f"\nchapter accuracy         {results['eval_accuracy']:6.1%}   against "
        f"{max(counts) / sum(counts):.1%} for always giving the most frequent of the {len(counts)} "
        "chapters"
    )
    lines = (out / "chapters" / "answers.tsv").read_text("utf-8").splitlines()
    for text, chapter, line in zip(samples, chapters, lines, strict=True):
        print(f"\n{text}\n  {line.split()[0]}, from {chapter}")


def write_corpus(directory: Path, max_documents: int | None = None) -> None:
    """Writes `training.txt` and `held_out.txt`: a clause per line, an empty line after a document.

    If `max_documents` is `None`, all documents are used. Every tenth document is held out.
    """
    documents = list(python_documents().values())
    documents = documents[:: -(-len(documents) // (max_documents or len(documents)))]
    parts: dict[str, list[str]] = {"held_out": [], "training": []}
    for number, sentences in enumerate(documents):
        part = parts["training" if number % 10 else "held_out"]
        part.append(re.sub("(?<=[,;:]) ", "\n", "\n".join(sentences)))
    directory.mkdir(parents=True, exist_ok=True)
    for name, texts in parts.items():
        content = "".join(f"{text}\n\n" for text in texts)
        (directory / f"{name}.txt").write_text(content, encoding="utf-8")


def write_chapters(directory: Path) -> dict[str, list[str]]:
    """Writes `train.csv` and `dev.csv`. Returns the paragraphs of `dev.csv` by chapter."""
    chapters: dict[str, list[str]] = {chapter: [] for chapter in CHAPTERS}
    for name, sentences in python_documents().items():
        chapter = name.partition("/")[0]
        words: list[str] = []
        for sentence in sentences if chapter in chapters else ():
            words += [] if _NAMES.search(sentence) else sentence.split()
            if len(words) >= _PARAGRAPH_WORDS:
                chapters[chapter].append(" ".join(words))
                words = []
    chosen = {chapter: texts[:_MAX_PARAGRAPHS] for chapter, texts in chapters.items()}
    held_out = {chapter: texts[::5] for chapter, texts in chosen.items()}
    for texts in chosen.values():
        del texts[::5]
    directory.mkdir(parents=True, exist_ok=True)
    for part, paragraphs in (("train", chosen), ("dev", held_out)):
        with open(directory / f"{part}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("paragraph", "chapter"))
            writer.writerows((t, chapter) for chapter, texts in paragraphs.items() for t in texts)
    return held_out


@cache
def python_documents() -> dict[str, list[str]]:
    """Returns the sentences of each topic of the manual and each module of the standard library.

    The modules are parsed, not imported. Repeated sentences are dropped.
    """
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    texts = {f"language/{name}": topics[name] for name in sorted(topics)}
    folder = Path(sysconfig.get_path("stdlib"))
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if not _SKIPPED_FOLDER.search(name):
            nodes = [n for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, documented)]
            texts[name] = "\n".join(ast.get_docstring(node) or "" for node in nodes)
    seen: set[str] = set()
    documents = {}
    for name, text in texts.items():
        plain = " ".join(re.sub("[`*]", "", text).split())
        sentences = [s for s in dict.fromkeys(_SENTENCE.findall(plain)) if s not in seen]
        seen.update(sentences)
        if len(sentences) > 2:
            documents[name] = sentences
    return documents
