"""Flags that several commands share, and the settings they stand for.

Flags are defined when a command runs, never on import, so that several commands can be imported
into one process. Modules that define flags import nothing heavy: `--help` must not wait for
TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, cast, get_args

from absl import flags, logging

from albert_tf.config import (
    FLOAT32,
    ON_DIVERGENCE,
    PRECISIONS,
    STRATEGIES,
    OptimizerConfig,
    TrainerConfig,
)
from albert_tf.data.sequences import PADDINGS
from albert_tf.training.settings import depends

# The groups of `--help`, in the order in which they are printed.
Group = Literal[
    "Actions",
    "Data",
    "Masking",
    "Model",
    "Training",
    "Optimizer",
    "Evaluation",
    "Prediction",
    "Export",
    "Output",
    "Devices",
    "Other flags",
    "Accepted without effect",
]

GROUPS: tuple[Group, ...] = get_args(Group)

T = TypeVar("T")


def settings_from_flags(kind: type[T]) -> T:
    """Returns settings, each the value of the flag of its name.

    Those of `unless_given` are None where the flag was not given; those without a flag have their
    default.

    Args:
        kind: a dataclass.
    """
    values = flags.FLAGS
    return kind(
        **{
            field.name: values[field.name].value
            for field in dataclasses.fields(cast(Any, kind))
            if field.name in values and (values[field.name].present or not depends(field))
        }
    )


@contextmanager
def flag_group(title: Group) -> Iterator[None]:
    """Lists the flags defined inside under a title, unless an inner block has listed them.

    absl prints help by module; a title takes the place of the module's name.
    """
    before = set(flags.FLAGS)
    yield
    grouped = set().union(*map(tuple, flags.FLAGS.key_flags_by_module_dict().values()))
    for name in flags.FLAGS:
        if name not in before and flags.FLAGS[name] not in grouped:
            flags.FLAGS.register_key_flag_for_module(title, flags.FLAGS[name])


def define_model_flags() -> None:
    """Defines the flags of the model and its initial weights."""
    with flag_group("Model"):
        flags.DEFINE_string(
            "albert_config_file",
            None,
            "Model configuration (albert_config.json). Default: the one in --output_dir, or the "
            "one that comes with --init_checkpoint.",
        )
    define_weight_flags()


def define_weight_flags() -> None:
    """Defines the flags of the initial weights and the tokenizer."""
    with flag_group("Model"):
        flags.DEFINE_string(
            "init_checkpoint",
            None,
            "Initial weights, used while --output_dir has no checkpoint: a checkpoint prefix, one "
            "of its files, or a model of any supported format (a directory, a released tar file, "
            "a TF-Hub URL, or mini). Default: random weights.",
        )
        flags.DEFINE_bool(
            "allow_partial_checkpoint",
            False,
            "Accept an --init_checkpoint that does not cover the whole encoder; missing weights "
            "stay random. Without this flag they are an error.",
        )
        flags.DEFINE_bool(
            "init_from_group0",
            False,
            "Initialize a model that shares fewer parameters, or has more layers or groups, than "
            "--init_checkpoint: each layer takes the weights at the same relative depth, which in "
            "a fully shared model are those of group 0.",
        )
        flags.DEFINE_string(
            "spm_model_file",
            None,
            "SentencePiece model (English models), stored with the checkpoints. from_tf_hub uses "
            "the file of the model, which is also the default without --vocab_file.",
        )
        flags.DEFINE_string(
            "vocab_file",
            None,
            "WordPiece vocabulary (Chinese models), stored with the checkpoints.",
        )


def define_fine_tuning_model_flags() -> None:
    """Defines the flags of the model to fine-tune, in any format, and of its dropout."""
    with flag_group("Model"):
        flags.DEFINE_string(
            "albert_hub_module_handle",
            None,
            "Model to start from, with its configuration and tokenizer: the directory or URL of a "
            "TF-Hub module, a model of another format, a released tar file, or mini, which is part "
            "of albert_tf.",
        )
        flags.DEFINE_string(
            "albert_config_file",
            None,
            "Model configuration (albert_config.json). Default: the one of "
            "--albert_hub_module_handle, next to --init_checkpoint, or in --output_dir.",
        )
    define_weight_flags()
    with flag_group("Model"):
        flags.DEFINE_bool(
            "do_lower_case",
            True,
            "Lower-case the text. If not set, the setting stored with the model is used.",
        )
    with flag_group("Training"):
        flags.DEFINE_float(
            "encoder_dropout_prob",
            None,
            "Dropout rate of hidden states and attention in the encoder during training. Default: "
            "the rates of the configuration.",
        )


def define_model_part_flags() -> None:
    """Defines the flags for parts that are not stored with --model."""
    with flag_group("Model"):
        flags.DEFINE_string(
            "albert_config_file",
            None,
            "Model configuration (albert_config.json), if --model has none.",
        )
        flags.DEFINE_string("spm_model_file", None, "SentencePiece model, if --model has none.")
        flags.DEFINE_string("vocab_file", None, "WordPiece vocabulary, if --model has none.")
        flags.DEFINE_bool(
            "do_lower_case",
            True,
            "Whether the model expects lower-cased text. If not set, the setting stored with the "
            "model is used.",
        )


def model_parts_from_flags(values: flags.FlagValues) -> dict[str, Any]:
    """Returns the values of `define_model_part_flags` as arguments of `read_contents`."""
    return {
        "albert_config_file": values.albert_config_file,
        "spm_model_file": values.spm_model_file,
        "vocab_file": values.vocab_file,
        "do_lower_case": values.do_lower_case if values["do_lower_case"].present else None,
    }


def define_trainer_flags(defaults: TrainerConfig) -> None:
    """Defines the flags of the training loop and of what it writes."""
    with flag_group("Training"):
        flags.DEFINE_integer(
            "train_batch_size",
            defaults.train_batch_size,
            "Number of examples per training step, over all devices.",
        )
        flags.DEFINE_integer(
            "gradient_accumulation_steps",
            defaults.gradient_accumulation_steps,
            "Number of micro-batches into which each device splits its share of "
            "--train_batch_size, to save memory; the resulting weights are the same.",
        )
        flags.DEFINE_bool(
            "remat",
            defaults.remat,
            "Keep only the input of each block for the backward pass and recompute the rest: the "
            "same results with less memory, in more time.",
        )
        flags.DEFINE_bool("xla", defaults.jit_compile, "Compile the training step with XLA.")
        flags.DEFINE_integer(
            "seed", defaults.seed, "Random seed of initial weights, input order and dropout."
        )
        flags.DEFINE_enum(
            "on_divergence",
            defaults.on_divergence,
            ON_DIVERGENCE,
            "What to do when a loss, gradient or weight is not finite. stop: end with an error. "
            "rollback: return to the newest checkpoint, skip the batches since then and continue, "
            "up to three times.",
        )
        flags.DEFINE_float(
            "max_loss_spike",
            defaults.max_loss_spike,
            "Apply --on_divergence also when the loss of a step exceeds this multiple of the "
            "median of the 100 steps before it; 0 disables the check.",
        )
    with flag_group("Output"):
        flags.DEFINE_string(
            "output_dir",
            None,
            "Required. Directory of checkpoints, logs and results. A training run found there is "
            "resumed.",
            required=True,
        )
        flags.DEFINE_integer(
            "save_checkpoints_steps",
            defaults.save_checkpoints_steps,
            "Number of steps between checkpoints.",
        )
        flags.DEFINE_integer(
            "keep_checkpoint_max",
            defaults.keep_checkpoint_max,
            "Number of newest checkpoints to keep in addition to the best; 0 keeps all.",
        )
        flags.DEFINE_integer("log_steps", defaults.log_steps, "Number of steps between log lines.")


def define_optimizer_flags(defaults: OptimizerConfig) -> None:
    """Defines the flags of optimizer, learning rate and number of steps.

    Args:
        defaults: its class names the flags of the steps.
    """
    define_rate_flags(defaults)
    with flag_group("Optimizer"):
        flags.DEFINE_integer(
            _name(defaults.STEPS_FLAG),
            defaults.num_train_steps,
            "Number of training steps, including those before the run was resumed; the learning "
            "rate is 0 at the last.",
        )
        flags.DEFINE_integer(
            _name(defaults.WARMUP_FLAG),
            defaults.num_warmup_steps,
            "Number of warm-up steps, over which the learning rate rises linearly from 0; 0 "
            "disables the warm-up.",
        )


def define_rate_flags(defaults: OptimizerConfig) -> None:
    """Defines the flags of optimizer and learning rate."""
    with flag_group("Optimizer"):
        flags.DEFINE_enum(
            "optimizer",
            defaults.optimizer,
            ["adamw", "lamb"],
            "Optimizer. adamw: Adam with decoupled weight decay. lamb: LAMB, for large batches.",
        )
        flags.DEFINE_float(
            "learning_rate",
            defaults.learning_rate,
            "Learning rate that the warm-up rises to and from which the decay is computed.",
        )
        flags.DEFINE_float(
            "poly_power",
            defaults.poly_power,
            "Exponent of the polynomial decay; 1 is a linear decay to 0 at the last step.",
        )
        flags.DEFINE_integer(
            "start_warmup_step",
            defaults.start_warmup_step,
            "Step at which the warm-up begins; the learning rate is 0 before.",
        )


def _name(flag: str) -> str:
    return flag.removeprefix("--")


def define_device_flags() -> None:
    """Defines the flags of devices and precision, among them the original's TPU flags."""
    with flag_group("Devices"):
        flags.DEFINE_enum(
            "precision",
            FLOAT32,
            PRECISIONS,
            "Precision of matrix products in training, evaluation and prediction; weights, losses "
            "and files are float32. bfloat16: for TPUs, recent GPUs, and processors with bfloat16 "
            "instructions. float16: for older GPUs; the loss is scaled.",
        )
        flags.DEFINE_enum(
            "distribution_strategy",
            "auto",
            STRATEGIES,
            "Devices to compute on. one_device: the first GPU, or the CPU. mirrored: all GPUs of "
            "this machine. multi_worker: the GPUs of all machines in the environment variable "
            "TF_CONFIG. tpu: same as --use_tpu. auto: multi_worker if TF_CONFIG names several "
            "workers, else mirrored if there are several GPUs, else one_device.",
        )
        flags.DEFINE_integer(
            "num_logical_cpu_devices",
            1,
            "Number of logical devices to split the CPU into, to try "
            "--distribution_strategy=mirrored without GPUs.",
            lower_bound=1,
        )
        flags.DEFINE_bool("use_tpu", False, "Compute on a TPU.")
        flags.DEFINE_string(
            "tpu_name",
            None,
            "Name of the TPU, its address grpc://host:port, or local. Default: local, the TPU of "
            "this machine.",
        )
        flags.DEFINE_string(
            "tpu_zone", None, "Zone of a TPU given by name. Default: the zone of this machine."
        )
        flags.DEFINE_string(
            "gcp_project",
            None,
            "Project of a TPU given by name. Default: the project of this machine.",
        )
        flags.DEFINE_integer(
            "num_tpu_cores",
            8,
            "Number of cores that the TPU must have. If not set, any number is accepted.",
            lower_bound=1,
        )
    with flag_group("Accepted without effect"):
        flags.DEFINE_string("master", None, "No effect: there are no session masters.")
        flags.DEFINE_integer(
            "iterations_per_loop",
            1000,
            "No effect: training returns to Python after every step.",
        )


