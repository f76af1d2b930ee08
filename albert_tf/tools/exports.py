"""Public functions that export and inspect models."""

import os
from dataclasses import replace
from itertools import islice, product
from typing import Any

from albert_tf.checkpoints.loading import build, build_kind, open_with_tokenizer
from albert_tf.checkpoints.model_choice import choose_model
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.stored_task import UNNAMED, StoredTask, warn_of_another_length
from albert_tf.classification.run import ClassifierJob
from albert_tf.data.arguments import as_path
from albert_tf.data.errors import UserError, extra_packages
from albert_tf.data.streams import parse_lines
from albert_tf.finetuning.job import Job
from albert_tf.multiple_choice.run import MultipleChoiceJob
from albert_tf.serving.agreement import Agreement
from albert_tf.serving.litert import LiteRTExport
from albert_tf.squad.run import SquadJob
from albert_tf.token_classification.run import TokenClassificationJob
from albert_tf.tools.inspect import describe

_JOBS: tuple[type[Job], ...] = (ClassifierJob, TokenClassificationJob, SquadJob, MultipleChoiceJob)
_LITERT_LENGTH = 128
_MOST_TEXTS = 1000  # for comparisons
# Parts of built-in texts.
_PARTS = (
    ("The film", "Our old teacher", "This phone", "Her new law"),
    ("was", "is never", "should have been", "will soon be"),
    ("moving and well made.", "a waste of two hours.", "sold in Paris.", "better than the last?"),
)
LAYOUTS = ("file", "transformers.js")  # of ONNX exports

Path = str | os.PathLike


def export_saved_model(path: Path, export_dir: Path, *, texts: bool = False) -> str:
    """Writes a SavedModel of a fine-tuned model, with the settings of its training.

    docs/exporting.md describes the inputs and outputs of all models.

    Args:
        path: a fine-tuned model of any format, see `albert_tf.load`. For a training directory, the
            best checkpoint is used, otherwise the newest.
        export_dir: directory in which a subdirectory is created, named after the time in seconds.
        texts: whether the SavedModel takes texts instead of token ids.

    Returns:
        Path of the subdirectory.

    Raises:
        ValueError: there is no fine-tuned model, its labels are unknown, or the directory cannot be
            written.
    """
    stored = open_with_tokenizer(path)
    jobs = {model_class: job for job in _JOBS for model_class in job.MODELS}
    model: Any = build_kind(stored, tuple(jobs), "a fine-tuned model")
    task = stored.task or StoredTask(UNNAMED, is_pair=False)
    job = jobs[type(model)]
    length = task.max_seq_length or min(job.LONGEST, model.config.max_position_embeddings)
    return job.export_model(
        model,
        replace(task, max_seq_length=length),
        stored.required_tokenizer,
        os.fspath(export_dir),
        texts=texts,
    )


def export_litert(
    path: Path,
    output_file: Path,
    *,
    quantization: str = "none",
    max_seq_length: int | None = None,
    batch_size: int = 1,
    texts: Path | None = None,
    dry_run: bool = False,
    **parts: Any,
) -> dict[str, Agreement]:
    """Writes a LiteRT file and compares its outputs with the outputs of the model.

    Args:
        path: an encoder, pretrained model, classifier or model for SQuAD 1.1, of any format.
        output_file: the file. It appears when it is complete.
        quantization: "none", "float16" or "int8".
        max_seq_length: number of tokens of a sequence, including padding; 0 for any number. If
            `None`, the length used in training, otherwise 128 or the largest that is possible.
        batch_size: number of sequences per batch; 0 for any number.
        texts: file with a text, or a pair separated by a tab, per line, for the comparison; the
            first 1,000 are used. If `None`, built-in English texts for quantized files, and random
            ids for float32.
        dry_run: whether to check only that the model can be exported.
        **parts: files that replace parts of the model: `albert_config_file`, `spm_model_file`,
            `vocab_file`, `do_lower_case`, `keep_accents`.

    Returns:
        The agreement of each output with the model. After a dry run it is empty.

    Raises:
        ValueError: the model is not supported, a value is out of range, or the outputs differ.
        OSError: the file cannot be written.
    """
    stored = choose_model(as_path("path", path), **parts)
    model, _ = build(stored)
    task = model.trained_task
    warn_of_another_length(task, max_seq_length)
    if max_seq_length is None:
        trained = task.max_seq_length if task else None
        max_seq_length = trained or min(_LITERT_LENGTH, model.config.max_position_embeddings)
    export = LiteRTExport(
        model,
        as_path("output_file", output_file, "path of a file"),
        quantization=quantization,
        max_seq_length=max_seq_length or None,
        batch_size=batch_size or None,
        labels=task.labels if task else None,
        texts=_texts(stored, model, texts, quantization),
    )
    return {} if dry_run else export.write()


