"""The readers of users' files: how each is called, good files for it, who else reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.fuzz import seeds
from tests.fuzz.independent import (
    delimited_rows,
    in_one_step,
    keeps_good_records,
    pieces,
    records,
    same,
    shares_values,
    sound_records,
    tensors,
    whole_json,
)
from tests.fuzz.mutations import (
    Mutation,
    damage_header_of_safetensors,
    damage_json,
    damage_json_lines,
    damage_records,
    damage_records_at_will,
    damage_table,
    damage_text,
    damage_zip,
)
from tests.fuzz.wire import damage_message

FLAG = "--flag"


@dataclass(frozen=True)
class Parser:
    """A kind of file that users give, and what reads it.

    Attributes:
        name: on the command line of the fuzzers.
        file: where the damaged file is put, below a folder.
        seeds: good files.
        read: reads it, given the folder; what it returns is compared.
        mutations: besides those of bytes.
        others: files that belong to it, and stay good.
        named: what a clear error names; the name of the file if nothing is said.
        independent: another reader, given the folder: `UNKNOWN`, or any error, where it cannot
            tell what the file holds.
        is_same: compares what both say.
        writes: reading writes into the folder, which is then made anew for each input.
    """

    name: str
    file: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], Any]
    mutations: tuple[Mutation, ...]
    others: Callable[[], Mapping[str, bytes]] = dict
    named: tuple[str, ...] = ()
    independent: Callable[[Path], Any] | None = None
    is_same: Callable[[Any, Any], bool] = same
    writes: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.named or (os.path.basename(self.file),)


_ALL: list[Parser] = []


def _add(name: str, file: str, *args: Any, **settings: Any) -> None:
    _ALL.append(Parser(name, file, *args, **settings))


# What the readers are called with. Everything is imported late: the list itself costs nothing.


def _config(folder: Path) -> Any:
    from albert_tf.config import AlbertConfig

    return AlbertConfig.from_json_file(str(folder / "albert_config.json")).to_dict()


def _labels(folder: Path) -> Any:
    from albert_tf.checkpoints.trained_task import TrainedTask

    task = TrainedTask.read(str(folder))
    return task and task.to_dict()


def _hugging_face(folder: Path) -> Any:
    from albert_tf.checkpoints import huggingface

    huggingface.is_here(str(folder))
    huggingface.open_weights(str(folder / "model.safetensors"))
    stored = huggingface.read(str(folder), FLAG)
    return stored.config and stored.config.to_dict()


def _keras_hub(folder: Path) -> Any:
    from albert_tf.checkpoints.keras_hub import read_config

    config, do_lower_case = read_config(str(folder))
    return config.to_dict(), do_lower_case


def _tensors(name: str, folder: Path) -> Any:
    from albert_tf.checkpoints.huggingface.weights import HuggingFaceWeights, open_tensors

    opened = open_tensors(str(folder / name))
    values = {tensor: opened.get(tensor) for tensor in opened.shapes}
    weights = HuggingFaceWeights(str(folder / name))
    for weight in weights.get_variable_to_shape_map():
        weights.get_tensor(weight)
    return values


def _tokenizer_config(folder: Path) -> Any:
    from albert_tf.checkpoints.huggingface.tokenizer import find_lower_case

    return find_lower_case(str(folder))


def _tokenizer_json(folder: Path) -> Any:
    from albert_tf.checkpoints.huggingface.tokenizer import (
        find_lower_case,
        find_tokenizer_file,
    )
    from albert_tf.tokenization.loading import load_tokenizer

    os.environ["ALBERT_TF_CACHE_DIR"] = str(folder / "cache")
    find_lower_case(str(folder))
    file = find_tokenizer_file(str(folder), FLAG)
    if file is None:
        return None
    tokenizer = load_tokenizer(spm_model_file=file)
    tokenizer.encode(seeds.TEXT)
    return tokenizer.tokens


def _run_config(folder: Path) -> Any:
    from albert_tf.checkpoints.run_records import read_run_config

    return read_run_config(str(folder))


def _metrics(folder: Path) -> None:
    from unittest import mock

    from albert_tf.training.run_log import RunLog

    with mock.patch.object(RunLog, "_write_summaries"):  # for TensorBoard: takes 30 ms
        RunLog(str(folder), 10, start_step=4)


def _drawn_metrics(folder: Path) -> None:
    from unittest import mock

    from albert_tf.tools import notebook

    with mock.patch.object(notebook, "draw_curves"):  # a picture takes a fifth of a second
        notebook.draw_metrics(str(folder), {"loss": ["loss"]})


def _best_trial(folder: Path) -> Any:
    from albert_tf.checkpoints.training_directory import TrainingDirectory
    from albert_tf.training.evaluation import BestCheckpoint

    best = BestCheckpoint(TrainingDirectory(str(folder)), "eval_accuracy")
    return best.last_step, best.step, best.value


def _eval_results(folder: Path) -> None:
    from albert_tf.finetuning.results import EvaluationResults

    EvaluationResults(str(folder), 5)


def _checkpoint_names(folder: Path) -> Any:
    from albert_tf.checkpoints.original.files import find_checkpoint
    from albert_tf.checkpoints.training_directory import TrainingDirectory

    found = TrainingDirectory(str(folder)).checkpoints()
    return [*map(os.path.basename, found), os.path.basename(find_checkpoint(str(folder)))]


def _checkpoint(folder: Path) -> Any:
    from albert_tf.checkpoints.load_weights import open_checkpoint
    from albert_tf.checkpoints.original.files import read_variables

    prefix = str(folder / "model.ckpt-5")
    reader, shapes = open_checkpoint(prefix)
    return read_variables(reader, prefix, shapes)


def _input_description(folder: Path) -> Any:
    from albert_tf.checkpoints.training_directory import TrainingDirectory

    return TrainingDirectory(str(folder)).input_description(str(folder / "model.ckpt-5"))


def _tf1_hub(folder: Path) -> None:
    from albert_tf.checkpoints import tf1_hub

    tf1_hub.is_here(str(folder))
    tf1_hub.read(str(folder), FLAG)


def _tf2_hub(folder: Path) -> None:
    from albert_tf.checkpoints import tf2_hub

    tf2_hub.is_here(str(folder))
    stored = tf2_hub.read(str(folder), FLAG)
    weights = tf2_hub.open_weights(stored.checkpoint)
    for name in weights.get_variable_to_shape_map():
        weights.get_tensor(name)


def _inspected_saved_model(folder: Path) -> None:
    from albert_tf.tools.inspect import describe_saved_model, find_saved_model

    list(describe_saved_model(find_saved_model(str(folder))))


def _inspected(name: str, folder: Path) -> None:
    from albert_tf.tools.inspect import describe_file

    list(describe_file(str(folder / name)) or ())


def _archive(folder: Path) -> Any:
    from albert_tf.checkpoints.archives import local_directory

    os.environ["ALBERT_TF_CACHE_DIR"] = str(folder / "cache")
    unpacked = local_directory(str(folder / "model.tar.gz"), FLAG)
    return {name: (folder / unpacked / name).is_dir() for name in os.listdir(unpacked)}


def _checksums(folder: Path) -> None:
    from albert_tf.checkpoints.shipped import check_sums

    check_sums(str(folder))


def _own_records(folder: Path) -> list[bytes]:
    from albert_tf.data.tfrecord import read_records

    return list(read_records(str(folder / "part.tfrecord")))


def _counted_records(folder: Path) -> int:
    from albert_tf.data.tfrecord import count_records

    return count_records([str(folder / "part.tfrecord")])


@cache
def _specs() -> Any:
    from albert_tf.data.tf_examples import FeatureSpec

    return (
        FeatureSpec("input_ids", "int64", 4, 50),
        FeatureSpec("input_mask", "int64", 4, 2),
        FeatureSpec("weights", "float32", 2),
    )


@cache
def _evaluation_batches() -> Any:
    import tensorflow as tf

    from albert_tf.pretraining.batching import evaluation_batches

    @in_one_step
    def rows(path: Any) -> Any:
        return evaluation_batches([path], _specs(), 2).unbatch()

    return lambda path: rows(tf.constant(path))["input_ids"].numpy().tolist()


def _pipeline(folder: Path) -> Any:
    from albert_tf.data.records import check_record_files, explain_read_errors

    path = str(folder / "part.tfrecord")
    check_record_files([path], _specs())
    with explain_read_errors([path], _specs()):
        return _evaluation_batches()(path)


def _asked_records(folder: Path) -> None:
    """What is asked of a file before a run: its kind, and whether it holds pairs."""
    from albert_tf.pretraining.batching import are_masked, check_sentence_pairs

    path = str(folder / "part.tfrecord")
    are_masked(path, 4)
    check_sentence_pairs([path], "sop")


@cache
def _good_records() -> Any:
    import tensorflow as tf

    from albert_tf.pretraining.batching import carry_places, good_records

    @in_one_step
    def rows(path: Any, size: Any) -> Any:
        # The last one stands for itself: a file may have none.
        last = tf.data.Dataset.from_tensors(("", ""))
        return carry_places(good_records(path, size, _specs())).concatenate(last)

    return lambda path: (
        rows(tf.constant(path), tf.constant(os.path.getsize(path), tf.int64))[0]
        .numpy()[:-1]
        .tolist()
    )


def _skipping(folder: Path) -> Any:
    from albert_tf.pretraining.batching import readable_files

    path = str(folder / "part.tfrecord")
    readable_files([path])
    return _good_records()(path)


def _squad(version: int, is_training: bool, folder: Path) -> Any:
    from albert_tf.squad.data import read_squad

    data = read_squad(
        str(folder / "questions.json"), version=version, is_training=is_training, flag=FLAG
    )
    return [(q.qas_id, q.question, data.contexts[q.paragraph]) for q in data.questions]


def _plain_questions(folder: Path) -> Any:
    from albert_tf.data.streams import open_input, read_lines
    from albert_tf.squad.ask import check_questions, read_plain_questions

    path = str(folder / "questions.json")
    check_questions(path)
    with open_input(path) as file:
        groups = list(read_plain_questions(read_lines(file), path, FLAG))
    return [tuple(question) for group in groups for question in group]


def _table(name: str, folder: Path) -> Any:
    from albert_tf.data.tables import read_table

    table = read_table(str(folder / name), FLAG)
    return table.columns, [cells for _, cells in table.rows]


def _custom(name: str, folder: Path) -> Any:
    from albert_tf.classification.custom import CustomData

    data = CustomData(train_file=str(folder / name), text_a_column="text_a")
    return data.labels, data.read("train")


def _glue(folder: Path) -> Any:
    from albert_tf.classification.glue import GlueData

    return GlueData("mrpc", str(folder)).read("train")


def _race(folder: Path) -> Any:
    from albert_tf.multiple_choice.race import read_race

    rows = read_race(str(folder), "train", levels=("middle",))
    return [(row.context, row.question, row.options) for row in rows]


def _choices(folder: Path) -> Any:
    from albert_tf.multiple_choice.data import read_choices

    rows = read_choices(str(folder / "choices.jsonl"), flag=FLAG)
    return [(row.context, row.question, row.options) for row in rows]


def _corpus(folder: Path) -> Any:
    from albert_tf.pretraining.corpus import check_block, cut_into_blocks, read_documents

    blocks = cut_into_blocks([str(folder / "corpus.txt")], 100)
    for block in blocks:
        check_block(block)
        read_documents(block, seeds.tokenizer())
    return b"".join(span.read() for block in blocks for span in block.spans)


def _tokenizer(name: str, folder: Path) -> Any:
    from albert_tf.tokenization.loading import load_tokenizer

    tokenizer = load_tokenizer(vocab_file=str(folder / name))
    tokenizer.encode_batch([seeds.TEXT] * 20)
    tokenizer.encode_with_offsets(seeds.TEXT)
    return tokenizer.tokens, tokenizer.encode(seeds.TEXT)


def _sentencepiece(folder: Path) -> Any:
    from albert_tf.checkpoints.huggingface.tokenizer import tokenizer_json
    from albert_tf.tokenization.loading import load_tokenizer

    tokenizer = load_tokenizer(spm_model_file=str(folder / "spm.model"))
    tokenizer.encode_batch([seeds.TEXT] * 20)
    tokenizer.encode_with_offsets(seeds.TEXT)
    tokenizer_json(tokenizer)
    return tokenizer.tokens, tokenizer.tokenize_clean(seeds.PLAIN_TEXT)


def _piece_list(folder: Path) -> Any:
    from albert_tf.tokenization.loading import load_tokenizer

    model, listed = str(folder / "spm.model"), str(folder / "spm.vocab")
    return load_tokenizer(spm_model_file=model, vocab_file=listed).tokens


def _glue_results(folder: Path) -> Any:
    from albert_tf.tools.glue_results import read_runs

    return read_runs(str(folder))


def _ablation(folder: Path) -> Any:
    from albert_tf.config import PRESETS
    from albert_tf.tools.ablations import BASE, Variant, read_run

    return read_run(Variant(BASE, "", PRESETS["base_v2"]), str(folder))


def _ablation_settings(folder: Path) -> None:
    from albert_tf.tools.ablations import check_same_settings

    check_same_settings(str(folder), {"steps": 5, "text": "x"})


def _texts(folder: Path) -> None:
    from albert_tf.classification.predict_texts import check_file

    check_file(str(folder / "texts.txt"), is_pair=True)


_DATA = "data-00000-of-00001"
_CHECKPOINT = partial(seeds.training_files, "model.ckpt-5.index", f"model.ckpt-5.{_DATA}")

_JSON = (damage_json, damage_text)
_LINES = (damage_json_lines, damage_text)
_TABLE = (damage_table, damage_text)

_add(
    "config",
    "albert_config.json",
    seeds.configs,
    _config,
    _JSON,
    independent=partial(whole_json, "albert_config.json"),
    is_same=shares_values,
)
_add(
    "labels",
    "labels.json",
    seeds.labels,
    _labels,
    _JSON,
    independent=partial(whole_json, "labels.json"),
    is_same=shares_values,
)
_add(
    "hf_config",
    "config.json",
    seeds.hugging_face_configs,
    _hugging_face,
    _JSON,
    others=seeds.hugging_face_others,
)
_add(
    "hf_index",
    "model.safetensors.index.json",
    seeds.hugging_face_index,
    partial(_tensors, "model.safetensors.index.json"),
    _JSON,
    others=seeds.hugging_face_shards,
    named=("model.safetensors.index.json", "model-00001-of-00001.safetensors"),
)
for _name in ("config.json", "task.json", "metadata.json"):
    _add(
        f"keras_hub_{_name.removesuffix('.json')}",
        _name,
        partial(seeds.keras_hub_description, _name),
        _keras_hub,
        _JSON,
        others=seeds.keras_hub_descriptions,
        named=("config.json", _name),
    )
_add(
    "hf_tokenizer_config",
    "tokenizer_config.json",
    seeds.tokenizer_configs,
    _tokenizer_config,
    _JSON,
)
_add(
    "tokenizer_json",
    "tokenizer.json",
    seeds.tokenizer_jsons,
    _tokenizer_json,
    _JSON,
    named=("tokenizer.json", "spiece.model", "vocab.txt"),
    writes=True,
)
_add(
    "safetensors",
    "model.safetensors",
    seeds.safetensors,
    partial(_tensors, "model.safetensors"),
    (damage_header_of_safetensors,),
    independent=partial(tensors, "model.safetensors"),
)
_add(
    "pytorch",
    "pytorch_model.bin",
    seeds.pytorch,
    partial(_tensors, "pytorch_model.bin"),
    (damage_zip, damage_zip),
)
_add(
    "run_config",
    "run_config.json",
    partial(seeds.of_training, "run_config.json"),
    _run_config,
    _JSON,
)
_add(
    "metrics",
    "metrics.jsonl",
    partial(seeds.of_training, "metrics.jsonl"),
    _metrics,
    _LINES,
    writes=True,
)
_add(
    "drawn_metrics",
    "metrics.jsonl",
    partial(seeds.of_training, "metrics.jsonl"),
    _drawn_metrics,
    _LINES,
    named=("metrics.jsonl", "loss"),
)
_add(
    "best_trial",
    "best_trial.txt",
    seeds.best_trials,
    _best_trial,
    (damage_text,),
    others=lambda: {"model.ckpt-best.index": b""},
)
_add("eval_results", "eval_results.txt", seeds.eval_results, _eval_results, (damage_text,))
_add(
    "checkpoint_file",
    "checkpoint",
    seeds.checkpoint_files,
    _checkpoint_names,
    (damage_text,),
    others=lambda: {"model.ckpt-5.index": b"", "model.ckpt-7.index": b""},
    named=("checkpoint", "model.ckpt-5"),
)
_add(
    "checkpoint_index",
    "model.ckpt-5.index",
    partial(seeds.of_training, "model.ckpt-5.index"),
    _checkpoint,
    (),
    others=_CHECKPOINT,
    named=("model.ckpt-5",),
)
_add(
    "checkpoint_data",
    f"model.ckpt-5.{_DATA}",
    partial(seeds.of_training, f"model.ckpt-5.{_DATA}"),
    _checkpoint,
    (),
    others=_CHECKPOINT,
    named=("model.ckpt-5",),
)
_add(
    "input_description",
    "train_state/5.json",
    partial(seeds.of_training, "train_state/5.json"),
    _input_description,
    _JSON,
)
_add(
    "tf1_hub",
    "saved_model.pb",
    seeds.tf1_hub,
    _tf1_hub,
    (damage_message, damage_message),
    others=seeds.tf1_hub_others,
    named=("saved_model.pb", "albert_config.json", FLAG),
)
_add(
    "tf2_hub",
    "saved_model.pb",
    seeds.tf2_hub,
    _tf2_hub,
    (damage_message, damage_message),
    others=seeds.tf2_hub_others,
    named=("saved_model.pb", FLAG),
)
_add(
    "tf2_hub_variables",
    "variables/variables.index",
    seeds.tf2_hub_index,
    _tf2_hub,
    (),
    others=seeds.tf2_hub_others,
    named=("variables/variables", FLAG),
)
_add(
    "tf2_hub_notes",
    "keras_metadata.pb",
    seeds.keras_notes,
    _tf2_hub,
    (damage_text,),
    others=seeds.tf2_hub_others,
    named=("keras_metadata.pb", FLAG),
)
_add(
    "inspected_saved_model",
    "saved_model.pb",
    seeds.tf2_hub,
    _inspected_saved_model,
    (damage_message, damage_message),
    others=seeds.tf2_hub_others,
)
_add(
    "checksums",
    "SHA256SUMS",
    seeds.checksums,
    _checksums,
    (damage_text,),
    others=lambda: {"config.json": seeds.configs()[0]},
    named=("SHA256SUMS", "config.json"),
)
_add("archive", "model.tar.gz", seeds.archives, _archive, (), writes=True)
_add(
    "tfrecord",
    "part.tfrecord",
    seeds.records,
    _own_records,
    (damage_records_at_will, damage_records_at_will),
    independent=records,
)
_add(
    "tfrecord_count",
    "part.tfrecord",
    seeds.records,
    _counted_records,
    (damage_records_at_will, damage_records_at_will),
    independent=lambda folder: len(records(folder)),
)
_add(
    "tfrecord_pipeline", "part.tfrecord", seeds.records, _pipeline, (damage_records, damage_records)
)
_add(
    "tfrecord_kind",
    "part.tfrecord",
    seeds.records,
    _asked_records,
    (damage_records_at_will, damage_records_at_will),
)
_add(
    "tfrecord_skipping",
    "part.tfrecord",
    seeds.records,
    _skipping,
    (damage_records, damage_records),
    independent=sound_records,
    is_same=keeps_good_records,
)
_add(
    "inspected_records",
    "part.tfrecord",
    seeds.records,
    partial(_inspected, "part.tfrecord"),
    (damage_records_at_will, damage_records_at_will),
)
_add("squad_v1", "questions.json", seeds.squad_v1, partial(_squad, 1, True), _JSON)
_add("squad_v2", "questions.json", seeds.squad_v2, partial(_squad, 2, False), _JSON)
_add(
    "plain_questions",
    "questions.json",
    seeds.plain_questions,
    _plain_questions,
    (damage_json_lines, damage_text),
)
_add("json_rows", "rows.jsonl", seeds.json_rows, partial(_table, "rows.jsonl"), _LINES)
_add(
    "csv",
    "rows.csv",
    seeds.csv,
    partial(_table, "rows.csv"),
    _TABLE,
    independent=partial(delimited_rows, "rows.csv"),
)
_add(
    "tsv",
    "rows.tsv",
    seeds.tsv,
    partial(_table, "rows.tsv"),
    _TABLE,
    independent=partial(delimited_rows, "rows.tsv"),
)
_add("custom_rows", "rows.csv", seeds.csv, partial(_custom, "rows.csv"), _TABLE)
_add("glue", "MRPC/train.tsv", seeds.glue, _glue, _TABLE)
_add("race", "train/middle/1.txt", seeds.race, _race, _JSON, named=("1.txt", "/train"))
_add("choices", "choices.jsonl", seeds.choices, _choices, _LINES)
_add(
    "corpus",
    "corpus.txt",
    seeds.corpora,
    _corpus,
    (damage_text,),
    independent=lambda folder: (folder / "corpus.txt").read_bytes(),
)
_add(
    "vocabulary", "vocab.txt", seeds.vocabularies, partial(_tokenizer, "vocab.txt"), (damage_text,)
)
_add(
    "sentencepiece",
    "spm.model",
    seeds.sentencepiece_models,
    _sentencepiece,
    (damage_message, damage_message),
    independent=pieces,
)
_add(
    "sentencepiece_vocab",
    "spm.vocab",
    seeds.piece_lists,
    _piece_list,
    _TABLE,
    others=lambda: {"spm.model": seeds.sentencepiece_models()[0]},
)
_add(
    "glue_results",
    "mrpc-seed1/eval_results.txt",
    seeds.eval_results,
    _glue_results,
    (damage_text,),
    others=lambda: {"mrpc-seed1/best_trial.txt": seeds.best_trials()[0]},
)
_add(
    "glue_best",
    "mrpc-seed1/best_trial.txt",
    seeds.best_trials,
    _glue_results,
    (damage_text,),
    others=lambda: {"mrpc-seed1/eval_results.txt": seeds.eval_results()[0]},
)
_add(
    "ablation",
    "metrics.jsonl",
    partial(seeds.of_training, "metrics.jsonl"),
    _ablation,
    _LINES,
    others=lambda: {"eval_results.txt": seeds.eval_results()[0]},
)
_add(
    "ablation_settings",
    "ablation_settings.json",
    seeds.ablation_settings,
    _ablation_settings,
    _JSON,
    named=("ablation_settings.json", "--output_dir"),
)
_add("texts", "texts.txt", seeds.texts, _texts, (damage_text,))

PARSERS: Mapping[str, Parser] = {parser.name: parser for parser in _ALL}
# Of a format that PyTorch alone writes and reads.
NEED_TORCH = frozenset({"pytorch"})