def define_fine_tuning_flags(
    defaults: TrainerConfig,
    examples: str,
    *,
    checkpoint: str,
    padding: str = "Does not change results.",
) -> None:
    """Defines the flags of all commands that fine-tune; those of the steps are not among them.

    Args:
        defaults: of the training loop.
        examples: what a batch consists of.
        checkpoint: what happens without --checkpoint.
        padding: what depends on --padding.
    """
    with flag_group("Actions"):
        flags.DEFINE_enum(
            "recipe",
            "none",
            ["none", "auto", "v1", "v2"],
            "Use the published settings of the task for all flags that are not given. v1, v2: "
            "those of models of that version. auto: those of the version that the model's "
            "configuration indicates. none: the defaults listed here.",
        )
    with flag_group("Evaluation"):
        flags.DEFINE_string(
            "checkpoint",
            None,
            "Checkpoint to evaluate without training, to predict with or to export: all, best or "
            f"newest of --output_dir, or a path. Default: {checkpoint}. If --output_dir has no "
            "checkpoint, --init_checkpoint is used.",
        )
    with flag_group("Prediction"):
        _define_batch_size_flag("predict_batch_size", "prediction", examples)
    with flag_group("Export"):
        flags.DEFINE_string(
            "export_dir",
            None,
            "Export a SavedModel into a numbered subdirectory of this directory. Default: no "
            "export.",
        )
        flags.DEFINE_bool(
            "export_text_model",
            False,
            "Also export a SavedModel that takes texts, into the subdirectory text of "
            "--export_dir. It returns the same results as this command and needs the operations of "
            "TensorFlow Text.",
        )
    with flag_group("Training"):
        flags.DEFINE_enum(
            "padding",
            "longest",
            PADDINGS,
            "Length to which the sequences of a batch are padded. longest: that of its longest "
            "sequence. buckets: one of a few lengths, for TPUs. max: always --max_seq_length. "
            f"{padding}",
        )
    define_trainer_flags(defaults)
    define_fine_tuning_model_flags()
    define_device_flags()


