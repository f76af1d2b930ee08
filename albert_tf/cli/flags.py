"""Flags that several commands share, and the settings they stand for.

Flags are defined when a command runs, never on import, so that several commands can be imported
into one process. Modules that define flags import nothing heavy: `--help` must not wait for
TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

from absl import flags, logging

from albert_tf.config import (
    ALL_REDUCES,
    ATTENTIONS,
    FLOAT32,
    FREEZES,
    ON_DIVERGENCE,
    PRECISIONS,
    STRATEGIES,
    OptimizerConfig,
    TrainerConfig,
)
from albert_tf.data.sequences import PADDINGS
from albert_tf.finetuning.recipes import RECIPES
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

    absl prints help by module; a title takes the place of the module's name. `define` does the same
    for flags as this package writes them.
    """
    before = set(flags.FLAGS)
    yield
    grouped = set().union(*map(tuple, flags.FLAGS.key_flags_by_module_dict().values()))
    for name in flags.FLAGS:
        if name not in before and flags.FLAGS[name] not in grouped:
            flags.FLAGS.register_key_flag_for_module(title, flags.FLAGS[name])


class Flag(NamedTuple):
    """A flag without its help.

    Attributes:
        name: without dashes.
        default: its type is that of the flag, a tuple makes a list; a type is that of a flag that
            is None by default; None is a string that is None by default.
        choices: of an enumeration.
        at_least: lower bound of a number.
        required: whether it must be given.
    """

    name: str
    default: Any = None
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    required: bool = False


Flags = Mapping[Flag, str]  # with their help


def define(groups: Mapping[Group, Flags]) -> None:
    """Defines flags with their help, by group."""
    kinds: dict[type, Any] = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        tuple: flags.DEFINE_list,
    }
    for title, texts in groups.items():
        with flag_group(title):
            for (name, default, choices, at_least, required), text in texts.items():
                assert name not in flags.FLAGS, name  # absl lets one module define it again
                kind = default if isinstance(default, type) else type(default)
                value: Any = None if isinstance(default, type) else default
                if choices:
                    flags.DEFINE_enum(name, value, choices, text, required=required)
                else:
                    bounds = {} if at_least is None else {"lower_bound": at_least}
                    define_one = kinds.get(kind, flags.DEFINE_string)
                    value = list(value) if kind is tuple else value
                    define_one(name, value, text, required=required, **bounds)


# Of every command that takes long or writes much.
DRY_RUN: Flags = {
    Flag("dry_run", False): "Run the checks of a real run, log its training plan, and stop. "
    "Nothing is written, except models that are unpacked or downloaded into their caches.",
}
DRY_RUN_PASSED = "All checks passed. Nothing was written (--dry_run)."

# The initial weights and the tokenizer.
WEIGHTS: Flags = {
    Flag("init_checkpoint"): "Initial weights, used while --output_dir has no checkpoint: a "
    "checkpoint prefix, one of its files, or a model of any supported format (a directory, a "
    "released tar file, a TF-Hub URL, or a name such as base_v2 or mini). Default: random weights.",
    Flag("allow_partial_checkpoint", False): "Accept an --init_checkpoint that does not cover the "
    "whole encoder; missing weights stay random. Without this flag they are an error.",
    Flag("init_from_group0", False): "Initialize a model that shares fewer parameters, or has "
    "more layers or groups, than --init_checkpoint: each layer takes the weights at the same "
    "relative depth, which in a fully shared model are those of group 0.",
    Flag("spm_model_file"): "SentencePiece model (English models), stored with the checkpoints. "
    "from_tf_hub uses the file of the model, which is also the default without --vocab_file.",
    Flag("vocab_file"): "WordPiece vocabulary (Chinese models), stored with the checkpoints.",
}

# Of commands whose labels are classes.
CLASS_WEIGHTS: Flags = {
    Flag("class_weights"): "Weights of the labels in the training loss, as entries label=weight "
    "separated by commas; others have weight 1. balanced: inversely proportional to how often "
    "the labels occur in the training file. Default: equal weights.",
}

