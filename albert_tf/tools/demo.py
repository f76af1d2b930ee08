"""The demo: all steps from text to an exported model and a classifier.

Each step is a command, which is printed before it runs. The texts are from Python's documentation:
the topics of the manual (`pydoc_data.topics`) and the docstrings of the standard library. The
classifier predicts the chapter of the documentation.
"""

import ast
import csv
import inspect
import math
import re
import shlex
import shutil
import sysconfig
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import is_remote
from albert_tf.pretraining.batching import evaluation_batches
from albert_tf.pretraining.instances import pretraining_feature_specs
from albert_tf.tokenization.loading import load_tokenizer
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
Documents = Mapping[str, list[str]]  # sentences by topic, module or class
# Classes of the task: packages, and "language" for the topics of the manual.
CHAPTERS = ("asyncio", "email", "language", "tkinter", "unittest")
MAX_PARAGRAPHS = (200, 40)  # per chapter, for training and for evaluation
# Sentences with these names would reveal the chapter.
_NAMES = re.compile(rf"\b(?:{'|'.join(CHAPTERS)})\b", re.IGNORECASE)
_SKIPPED_FOLDER = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|tests?|idlelib|lib2to3|turtledemo|pydoc_data)/"
)
_MIN_SENTENCES = 3  # of a document
_MIN_WORDS = 4  # of a sentence or clause
_PARAGRAPH_WORDS = 25  # minimum number of words of a paragraph to classify
_SHARED_WORDS = 8  # held-out sentences with this many consecutive training words are dropped
_PARAGRAPH_END = re.compile(r"\n\s*\n|\n\s*(?=[*+o•-] |\(?(?:\d+|[a-z])[.)] )")  # or a list item
_NOISE = re.compile(r"\s*(?:\.\. |:[\w ]+:|@\w+|\|)|.*>>>", re.DOTALL)  # directives and examples
_MARKUP = re.compile(
    r"^\s*(?:[*+o•-]|\(?(?:\d+|[a-z])[.)])\s|:[\w:+-]+:(?=`)|[`~]|\*+(?=\w)|(?<=\w)\*+|\[\d+\]_?|:(?=:$)"
)
_SENTENCE_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<=[.!?]) +(?=[\"'(]?[A-Z])")
_SENTENCE = re.compile(r"[\"'(]?[A-Z].*[.!?:][\"')]?")
_PLAIN_WORD = re.compile(r"[\"'(]*[A-Za-z]+(?:['-][A-Za-z]+)*[\"')]*[.,;:!?]*[\"')]*")
_FUNCTION_WORD = re.compile(
    r"\b(?:an?|and|are|as|be|but|by|can|for|from|has|if|in|is|it|not|of|on|or|that|the|to|with)\b",
    re.IGNORECASE,
)


def run_demo(
    output_dir: str,
    *,
    num_train_steps: int,
    vocab_size: int,
    max_documents: int | None = None,
    num_fine_tuning_steps: int = 0,
) -> None:
    """Pretrains, evaluates and exports a model, fills in masks, and fine-tunes a classifier.

    docs/flags.md describes the arguments. The results of an earlier demo are replaced. Raises
    `ValueError` if the directory is remote or contains other files, or if a step failed.
    """
    start, out, here = time.monotonic(), Path(output_dir), shlex.quote(str(Path(output_dir)))
    model, published = out / "model", out / "published"
    marker = out / "demo_settings.json"  # exists in directories of a demo
    if is_remote(output_dir) or (out.exists() and not marker.exists() and any(out.glob("*"))):
        raise UserError(
            "`output_dir` must be a local directory that is empty, does not exist, or contains an "
            f"earlier demo. Received: {output_dir!r}"
        )
    for name in ("model", "pretraining", "published", "evaluation", "chapters", "classifier"):
        shutil.rmtree(out / name, ignore_errors=True)
    sizes = " ".join(command_arguments(_SIZES))
    out.mkdir(parents=True, exist_ok=True)
    marker.write_text("{}\n")

    _title("An English corpus from Python's own documentation")
    write_corpus(out / "corpus", max_documents)
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
            --dupe_factor={dupe_factor} --sentence_pairs=adjacent {sizes}"""
        )
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
    config.to_json_file(str(model / "albert_config.json"))
    run(
        f"""run_pretraining --do_train --do_eval --input_file={here}/records/training.tfrecord
        --eval_input_file={here}/records/held_out.tfrecord
        --albert_config_file={here}/model/albert_config.json --output_dir={here}/pretraining
        --train_batch_size=128 --num_train_steps={num_train_steps}
        --num_warmup_steps={min(100, num_train_steps // 10)} --learning_rate=0.02
        --save_checkpoints_steps={math.ceil(num_train_steps / 4)}
        --log_steps={math.ceil(num_train_steps / 20)} --shuffle_buffer_size=20000 {sizes}"""
    )
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
        --max_eval_steps=1000 {sizes}"""
    )
    _compare_with_baselines(out)
    _title("Filling in masks")
    texts = " ".join(shlex.quote(f"--text={text}") for text in TEXTS)
    run(f"fill_mask --model_dir={here}/published {texts}")
    if num_fine_tuning_steps:
        _title("Fine-tuning mini: which chapter is this paragraph from?")
        _classify_chapters(out, num_fine_tuning_steps)
    print(f"\nAll output is in {out} ({time.monotonic() - start:.0f} s in total).")
    print(f"Use the model in any command with --albert_hub_module_handle={published}")


def _title(text: str) -> None:
    print(f"\n=== {text}", flush=True)


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
    tokenizer = load_tokenizer(spm_model_file=str(out / "model" / "30k-clean.model"))
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


def _classify_chapters(out: Path, steps: int) -> None:
    """Fine-tunes mini to classify paragraphs by chapter. Prints a prediction per chapter."""
    chapters = write_chapters(out / "chapters")
    samples = [texts[0] for texts in chapters.values()]
    questions = "".join(f"{text}\n" for text in samples)
    (out / "chapters" / "asked.txt").write_text(questions, encoding="utf-8")
    here = shlex.quote(str(out))
    run(
        f"""run_classifier --task_name=custom --train_file={here}/chapters/train.csv
        --dev_file={here}/chapters/dev.csv --text_a_column=paragraph --label_column=chapter
        --albert_hub_module_handle=mini --output_dir={here}/classifier --do_train --do_eval
        --max_seq_length=80 --train_batch_size=16 --learning_rate=1.5e-4 --train_step={steps}
        --warmup_step={steps // 10} --save_checkpoints_steps={steps}
        --log_steps={math.ceil(steps / 5)} --predict_file={here}/chapters/asked.txt
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

    If `max_documents` is `None`, all documents are used. Raises `ValueError` for too few documents.
    """
    documents = python_documents()
    names = list(documents)[:: -(-len(documents) // (max_documents or len(documents)))]
    parts = split_documents({name: documents[name] for name in names}, 0.1)
    if not all(parts):
        raise UserError(
            "`max_documents` is too small for a training and a held-out file. Received: "
            f"{max_documents}"
        )
    directory.mkdir(parents=True, exist_ok=True)
    for name, part in zip(("training", "held_out"), parts, strict=True):
        texts = ("\n".join(map("\n".join, map(clauses, sentences))) for sentences in part.values())
        (directory / f"{name}.txt").write_text("".join(f"{t}\n\n" for t in texts), "utf-8")


def write_chapters(directory: Path) -> Documents:
    """Writes `train.csv` and `dev.csv`. Returns the paragraphs of `dev.csv` by chapter."""
    parts = split_documents(python_documents(), 0.2)
    directory.mkdir(parents=True, exist_ok=True)
    chosen: dict[str, list[str]] = {}
    for name, part, limit in zip(("train", "dev"), parts, MAX_PARAGRAPHS, strict=True):
        chosen = {}
        for chapter, texts in _by_chapter(part).items():
            count = min(limit, len(texts))
            chosen[chapter] = [texts[i * len(texts) // count] for i in range(count)]
        with open(directory / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("paragraph", "chapter"))
            writer.writerows((text, chapter) for chapter, texts in chosen.items() for text in texts)
    return chosen


def _by_chapter(documents: Documents) -> Documents:
    """Returns the paragraphs of each chapter. A paragraph is from one document."""
    found: dict[str, list[str]] = {chapter: [] for chapter in CHAPTERS}
    for name, sentences in documents.items():
        chapter = "language" if name.startswith("topic ") else re.split(r"[/.]", name)[0]
        words: list[str] = []
        for sentence in sentences if chapter in found else ():
            words += [] if _NAMES.search(sentence) else sentence.split()
            if len(words) >= _PARAGRAPH_WORDS:
                found[chapter].append(" ".join(words))
                words = []
    return {chapter: texts for chapter, texts in found.items() if texts}


def split_documents(documents: Documents, held_out_share: float) -> tuple[Documents, Documents]:
    """Splits documents into a training and a held-out part by a hash of their names.

    Held-out sentences with _SHARED_WORDS consecutive words of a training sentence are dropped.
    """
    held_out = {n for n in documents if zlib.crc32(n.encode()) / 2**32 < held_out_share}
    training = {n: sentences for n, sentences in documents.items() if n not in held_out}
    seen = {run for sentences in training.values() for s in sentences for run in _runs(s)}
    cleared = {n: [s for s in documents[n] if seen.isdisjoint(_runs(s))] for n in held_out}
    return training, {n: cleared[n] for n in documents if len(cleared.get(n, ())) >= _MIN_SENTENCES}


def _runs(sentence: str) -> set[tuple[str, ...]]:
    """Returns all sequences of _SHARED_WORDS words; a shorter sentence is one sequence."""
    words = re.findall(r"[a-z0-9]+", sentence.lower())
    last = max(len(words) - _SHARED_WORDS, 0)
    return {tuple(words[i : i + _SHARED_WORDS]) for i in range(last + 1)}


@cache
def python_documents() -> Documents:
    """Returns the sentences of all documents of this Python. Repeated sentences are dropped."""
    manual = ((f"topic {name}", prose_sentences(topics[name])) for name in sorted(topics))
    seen: set[str] = set()
    documents = {}
    for name, sentences in (*manual, *source_documents(Path(sysconfig.get_path("stdlib")))):
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in seen]
        seen.update(new)
        if len(new) >= _MIN_SENTENCES:
            documents[name] = new
    return documents


def source_documents(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields the sentences in the docstrings of each module, and of each top-level class.

    The files are parsed, not imported.
    """
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if _SKIPPED_FOLDER.search(name):
            continue
        try:
            module = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # templates and test data
            continue
        classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
        module.body = [node for node in module.body if node not in classes]
        for title, tree in [(name, module), *((f"{name}.{node.name}", node) for node in classes)]:
            nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
            texts = [ast.get_docstring(node) or "" for node in nodes]
            yield title, [sentence for text in texts for sentence in prose_sentences(text)]


def prose_sentences(text: str) -> list[str]:
    """Returns the English sentences in a docstring or reStructuredText.

    Headings, code, examples, tables and signatures are dropped, and markup is removed. A sentence
    begins with a capital, ends in `.`, `!`, `?` or `:`, and consists mostly of plain words.
    """
    found: list[str] = []
    for paragraph in _PARAGRAPH_END.split(inspect.cleandoc(text)):
        if not _NOISE.match(paragraph):
            plain = " ".join(_MARKUP.sub("", paragraph).split()).replace("’", "'")
            found += filter(_is_prose, _SENTENCE_END.split(plain))
    return found


def _is_prose(sentence: str) -> bool:
    words = sentence.split()
    return (
        _MIN_WORDS <= len(words) <= 120
        and _SENTENCE.fullmatch(sentence) is not None
        and sum(_PLAIN_WORD.fullmatch(word) is not None for word in words) >= 0.9 * len(words)
        and _FUNCTION_WORD.search(sentence) is not None
    )


def clauses(sentence: str) -> list[str]:
    """Splits a sentence after commas, semicolons and colons into parts of at least four words."""
    parts: list[str] = []
    for part in re.split("(?<=[,;:]) ", sentence):
        if parts and min(len(parts[-1].split()), len(part.split())) < _MIN_WORDS:
            parts[-1] += " " + part
        else:
            parts.append(part)
    return parts