def define_development_flags(
    examples: str, optimizer: OptimizerConfig, *, is_default: bool
) -> None:
    """Defines the flags of commands with a development set and a number of training steps.

    Args:
        examples: what a batch consists of.
        optimizer: defaults.
        is_default: whether they train and evaluate if not told otherwise.
    """
    with flag_group("Actions"):
        flags.DEFINE_bool("do_train", is_default, "Train on the training set.")
        flags.DEFINE_bool(
            "do_eval",
            is_default,
            "Evaluate on the development set and keep the best checkpoint as model.ckpt-best: "
            "every saved checkpoint during training, or --checkpoint without training.",
        )
    with flag_group("Evaluation"):
        _define_batch_size_flag("eval_batch_size", "evaluation", examples)
    define_optimizer_flags(optimizer)


def _define_batch_size_flag(name: str, purpose: str, examples: str) -> None:
    flags.DEFINE_integer(
        name,
        8,
        f"Number of {examples} of --max_seq_length tokens per batch in {purpose}; batches of "
        f"shorter {examples} hold more.",
        lower_bound=1,
    )


def define_unneeded_flags(*names: str) -> None:
    """Defines the flags of files in which the original keeps features between runs."""
    with flag_group("Accepted without effect"):
        for name in names:
            flags.DEFINE_string(
                name,
                None,
                "No effect: features are computed anew, which is faster than reading them back.",
            )