# Parts that are not stored with --model.
MODEL_PARTS: Flags = {
    Flag("albert_config_file"): "Model configuration (albert_config.json), if --model has none.",
    Flag("spm_model_file"): "SentencePiece model, if --model has none.",
    Flag("vocab_file"): "WordPiece vocabulary, if --model has none.",
    Flag("do_lower_case", True): "Whether the model expects lower-cased text. If not set, the "
    "setting stored with the model is used.",
}

# Which tokens are masked together.
NGRAMS: Flags = {
    Flag("ngram", 3): "Maximum number of consecutive words masked together.",
    Flag("favor_shorter_ngram", True): "Mask n consecutive words with probability ~ 1/n; if "
    "false, longer runs are more likely.",
    Flag("do_whole_word_mask", True): "Mask either all pieces of a word or none of them.",
}


@contextmanager
def dry_run_context(values: flags.FlagValues) -> Iterator[None]:
    """With --dry_run says in the end that nothing failed."""
    yield
    if "dry_run" in values and values.dry_run:
        print(DRY_RUN_PASSED)


def lower_case_from_flags(values: flags.FlagValues) -> bool | None:
    """Returns --do_lower_case; None where it was not given, and the model decides."""
    return values.do_lower_case if values["do_lower_case"].present else None


def model_parts_from_flags(values: flags.FlagValues) -> dict[str, Any]:
    """Returns the values of `MODEL_PARTS` as arguments of `read_contents`."""
    return {
        "albert_config_file": values.albert_config_file,
        "spm_model_file": values.spm_model_file,
        "vocab_file": values.vocab_file,
        "do_lower_case": lower_case_from_flags(values),
    }


def define_trainer_flags(defaults: TrainerConfig) -> None:
    """Defines the flags of the training loop and of what it writes."""
    define(
        {
            "Training": {
                Flag("train_batch_size", defaults.train_batch_size): "Number of examples per "
                "training step, over all devices.",
                Flag("gradient_accumulation_steps", defaults.gradient_accumulation_steps): "Number "
                "of micro-batches into which each device splits its share of --train_batch_size, "
                "to save memory; the resulting weights are the same.",
                Flag("remat", defaults.remat): "Keep only the input of each block for the "
                "backward pass and recompute the rest: the same results with less memory, in more "
                "time.",
                Flag("xla", defaults.jit_compile): "Compile the training step with XLA. If not "
                "set, it is compiled on GPUs in half precision, which gains little otherwise, "
                "unless sequences have more than four padded lengths.",
                Flag("attention", defaults.attention, choices=ATTENTIONS): "What computes "
                "attention in training. cudnn: one kernel each way, without scores in memory; "
                "needs --xla, half precision, GPUs of compute capability 8.0 or higher, batches of "
                "one length and no attention dropout. plain: operations of their own. auto: cudnn "
                "where it can be used, else plain.",
                Flag("seed", defaults.seed): "Random seed of initial weights, input order and "
                "dropout.",
                Flag("on_divergence", defaults.on_divergence, choices=ON_DIVERGENCE): "What to do "
                "when a loss, gradient or weight is not finite. stop: end with an error. "
                "rollback: return to the newest checkpoint, skip the batches since then and "
                "continue, up to three times.",
                Flag("max_loss_spike", defaults.max_loss_spike): "Apply --on_divergence also when "
                "the loss of a step exceeds this multiple of the median of the 100 steps before "
                "it; 0 disables the check.",
            },
            "Output": {
                Flag("output_dir", required=True): "Required. Directory of checkpoints, logs and "
                "results. A training run found there is resumed.",
                Flag("save_checkpoints_steps", defaults.save_checkpoints_steps): "Number of steps "
                "between checkpoints.",
                Flag("keep_checkpoint_max", defaults.keep_checkpoint_max): "Number of newest "
                "checkpoints to keep in addition to the best; 0 keeps all.",
                Flag("log_steps", defaults.log_steps): "Number of steps between log lines.",
                Flag("profile_steps"): "First and last step to profile, such as 100,110, for "
                "TensorBoard. Default: no profile.",
            },
        }
    )


