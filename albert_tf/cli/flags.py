"""The flags that several commands share.

Flags are defined when a command runs, never by importing its module, so that two commands can be
imported into one process.
"""

from __future__ import annotations

from absl import flags, logging

from albert_tf.cli.flag_groups import (
    DEVICES,
    MODEL,
    OPTIMIZER,
    OUTPUT,
    TRAINING,
    WITHOUT_EFFECT,
    flag_group,
    set_units,
)
from albert_tf.config import (
    FLOAT32,
    ON_DIVERGENCE,
    PRECISIONS,
    STRATEGIES,
    OptimizerConfig,
    TrainerConfig,
)


def define_model_flags() -> None:
    """The model and the weights it starts from."""
    with flag_group(MODEL):
        flags.DEFINE_string(
            "albert_config_file",
            None,
            "Configuration of the model (albert_config.json). Not given: that in --output_dir, or "
            "the one that comes with --init_checkpoint.",
        )
    define_weight_flags()


def define_weight_flags() -> None:
    """Weights to start from, and the tokenizer."""
    with flag_group(MODEL):
        flags.DEFINE_string(
            "init_checkpoint",
            None,
            "Weights to start from while --output_dir has no checkpoint: a checkpoint prefix, one "
            "of its files, or a model of any format: a directory, a released tar file, a TF-Hub "
            "URL, or mini. Not given: random weights.",
        )
        flags.DEFINE_bool(
            "allow_partial_checkpoint",
            False,
            "Accept an --init_checkpoint that does not fill the whole encoder; what it lacks stays "
            "random. Otherwise that is an error.",
        )
        flags.DEFINE_bool(
            "init_from_group0",
            False,
            "Start a model that shares less, or has more layers or groups, from --init_checkpoint: "
            "each layer takes what stands at its height there, which in a fully shared model is "
            "group 0.",
        )
        flags.DEFINE_string(
            "spm_model_file",
            None,
            "SentencePiece model (English models), to be kept beside the checkpoints. from_tf_hub "
            "takes that of the model, as does giving neither this nor --vocab_file.",
        )
        flags.DEFINE_string(
            "vocab_file",
            None,
            "WordPiece vocabulary (Chinese models), to be kept beside the checkpoints.",
        )


def define_trainer_flags(defaults: TrainerConfig) -> None:
    """How training is carried out, and what it leaves."""
    with flag_group(TRAINING):
        flags.DEFINE_integer(
            "train_batch_size", defaults.train_batch_size, "Examples of a step, over all devices."
        )
        flags.DEFINE_integer(
            "gradient_accumulation_steps",
            defaults.gradient_accumulation_steps,
            "Parts of a device's share of --train_batch_size that it computes one after the other, "
            "to need less memory; the weights come out the same.",
        )
        flags.DEFINE_bool(
            "remat",
            defaults.remat,
            "Keep only the input of each block for the backward pass and recompute the rest: the "
            "same numbers in less memory and more time.",
        )
        flags.DEFINE_bool("xla", defaults.jit_compile, "Compile the training step with XLA.")
        flags.DEFINE_integer(
            "seed", defaults.seed, "Decides initial weights, input order and dropout."
        )
        flags.DEFINE_enum(
            "on_divergence",
            defaults.on_divergence,
            ON_DIVERGENCE,
            "When a loss, a gradient or a weight is no finite number. stop: end with an error. "
            "rollback: go back to the newest checkpoint, skip the batches since and go on, up to "
            "three times.",
        )
        flags.DEFINE_float(
            "max_loss_spike",
            defaults.max_loss_spike,
            "Do as --on_divergence says also when the loss of a step is above so many times the "
            "median of the 100 steps before it; 0 never does.",
        )
    with flag_group(OUTPUT):
        flags.DEFINE_string(
            "output_dir",
            None,
            "Directory of checkpoints, logs and results. A training found there goes on where it "
            "ended.",
            required=True,
        )
        flags.DEFINE_integer(
            "save_checkpoints_steps", defaults.save_checkpoints_steps, "Steps between checkpoints."
        )
        flags.DEFINE_integer(
            "keep_checkpoint_max",
            defaults.keep_checkpoint_max,
            "Newest checkpoints to keep, besides the best; 0 keeps all.",
        )
        flags.DEFINE_integer("log_steps", defaults.log_steps, "Steps between lines of the log.")
    set_units(
        train_batch_size="examples",
        gradient_accumulation_steps="parts",
        max_loss_spike="times the median",
        save_checkpoints_steps="steps",
        keep_checkpoint_max="checkpoints",
        log_steps="steps",
    )


def trainer_config_from_flags(values: flags.FlagValues) -> TrainerConfig:
    """Turns the flags of `define_trainer_flags` into a configuration.

    Raises:
        ValueError: a value is out of range; names the flag.
    """
    return TrainerConfig(
        output_dir=values.output_dir,
        train_batch_size=values.train_batch_size,
        save_checkpoints_steps=values.save_checkpoints_steps,
        keep_checkpoint_max=values.keep_checkpoint_max,
        log_steps=values.log_steps,
        seed=values.seed,
        jit_compile=values.xla,
        gradient_accumulation_steps=values.gradient_accumulation_steps,
        remat=values.remat,
        on_divergence=values.on_divergence,
        max_loss_spike=values.max_loss_spike,
        precision=values.precision,
    )