def log_flags_without_effect() -> None:
    """Logs the flags that were given and that have no effect, with the reason."""
    for flag in flags.FLAGS.get_key_flags_for_module("Accepted without effect"):
        if flag.present:
            logging.info("--%s: %s", flag.name, flag.help)


def define_ngram_flags() -> None:
    """Defines the flags that choose which tokens are masked together."""
    with flag_group("Masking"):
        flags.DEFINE_integer("ngram", 3, "Maximum number of consecutive words masked together.")
        flags.DEFINE_bool(
            "favor_shorter_ngram",
            True,
            "Mask n consecutive words with probability ~ 1/n; if false, longer runs are more "
            "likely.",
        )
        flags.DEFINE_bool(
            "do_whole_word_mask", True, "Mask either all pieces of a word or none of them."
        )


def define_online_masking_flags() -> None:
    """Defines the flags of masking during training."""
    with flag_group("Masking"):
        flags.DEFINE_float(
            "masked_lm_prob",
            0.0,
            "Fraction of tokens to mask during training, differently in every epoch; usually 0.15. "
            "For records made with create_pretraining_data --masked_lm_prob=0. 0: the records are "
            "masked already.",
        )
        flags.DEFINE_float(
            "masked_lm_budget", 0.0, "Name of --masked_lm_prob in the original release."
        )
    define_ngram_flags()