def define_optimizer_flags(defaults: OptimizerConfig) -> None:
    """Defines the flags of optimizer, learning rate and number of steps.

    Args:
        defaults: its class names the flags of the steps.
    """
    define_rate_flags(defaults)
    define(
        {
            "Optimizer": {
                Flag(
                    defaults.STEPS_FLAG.removeprefix("--"), defaults.num_train_steps
                ): "Number of training "
                "steps, including those before the run was resumed; the learning rate is 0 at the "
                "last.",
                Flag(
                    defaults.WARMUP_FLAG.removeprefix("--"), defaults.num_warmup_steps
                ): "Number of warm-up "
                "steps, over which the learning rate rises linearly from 0; 0 disables the "
                "warm-up.",
            },
        }
    )


def define_rate_flags(defaults: OptimizerConfig) -> None:
    """Defines the flags of optimizer and learning rate."""
    define(
        {
            "Optimizer": {
                Flag("optimizer", defaults.optimizer, choices=("adamw", "lamb")): "Optimizer. "
                "adamw: Adam with decoupled weight decay. lamb: LAMB, for large batches.",
                Flag("learning_rate", defaults.learning_rate): "Learning rate that the warm-up "
                "rises to and from which the decay is computed.",
                Flag("poly_power", defaults.poly_power): "Exponent of the polynomial decay; 1 is "
                "a linear decay to 0 at the last step.",
                Flag("start_warmup_step", defaults.start_warmup_step): "Step at which the warm-up "
                "begins; the learning rate is 0 before.",
            },
        }
    )


