"""Flags that several commands share, and their conversion to settings.

Flags are defined when a command runs, not on import, so that one process can import several
commands. Modules that define flags must not import TensorFlow, so that `--help` is fast.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar, cast

from absl import flags, logging

from albert_tf.config import (
    ALL_REDUCES,
    ATTENTIONS,
    FLOAT32,
    FREEZES,
    PRECISIONS,
    STRATEGIES,
    FineTuningOptimizerConfig,
    OptimizerConfig,
    TrainerConfig,
)
from albert_tf.data.sequences import PADDINGS
from albert_tf.finetuning.recipes import RECIPES
from albert_tf.training.settings import depends

# The groups of `--help`, in printed order.
GROUPS = (
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
    "Accepted without effect",
)

T = TypeVar("T")


def settings_from_flags(kind: type[T]) -> T:
    """Returns a dataclass whose fields are the values of the flags of the same names.

    Fields that depend on other settings are `None` if their flag is not set. Fields without a flag
    keep their default.
    """
    values = flags.FLAGS
    return kind(
        **{
            field.name: values[field.name].value
            for field in dataclasses.fields(cast(Any, kind))
            if field.name in values and (values[field.name].present or not depends(field))
        }
    )


class Flag(NamedTuple):
    """Definition of a flag, without its help text.

    The default determines the type: `None` defines a string, and a tuple defines a list. If the
    default is itself a type, the flag has this type and the default `None`. The type `list` defines
    a string that can be repeated.
    """

    name: str
    default: Any = None
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    required: bool = False
    alias_of: str | None = None  # another name of this flag


Flags = Mapping[Flag, str]  # help texts of flags
Groups = Mapping[str, Flags]  # by group
_DEFINE: dict[type, Any] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    tuple: flags.DEFINE_list,
    list: flags.DEFINE_multi_string,
}


def merged(*parts: Groups) -> Groups:
    """Returns the flags of all parts by group."""
    titles = dict.fromkeys(title for part in parts for title in part)
    return {
        title: {flag: text for part in parts for flag, text in part.get(title, {}).items()}
        for title in titles
    }


def define(groups: Groups) -> None:
    """Defines flags with their help texts, by group."""
    for title, texts in groups.items():
        for flag, text in texts.items():
            assert flag.name not in flags.FLAGS, flag.name  # absl does not reject all duplicates
            _define_one(flag, text)
            flags.FLAGS.register_key_flag_for_module(title, flags.FLAGS[flag.name])


def _define_one(flag: Flag, text: str) -> None:
    kind = flag.default if isinstance(flag.default, type) else type(flag.default)
    default = None if isinstance(flag.default, type) else flag.default
    bounds = {"lower_bound": flag.at_least, "upper_bound": flag.at_most}
    limits = {name: bound for name, bound in bounds.items() if bound is not None}
    if flag.alias_of:
        flags.DEFINE_alias(flag.name, flag.alias_of)
        flags.FLAGS[flag.name].help = text
    elif flag.choices:
        flags.DEFINE_enum(flag.name, default, flag.choices, text, required=flag.required)
    else:
        default = list(flag.default) if kind is tuple else default
        define_kind = _DEFINE.get(kind, flags.DEFINE_string)
        define_kind(flag.name, default, text, required=flag.required, **limits)


# For commands that run long or write many files.
DRY_RUN: Flags = {
    Flag("dry_run", False): "Run the checks of a real run, log its training plan, and stop. "
    "Nothing is written, except models that are unpacked or downloaded into their caches.",
}
DRY_RUN_PASSED = "All checks passed. Nothing was written (--dry_run)."
# Initial weights and tokenizer.
WEIGHTS: Flags = {
    Flag("init_checkpoint"): "Initial weights, used if --output_dir contains no checkpoint: a "
    "checkpoint prefix, one of its files, or a model of any supported format (a directory, a "
    "released tar file, a TF-Hub URL, or a name such as base_v2 or mini). Default: random weights.",
    Flag("allow_partial_checkpoint", False): "Accept an --init_checkpoint that does not contain "
    "all variables of the encoder. Missing variables are initialized randomly. Without this flag "
    "they are an error.",
    Flag("init_from_group0", False): "Initialize a model that has more layers or groups, or shares "
    "fewer parameters, than --init_checkpoint. Each layer takes the weights of the layer at the "
    "same relative depth. In a fully shared model these are the weights of group 0.",
    Flag("spm_model_file"): "SentencePiece model (English models). It is stored with the "
    "checkpoints. from_tf_hub: the tokenizer of the model, which is also the default without "
    "--vocab_file.",
    Flag("vocab_file"): "WordPiece vocabulary (Chinese models). It is stored with the checkpoints.",
}
# For commands whose labels are classes.
CLASSIFIER_TRAINING: Flags = {
    Flag("classifier_dropout_prob", 0.1): "Dropout rate of the input of the classification head "
    "during training.",
    Flag("class_weights"): "Weights of the labels in the training loss: comma-separated entries "
    "label=weight. Other labels have weight 1. balanced: weights are inversely proportional to the "
    "frequencies of the labels in the training file. Default: equal weights.",
}
LOWER_CASE: Flags = {
    Flag("do_lower_case", True): "Whether the model expects lower-cased text. If not set, the "
    "setting stored with the model is used.",
}
# Parts that may be missing in --model.
MODEL_PARTS: Flags = {
    Flag("albert_config_file"): "Model configuration (albert_config.json), if --model has none.",
    Flag("spm_model_file"): "SentencePiece model, if --model has none.",
    Flag("vocab_file"): "WordPiece vocabulary, if --model has none.",
    **LOWER_CASE,
}
# A pretrained model to export.
ALBERT_DIRECTORY: Flags = {
    Flag("albert_directory", required=True): "Required. Directory of a training run or a released "
    "model, or a model of another format. It is not modified.",
    Flag("checkpoint_name", "model.ckpt-best"): "Checkpoint in --albert_directory. If the default "
    "does not exist, the newest is used.",
}
# Selection of tokens that are masked together.
NGRAMS: Flags = {
    Flag("ngram", 3): "Maximum number of consecutive words masked together.",
    Flag("favor_shorter_ngram", True): "Mask n consecutive words with a probability proportional "
    "to 1/n. If false, longer runs are more likely.",
    Flag("do_whole_word_mask", True): "Mask either all pieces of a word or none of them.",
}
DEVICES: Groups = {
    "Devices": {
        Flag("precision", FLOAT32, choices=PRECISIONS): "Precision of matrix products in training, "
        "evaluation and prediction. Weights, losses and files are float32. bfloat16: for TPUs, "
        "recent GPUs, and processors with bfloat16 instructions. float16: for older GPUs; the loss "
        "is scaled.",
        Flag("tf32", False): "Round the inputs of float32 matrix products to TensorFloat-32 on "
        "GPUs, which is faster. Ignored in half precision and on TPUs.",
        Flag("deterministic", False): "Use only kernels that give the same results in every run on "
        "the same devices. This is slower on GPUs.",
        Flag("distribution_strategy", "auto", choices=STRATEGIES): "Devices to compute on. "
        "one_device: the first GPU, or the CPU. mirrored: all GPUs of this machine. multi_worker: "
        "the GPUs of all machines in the environment variable TF_CONFIG. tpu: same as --use_tpu. "
        "auto: multi_worker if TF_CONFIG names several workers, otherwise mirrored if there are "
        "several GPUs, otherwise one_device.",
        Flag("all_reduce", "auto", choices=ALL_REDUCES): "How gradients are summed over several "
        "workers. nccl: with NVIDIA's library, on GPUs. ring: over the network, with TensorFlow. "
        "auto: nccl on GPUs, otherwise ring.",
        Flag("num_logical_cpu_devices", 1, at_least=1): "Number of logical devices into which the "
        "CPU is split, to test --distribution_strategy=mirrored without GPUs.",
        Flag("use_tpu", False): "Compute on a TPU.",
        Flag("tpu_name"): "Name of the TPU, its address grpc://host:port, or local. Default: "
        "local, the TPU of this machine.",
        Flag("tpu_zone"): "Zone of the TPU, if --tpu_name is a name. Default: the zone of this "
        "machine.",
        Flag("gcp_project"): "Project of the TPU, if --tpu_name is a name. Default: the project of "
        "this machine.",
        Flag("num_tpu_cores", 8, at_least=1): "Number of cores that the TPU must have. If not set, "
        "any number is accepted.",
        Flag("iterations_per_loop", 1000, at_least=1): "Number of training steps that a TPU runs "
        "before it returns to Python, if all batches have the same shape. Reports and checkpoints "
        "end a loop early; signals do not. If not set, 1 is used.",
    },
    "Accepted without effect": {Flag("master"): "No effect: TensorFlow 2 has no session masters."},
}
EPOCHS: Groups = {
    "Optimizer": {
        Flag("num_train_epochs", float): "Number of passes over the training examples, instead of "
        "--train_step and --warmup_step. Default: --train_step.",
        Flag("warmup_proportion", 0.1): "With --num_train_epochs, fraction of the training steps "
        "used for the warm-up.",
    },
}


def report_dry_run(values: flags.FlagValues) -> None:
    """Prints that all checks of a --dry_run passed."""
    if "dry_run" in values and values.dry_run:
        print(DRY_RUN_PASSED)


def lower_case_from_flags(values: flags.FlagValues) -> bool | None:
    """Returns --do_lower_case. If it is not set, returns `None` (the setting of the model)."""
    return values.do_lower_case if values["do_lower_case"].present else None


def model_parts_from_flags(values: flags.FlagValues) -> dict[str, Any]:
    """Returns the values of `MODEL_PARTS` as arguments of `read_contents`."""
    return {
        "albert_config_file": values.albert_config_file,
        "spm_model_file": values.spm_model_file,
        "vocab_file": values.vocab_file,
        "do_lower_case": lower_case_from_flags(values),
    }


def trainer_flags(defaults: TrainerConfig) -> Groups:
    """Returns the flags of the training loop and its output."""
    return {
        "Training": {
            Flag("train_batch_size", defaults.train_batch_size): "Number of examples per training "
            "step, over all devices.",
            Flag("gradient_accumulation_steps", defaults.gradient_accumulation_steps): "Number of "
            "micro-batches into which each device splits its share of --train_batch_size, to save "
            "memory; the resulting weights are the same.",
            Flag("remat", defaults.remat): "Store only the input of each block for the backward "
            "pass and recompute everything else. This saves memory, takes more time, and does not "
            "change the results.",
            Flag("xla", defaults.jit_compile): "Compile the training step with XLA. If not set, "
            "the step is compiled on GPUs in half precision, unless sequences have more than four "
            "padded lengths.",
            Flag("attention", defaults.attention, choices=ATTENTIONS): "Implementation of "
            "attention in training. cudnn: one kernel for each direction, which does not store the "
            "scores. It requires --xla, half precision, GPUs with compute capability 8.0 or "
            "higher, batches of one length and no attention dropout. plain: separate operations. "
            "auto: cudnn if it can be used, otherwise plain.",
            Flag("seed", defaults.seed): "Random seed of initial weights, input order and dropout.",
        },
        "Output": {
            Flag("output_dir", required=True): "Required. Directory for checkpoints, logs and "
            "results. If it contains a training run, the run is resumed.",
            Flag("save_checkpoints_steps", defaults.save_checkpoints_steps): "Number of steps "
            "between checkpoints.",
            Flag("keep_checkpoint_max", defaults.keep_checkpoint_max): "Number of most recent "
            "checkpoints to keep, in addition to the best; 0 keeps all.",
            Flag("log_steps", defaults.log_steps): "Number of steps between log lines.",
            Flag("profile_steps"): "First and last step to profile, such as 100,110, for "
            "TensorBoard. Default: no profile.",
        },
    }


def optimizer_flags(defaults: OptimizerConfig) -> Groups:
    """Returns the flags of optimizer, learning rate and number of steps."""
    steps: Groups = {
        "Optimizer": {
            Flag(defaults.STEPS_FLAG.strip("`"), defaults.num_train_steps): "Number of training "
            "steps, including the steps before a run was resumed. The learning rate reaches 0 at "
            "the last step.",
            Flag(defaults.WARMUP_FLAG.strip("`"), defaults.num_warmup_steps): "Number of warm-up "
            "steps, during which the learning rate rises linearly from 0; 0 disables the warm-up.",
        },
    }
    return merged(rate_flags(defaults), steps)


def rate_flags(defaults: OptimizerConfig) -> Groups:
    """Returns the flags of optimizer and learning rate."""
    return {
        "Optimizer": {
            Flag("optimizer", defaults.optimizer, choices=("adamw", "lamb")): "Optimizer. adamw: "
            "Adam with decoupled weight decay. lamb: LAMB, for large batches.",
            Flag("learning_rate", defaults.learning_rate): "Learning rate to which the warm-up "
            "rises and from which the decay is computed.",
            Flag("poly_power", defaults.poly_power): "Exponent of the polynomial decay; 1 is a "
            "linear decay to 0 at the last step.",
            Flag("start_warmup_step", defaults.start_warmup_step): "Step at which the warm-up "
            "begins; the learning rate is 0 before this step.",
        },
    }


def fine_tuning_flags(
    examples: str,
    *,
    save_checkpoints_steps: int = 1000,
    checkpoint: str = "evaluate all, predict with the best",
    padding: str = "Does not change results.",
) -> Groups:
    """Returns the flags of all fine-tuning commands, except for the number of steps.

    `examples` is a plural noun. `checkpoint` and `padding` are parts of help texts: the default of
    --checkpoint, and the effect of --padding on results.
    """
    trainer = TrainerConfig("-", train_batch_size=32, save_checkpoints_steps=save_checkpoints_steps)
    first: Groups = {
        "Actions": {
            Flag("recipe", "none", choices=RECIPES): "Use the published settings of the task for "
            "all flags that are not set. v1, v2: settings for models of this version. auto: the "
            "version is detected from the configuration of the model. none: the defaults listed "
            "here.",
        },
        "Evaluation": {
            Flag("early_stopping", int, at_least=1): "End training after this number of "
            "consecutive evaluations without a better score. The schedule of the learning rate "
            "still covers all steps. Default: train all steps.",
            Flag("checkpoint"): "Checkpoint to evaluate without training, to predict with or to "
            f"export: all, best or newest of --output_dir, or a path. Default: {checkpoint}. If "
            "--output_dir has no checkpoint, --init_checkpoint is used.",
        },
        "Prediction": {
            Flag("predict_batch_size", 8, at_least=1): _batch_help("prediction", examples),
        },
        "Export": {
            Flag("export_dir"): "Export a SavedModel into a numbered subdirectory of this "
            "directory. Default: no export.",
            Flag("export_text_model", False): "Also export a SavedModel that takes texts, into the "
            "subdirectory text of --export_dir. It returns the same results as this command and "
            "requires TensorFlow Text.",
        },
        "Training": {
            Flag("padding", "longest", choices=PADDINGS): "Length to which the sequences of a "
            "batch are padded. longest: the length of the longest sequence in the batch. buckets: "
            f"one of a few lengths, for TPUs. max: always --max_seq_length. {padding}",
            Flag("freeze", choices=FREEZES): "Variables that are not trained. encoder: the "
            "encoder with its pooler, so that only the head is trained. embeddings: the embedding "
            "tables and their layer normalization. Default: none.",
        },
    }
    model: Groups = {
        "Model": {
            Flag("albert_hub_module_handle"): "Model to start from, with its configuration and "
            "tokenizer: the directory or URL of a TF-Hub module, a model in another format, a "
            "released tar file, or a name such as base_v2 or mini (mini is part of albert_tf).",
            Flag("albert_config_file"): "Model configuration (albert_config.json). Default: the "
            "configuration of --albert_hub_module_handle, next to --init_checkpoint, or in "
            "--output_dir.",
            **WEIGHTS,
            **LOWER_CASE,
        },
        "Training": {
            Flag("encoder_dropout_prob", float): "Dropout rate of hidden states and attention in "
            "the encoder during training. Default: the rates of the configuration.",
        },
    }
    return merged(first, trainer_flags(trainer), model, DEVICES)


def development_flags(
    examples: str, *, optimizer: OptimizerConfig | None = None, is_default: bool = False
) -> Groups:
    """Returns the flags of commands with a development set and a number of training steps.

    `examples` is a plural noun; `is_default` is the default of --do_train and --do_eval.
    """
    first: Groups = {
        "Actions": {
            Flag("do_train", is_default): "Train on the training set.",
            Flag("do_eval", is_default): "Evaluate on the development set: every saved checkpoint "
            "during training, or --checkpoint without training. The best checkpoint is kept as "
            "model.ckpt-best.",
        },
        "Evaluation": {Flag("eval_batch_size", 8, at_least=1): _batch_help("evaluation", examples)},
    }
    return merged(first, optimizer_flags(optimizer or FineTuningOptimizerConfig()), EPOCHS)


def _batch_help(purpose: str, examples: str) -> str:
    return (
        f"Number of {examples} of --max_seq_length tokens per batch in {purpose}; batches of "
        f"shorter {examples} contain more."
    )


def unneeded(*names: str) -> Flags:
    """Returns the flags of the original's feature files, which have no effect."""
    text = "No effect: features are always computed again, which is faster than reading files."
    return {Flag(name): text for name in names}


def log_flags_without_effect() -> None:
    """Logs the flags that are set but have no effect, with the reason."""
    for flag in flags.FLAGS.get_key_flags_for_module("Accepted without effect"):
        if flag.present:
            logging.info("--%s: %s", flag.name, flag.help)