def define_optimizer_flags(defaults: OptimizerConfig) -> None:
    """Update rule, learning rate and steps; the class of `defaults` names the flags of steps."""
    define_rate_flags(defaults)
    with flag_group(OPTIMIZER):
        flags.DEFINE_integer(
            _name(defaults.STEPS_FLAG),
            defaults.num_train_steps,
            "Steps to train, those before a resumption included; the rate reaches 0 there.",
        )
        flags.DEFINE_integer(
            _name(defaults.WARMUP_FLAG),
            defaults.num_warmup_steps,
            "Steps of warm-up, in which the rate rises linearly from 0; 0 for none.",
        )
    set_units(
        **{_name(defaults.STEPS_FLAG): "steps", _name(defaults.WARMUP_FLAG): "steps"},
    )


def define_rate_flags(defaults: OptimizerConfig) -> None:
    """Update rule and learning rate."""
    with flag_group(OPTIMIZER):
        flags.DEFINE_enum(
            "optimizer",
            defaults.optimizer,
            ["adamw", "lamb"],
            "Update rule: Adam with decoupled weight decay, or LAMB, which is made for large "
            "batches.",
        )
        flags.DEFINE_float(
            "learning_rate",
            defaults.learning_rate,
            "Rate that the warm-up rises to, and that the decay counts from.",
        )
        flags.DEFINE_float(
            "poly_power",
            defaults.poly_power,
            "Exponent of the decay; 1 is a straight line to 0 at the last step.",
        )
        flags.DEFINE_integer(
            "start_warmup_step",
            defaults.start_warmup_step,
            "Step at which the warm-up begins; the rate is 0 before.",
        )
    set_units(start_warmup_step="steps")


def _name(flag: str) -> str:
    return flag.removeprefix("--")


def optimizer_config_from_flags(
    values: flags.FlagValues,
    kind: type[OptimizerConfig] = OptimizerConfig,
    steps: tuple[int, int] | None = None,
) -> OptimizerConfig:
    """Turns the flags of `define_optimizer_flags` into a configuration of that kind.

    Args:
        values: the flags.
        kind: names the flags of steps.
        steps: steps in all and of warm-up; None where flags of `kind` say them.

    Raises:
        ValueError: a value is out of range; names the flag.
    """
    num_train_steps, num_warmup_steps = steps or (
        getattr(values, _name(kind.STEPS_FLAG)),
        getattr(values, _name(kind.WARMUP_FLAG)),
    )
    config = kind(
        optimizer=values.optimizer,
        learning_rate=values.learning_rate,
        num_train_steps=num_train_steps,
        num_warmup_steps=num_warmup_steps,
        start_warmup_step=values.start_warmup_step,
        poly_power=values.poly_power,
    )
    if config.start_warmup_step + config.num_warmup_steps >= config.num_train_steps:
        # Not an error: the original trains so too.
        logging.warning(
            "The warm-up ends at step %d, and training at step %d (--start_warmup_step, %s, %s): "
            "the learning rate never reaches --learning_rate=%g.",
            config.start_warmup_step + config.num_warmup_steps,
            config.num_train_steps,
            config.WARMUP_FLAG,
            config.STEPS_FLAG,
            config.learning_rate,
        )
    return config


def define_device_flags() -> None:
    """Where to compute and how exactly; the original's TPU flags among them."""
    with flag_group(DEVICES):
        flags.DEFINE_enum(
            "precision",
            FLOAT32,
            PRECISIONS,
            "What matrix products are computed in, when training, evaluating and predicting. "
            "Weights, losses and files are float32. bfloat16: for TPUs, newer GPUs, and processors "
            "with instructions for it. float16: for older GPUs; the loss is scaled.",
        )
        flags.DEFINE_enum(
            "distribution_strategy",
            "auto",
            STRATEGIES,
            "Where to compute. one_device: the first GPU, or the CPU. mirrored: all GPUs of this "
            "machine. multi_worker: the GPUs of every machine in the environment variable "
            "TF_CONFIG. tpu: as --use_tpu. auto: multi_worker where TF_CONFIG names several "
            "workers, else mirrored where there is more than one GPU, else one_device.",
        )
        flags.DEFINE_integer(
            "num_logical_cpu_devices",
            1,
            "Show the CPU as so many devices, to try --distribution_strategy=mirrored without "
            "GPUs.",
            lower_bound=1,
        )
        flags.DEFINE_bool("use_tpu", False, "Compute on a TPU.")
        flags.DEFINE_string(
            "tpu_name",
            None,
            "The TPU: its name, its address grpc://host:port, or local for that of this machine, "
            "which is taken without the flag.",
        )
        flags.DEFINE_string(
            "tpu_zone", None, "Zone of a TPU with a name. Not given: that of this machine."
        )
        flags.DEFINE_string(
            "gcp_project", None, "Project of a TPU with a name. Not given: that of this machine."
        )
        flags.DEFINE_integer(
            "num_tpu_cores",
            8,
            "Cores the TPU must have. Not given: any number will do.",
            lower_bound=1,
        )
    with flag_group(WITHOUT_EFFECT):
        flags.DEFINE_string("master", None, "Changes nothing: there are no session masters.")
        flags.DEFINE_integer(
            "iterations_per_loop",
            1000,
            "Changes nothing: training returns to Python after every step.",
        )
    set_units(num_logical_cpu_devices="devices", num_tpu_cores="cores", iterations_per_loop="steps")