def export_onnx(
    path: Path,
    output_file: Path | None = None,
    *,
    quantization: str = "none",
    encoder_only: bool = False,
    texts: Path | None = None,
    layout: str = "file",
    output_dir: Path | None = None,
    dry_run: bool = False,
    **parts: Any,
) -> dict[str, Agreement]:
    """Writes an ONNX file, or a directory with ONNX files, and compares outputs with the model.

    The files take any number of sequences of any length. docs/server.md describes the inputs and
    outputs of all models. Needs the packages of the extra `onnx`.

    Args:
        path: a model of any format and task.
        output_file: the file. It appears when it is complete.
        quantization: "none", "float16" or "int8".
        encoder_only: whether to export the encoder without its heads.
        texts: see `export_litert`; in multiple choice, four texts are the options of a question.
        layout: "file", or "transformers.js" for a directory with files in float32 and int8, the
            configuration and the tokenizer.
        output_dir: a new or an empty directory, for the layout "transformers.js".
        dry_run: whether to check only that the model can be exported.
        **parts: see `export_litert`.

    Returns:
        The agreement of each output with the model. After a dry run it is empty.

    Raises:
        ValueError: a package is missing, the model is not supported, a value is out of range, or
            the outputs differ.
        OSError: a file cannot be written.
    """
    _check_layout(layout, quantization, output_file, output_dir)
    with extra_packages("onnx"):
        from albert_tf.serving import transformers_js
        from albert_tf.serving.onnx_export import OnnxExport
    stored = choose_model(as_path("path", path), **parts)
    model, _ = build(stored)
    exported = getattr(model, "encoder", model) if encoder_only else model
    if output_dir is not None:
        directory = as_path("output_dir", output_dir, "path of a directory")
        samples = _texts(stored, model, texts, "int8")
        return transformers_js.export(exported, stored, directory, samples, dry_run)
    export = OnnxExport(
        exported,
        as_path("output_file", output_file, "path of a file"),
        quantization=quantization,
        labels=model.trained_task.labels if model.trained_task else None,
        texts=_texts(stored, model, texts, quantization),
    )
    return {} if dry_run else export.write()


def _texts(
    stored: StoredModel, model: Any, path: Path | None, quantization: str
) -> tuple[str, ...]:
    """Returns texts or pairs for the comparison of a file; none for random ids."""
    if path is None and (quantization == "none" or stored.tokenizer is None):
        return ()
    is_pair = stored.required_tokenizer and model.trained_task and model.trained_task.is_pair
    texts = [" ".join(parts) for parts in product(*_PARTS)]
    if path is not None:
        groups = parse_lines(as_path("texts", path, "path of a file"), lambda line, _: line)
        lines = (line for group in groups for line in group if line)
        texts = [*islice(lines, _MOST_TEXTS)]
    elif is_pair:
        texts = [f"{a}\t{b}" for a, b in zip(texts, texts[::-1], strict=True)]
    if {text.count("\t") for text in texts} not in ({0}, {1}):
        raise UserError(f"`texts` must have lines of texts, or of pairs with a tab: {path}")
    return tuple(texts)


def _check_layout(layout: str, quantization: str, output_file: Any, output_dir: Any) -> None:
    """Raises `ValueError` unless exactly the arguments of the layout are given."""
    if layout not in LAYOUTS:
        raise UserError(f"`layout` must be one of {', '.join(LAYOUTS)}. Received: {layout!r}")
    is_file = layout == LAYOUTS[0]
    if (output_file is None) == is_file or (output_dir is None) != is_file:
        needed, other = ("file", "dir") if is_file else ("dir", "file")
        raise UserError(f"`layout`={layout} needs `output_{needed}` instead of `output_{other}`.")
    if not is_file and quantization != "none":
        raise UserError(f"`layout`={layout} writes float32 and int8. Omit `quantization`.")


def inspect(path: Path) -> str:
    """Returns a description of a file or directory, as `albert_tf inspect` prints it.

    Raises:
        ValueError: the path does not exist or cannot be read.
    """
    return "\n".join(describe(as_path("path", path)))