def define_device_flags() -> None:
    """Defines the flags of devices and precision, among them the original's TPU flags."""
    define(
        {
            "Devices": {
                Flag("precision", FLOAT32, choices=PRECISIONS): "Precision of matrix products in "
                "training, evaluation and prediction; weights, losses and files are float32. "
                "bfloat16: for TPUs, recent GPUs, and processors with bfloat16 instructions. "
                "float16: for older GPUs; the loss is scaled.",
                Flag("tf32", False): "Let GPUs round the factors of float32 matrix products to "
                "TensorFloat-32, which is faster. Without effect in half precision and on TPUs.",
                Flag("deterministic", False): "Use only kernels that give the same results in "
                "every run on the same devices; slower on GPUs.",
                Flag("distribution_strategy", "auto", choices=STRATEGIES): "Devices to compute "
                "on. one_device: the first GPU, or the CPU. mirrored: all GPUs of this machine. "
                "multi_worker: the GPUs of all machines in the environment variable TF_CONFIG. "
                "tpu: same as --use_tpu. auto: multi_worker if TF_CONFIG names several workers, "
                "else mirrored if there are several GPUs, else one_device.",
                Flag("all_reduce", "auto", choices=ALL_REDUCES): "How several workers add up "
                "gradients. nccl: by NVIDIA's library, on GPUs. ring: over the network by "
                "TensorFlow. auto: nccl on GPUs, else ring.",
                Flag("num_logical_cpu_devices", 1, at_least=1): "Number of logical devices to "
                "split the CPU into, to try --distribution_strategy=mirrored without GPUs.",
                Flag("use_tpu", False): "Compute on a TPU.",
                Flag("tpu_name"): "Name of the TPU, its address grpc://host:port, or local. "
                "Default: local, the TPU of this machine.",
                Flag("tpu_zone"): "Zone of a TPU given by name. Default: the zone of this machine.",
                Flag("gcp_project"): "Project of a TPU given by name. Default: the project of "
                "this machine.",
                Flag("num_tpu_cores", 8, at_least=1): "Number of cores that the TPU must have. If "
                "not set, any number is accepted.",
                Flag("iterations_per_loop", 1000, at_least=1): "Number of training steps that a "
                "TPU makes before it returns to Python, where all batches have the same shape. "
                "Reports and checkpoints end a loop early; a signal does not. If not set, 1.",
            },
            "Accepted without effect": {
                Flag("master"): "No effect: there are no session masters.",
            },
        }
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
    define(
        {
            "Actions": {
                Flag("recipe", "none", choices=RECIPES): "Use the published "
                "settings of the task for all flags that are not given. v1, v2: those of models "
                "of that version. auto: those of the version that the model's configuration "
                "indicates. none: the defaults listed here.",
            },
            "Evaluation": {
                Flag("early_stopping", int, at_least=1): "End the training after this number of "
                "evaluations in a row without a better score. The schedule of the learning rate "
                "stays that of all steps. Default: train all steps.",
                Flag("checkpoint"): "Checkpoint to evaluate without training, to predict with or "
                "to export: all, best or newest of --output_dir, or a path. Default: "
                f"{checkpoint}. If --output_dir has no checkpoint, --init_checkpoint is used.",
            },
            "Prediction": {_batch_size("predict_batch_size"): _batch_help("prediction", examples)},
            "Export": {
                Flag("export_dir"): "Export a SavedModel into a numbered subdirectory of this "
                "directory. Default: no export.",
                Flag("export_text_model", False): "Also export a SavedModel that takes texts, "
                "into the subdirectory text of --export_dir. It returns the same results as this "
                "command and needs the operations of TensorFlow Text.",
            },
            "Training": {
                Flag("padding", "longest", choices=PADDINGS): "Length to which the sequences of a "
                "batch are padded. longest: that of its longest sequence. buckets: one of a few "
                f"lengths, for TPUs. max: always --max_seq_length. {padding}",
                Flag("freeze", choices=FREEZES): "Variables that training leaves as they are. "
                "encoder: the whole encoder with its pooler, so that only the head is trained. "
                "embeddings: the embedding tables and their layer normalization. Default: none.",
            },
        }
    )
    define_trainer_flags(defaults)
    define(
        {
            "Model": {
                Flag("albert_hub_module_handle"): "Model to start from, with its configuration "
                "and tokenizer: the directory or URL of a TF-Hub module, a model of another "
                "format, a released tar file, or a name such as base_v2, or mini, which is part "
                "of albert_tf.",
                Flag("albert_config_file"): "Model configuration (albert_config.json). Default: "
                "the one of --albert_hub_module_handle, next to --init_checkpoint, or in "
                "--output_dir.",
                **WEIGHTS,
                Flag("do_lower_case", True): "Lower-case the text. If not set, the setting stored "
                "with the model is used.",
            },
            "Training": {
                Flag("encoder_dropout_prob", float): "Dropout rate of hidden states and attention "
                "in the encoder during training. Default: the rates of the configuration.",
            },
        }
    )
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
    define(
        {
            "Actions": {
                Flag("do_train", is_default): "Train on the training set.",
                Flag("do_eval", is_default): "Evaluate on the development set and keep the best "
                "checkpoint as model.ckpt-best: every saved checkpoint during training, or "
                "--checkpoint without training.",
            },
            "Evaluation": {_batch_size("eval_batch_size"): _batch_help("evaluation", examples)},
        }
    )
    define_optimizer_flags(optimizer)


def _batch_size(name: str) -> Flag:
    return Flag(name, 8, at_least=1)


def _batch_help(purpose: str, examples: str) -> str:
    return (
        f"Number of {examples} of --max_seq_length tokens per batch in {purpose}; batches of "
        f"shorter {examples} hold more."
    )


def unneeded(*names: str) -> Flags:
    """Returns the flags of files in which the original keeps features between runs."""
    text = "No effect: features are computed anew, which is faster than reading them back."
    return {Flag(name): text for name in names}


def log_flags_without_effect() -> None:
    """Logs the flags that were given and that have no effect, with the reason."""
    for flag in flags.FLAGS.get_key_flags_for_module("Accepted without effect"):
        if flag.present:
            logging.info("--%s: %s", flag.name, flag.help)
