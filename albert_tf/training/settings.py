"""Settings of commands that train, and results of jobs. Does not import TensorFlow."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from absl import logging

from albert_tf.config import ATTENTIONS, FLOAT32, PRECISIONS
from albert_tf.data.errors import UserError
from albert_tf.settings import Settings, dry_run_setting, required, setting

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")  # see strategies.py
STEPS_HELP = """
    Number of training steps, including the steps before a run was resumed. The learning rate
    reaches 0 at the last step."""
WARMUP_HELP = """
    Number of warm-up steps, during which the learning rate rises linearly from 0; 0 disables the
    warm-up."""
OnLog = Callable[[Mapping[str, Any]], None]


def check_arguments(settings: Any, kind: type[Settings], on_log: Any = None) -> None:
    """Raises TypeError unless `settings` is a `kind`, and `on_log` is callable or `None`."""
    if not isinstance(settings, kind):
        raise TypeError(
            f"settings must be albert_tf.{kind.__name__}(...). Received: {settings!r:.80}"
        )
    if on_log is not None and not callable(on_log):
        raise TypeError(f"on_log must be a function of a record, or None. Received: {on_log!r:.80}")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """Settings of commands that train."""

    output_dir: str = required("Output")("""
        Directory for checkpoints, logs and results. If it contains a training run, the run is
        resumed.""")
    dry_run: bool = dry_run_setting()
    train_batch_size: int = setting(4096, "Training", at_least=1)("""
        Number of examples per training step, over all devices.""")
    gradient_accumulation_steps: int = setting(1, "Training", at_least=1)("""
        Number of micro-batches into which each device splits its share of --train_batch_size, to
        save memory; the resulting weights are the same.""")
    remat: bool = setting(False, "Training")("""
        Store only the input of each block for the backward pass and recompute everything else.
        This saves memory, takes more time, and does not change the results.""")
    xla: bool = setting(False, "Training", depends=True)("""
        Compile the training step with XLA. If not set, the step is compiled on GPUs in half
        precision, unless sequences have more than four padded lengths.""")
    seed: int = setting(12345, "Training", at_least=0, below=2**31)("""
        Random seed of initial weights, input order and dropout.""")
    save_checkpoints_steps: int = setting(5000, "Output", at_least=1)(
        "Number of steps between checkpoints."
    )
    keep_checkpoint_max: int = setting(5, "Output", at_least=0)("""
        Number of most recent checkpoints to keep, in addition to the best; 0 keeps all.""")
    log_steps: int = setting(100, "Output", at_least=1)("Number of steps between log lines.")
    profile_steps: str | None = setting(None, "Output")("""
        First and last step to profile, such as 100,110, for TensorBoard. Default: no profile.""")
    optimizer: str = setting("lamb", "Optimizer", choices=("adamw", "lamb"))("""
        Optimizer. adamw: Adam with decoupled weight decay. lamb: LAMB, for large batches.""")
    learning_rate: float = setting(0.00176, "Optimizer", above=0)("""
        Learning rate to which the warm-up rises and from which the decay is computed.""")
    poly_power: float = setting(1.0, "Optimizer", at_least=0)("""
        Exponent of the polynomial decay; 1 is a linear decay to 0 at the last step.""")
    start_warmup_step: int = setting(0, "Optimizer", at_least=0)("""
        Step at which the warm-up begins; the learning rate is 0 before this step.""")
    precision: str = setting(FLOAT32, "Devices", choices=PRECISIONS)("""
        Precision of matrix products in training, evaluation and prediction. Weights, losses and
        files are float32. bfloat16: for TPUs, recent GPUs, and processors with bfloat16
        instructions. float16: for older GPUs; the loss is scaled.""")
    attention: str = setting("plain", "Training", choices=ATTENTIONS)("""
        Implementation of attention in training. cudnn: one kernel for each direction, which does
        not store the scores. It requires --xla, half precision, GPUs with compute capability 8.0
        or higher, batches of one length and no attention dropout. plain: separate operations.
        auto: cudnn if it can be used, otherwise plain.""")
    tf32: bool = setting(False, "Devices")("""
        Round the inputs of float32 matrix products to TensorFloat-32 on GPUs, which is faster.
        Ignored in half precision and on TPUs.""")
    deterministic: bool = setting(False, "Devices")("""
        Use only kernels that give the same results in every run on the same devices. This is
        slower on GPUs.""")
    distribution_strategy: str = setting("auto", "Devices", choices=STRATEGIES)("""
        Devices to compute on. one_device: the first GPU, or the CPU. mirrored: all GPUs of this
        machine. multi_worker: the GPUs of all machines in the environment variable TF_CONFIG. tpu:
        same as --use_tpu. auto: multi_worker if TF_CONFIG names several workers, otherwise
        mirrored if there are several GPUs, otherwise one_device.""")
    all_reduce: str = setting("auto", "Devices", choices=("auto", "nccl", "ring"))("""
        How gradients are summed over several workers. nccl: with NVIDIA's library, on GPUs. ring:
        over the network, with TensorFlow. auto: nccl on GPUs, otherwise ring.""")
    num_logical_cpu_devices: int = setting(1, "Devices", at_least=1)("""
        Number of logical devices into which the CPU is split, to test
        --distribution_strategy=mirrored without GPUs.""")
    use_tpu: bool = setting(False, "Devices")("Compute on a TPU.")
    tpu_name: str | None = setting(None, "Devices")("""
        Address of the TPU, grpc://host:8470, or local. Default: local, the TPU of this machine.""")
    num_tpu_cores: int | None = setting(
        None, "Devices", at_least=1, depends=True, shown_default=8
    )("""
        Number of cores that the TPU must have. If not set, any number is accepted.""")
    iterations_per_loop: int | None = setting(
        None, "Devices", at_least=1, depends=True, shown_default=1000
    )("""
        Number of training steps that a TPU runs before it returns to Python, if all batches have
        the same shape. Reports and checkpoints end a loop early; signals do not. If not set, 1 is
        used.""")
    albert_config_file: str | None = setting(None, "Model")("""
        Model configuration (albert_config.json). Default: the configuration in --output_dir, or
        the configuration of --init_checkpoint.""")
    init_checkpoint: str | None = setting(None, "Model")("""
        Initial weights, used if --output_dir contains no checkpoint: a checkpoint prefix, one of
        its files, or a model of any supported format (a directory, a released tar file, a TF-Hub
        URL, or a name such as base_v2 or mini). Default: random weights.""")
    allow_partial_checkpoint: bool = setting(False, "Model")("""
        Accept an --init_checkpoint that does not contain all variables of the encoder. Missing
        variables are initialized randomly. Without this flag they are an error.""")
    init_from_group0: bool = setting(False, "Model")("""
        Initialize a model that has more layers or groups, or shares fewer parameters, than
        --init_checkpoint. Each layer takes the weights of the layer at the same relative depth. In
        a fully shared model these are the weights of group 0.""")
    spm_model_file: str | None = setting(None, "Model")("""
        SentencePiece model (English models). It is stored with the checkpoints. from_tf_hub: the
        tokenizer of the model, which is also the default without --vocab_file.""")
    vocab_file: str | None = setting(None, "Model")("""
        WordPiece vocabulary (Chinese models). It is stored with the checkpoints.""")

    # Names of the settings of the number of steps and of the warm-up, for messages.
    STEP_SETTINGS: ClassVar[tuple[str, str]]

    def trainer_config(self) -> "TrainerConfig":
        """Returns the settings of the trainer."""
        values = self._values_of(TrainerConfig)
        is_tpu = self.use_tpu or self.distribution_strategy == "tpu"
        values["jit_compile"] = self.xla
        values["iterations_per_loop"] = (is_tpu and self.iterations_per_loop) or 1
        return TrainerConfig(**values)

    def optimizer_config(self, num_train_steps: int, num_warmup_steps: int) -> "OptimizerConfig":
        """Returns the settings of the optimizer. Warns if the warm-up takes all steps."""
        end = self.start_warmup_step + num_warmup_steps
        if end >= num_train_steps:  # as in the original, this is not an error
            steps, warmup = self.STEP_SETTINGS
            logging.warning(
                "The warm-up ends at step %d, and training at step %d (`start_warmup_step`, `%s`, "
                "`%s`), so the learning rate never reaches `learning_rate`=%g",
                *(end, num_train_steps, warmup, steps, self.learning_rate),
            )
        values = self._values_of(OptimizerConfig)
        values |= {"num_train_steps": num_train_steps, "num_warmup_steps": num_warmup_steps}
        return OptimizerConfig(**values)

    def _values_of(self, kind: type) -> dict[str, Any]:
        names = [field.name for field in dataclasses.fields(kind)]
        return {name: getattr(self, name) for name in names if hasattr(self, name)}


@dataclass(frozen=True)
class TrainerConfig:
    """The settings that the trainer uses; see `TrainingSettings` and `FineTuningSettings`."""

    output_dir: str
    train_batch_size: int = TrainingSettings.train_batch_size
    save_checkpoints_steps: int = TrainingSettings.save_checkpoints_steps
    keep_checkpoint_max: int = TrainingSettings.keep_checkpoint_max
    log_steps: int = TrainingSettings.log_steps
    seed: int = TrainingSettings.seed
    jit_compile: bool = False  # the setting `xla`
    gradient_accumulation_steps: int = TrainingSettings.gradient_accumulation_steps
    remat: bool = TrainingSettings.remat
    precision: str = TrainingSettings.precision
    attention: str = TrainingSettings.attention
    iterations_per_loop: int = 1  # ignored if batches differ in shape
    early_stopping: int | None = None  # if `None`, all steps are trained
    freeze: str | None = None  # if `None`, all variables are trained


@dataclass(frozen=True)
class OptimizerConfig:
    """The update rule and the learning rate of a run.

    Source: optimization.py of the original release.
    """

    optimizer: str = TrainingSettings.optimizer
    learning_rate: float = TrainingSettings.learning_rate
    num_train_steps: int = 125000
    num_warmup_steps: int = 3125
    start_warmup_step: int = TrainingSettings.start_warmup_step
    poly_power: float = TrainingSettings.poly_power
    weight_decay_rate: float = 0.01  # decay per step, multiplied by the learning rate
    clip_norm: float = 1.0  # largest global norm of the gradients
    beta_1: float = 0.9  # decay of the first moment
    beta_2: float = 0.999  # decay of the second moment
    epsilon: float = 1e-6  # added to the root of the second moment
    # Number of steps at the end in which the rate decays; it is constant between warm-up and decay.
    # If `None`, it decays from step 0 on, as in the original.
    num_decay_steps: int | None = None

    def __post_init__(self) -> None:
        remaining = self.num_train_steps - self.start_warmup_step - self.num_warmup_steps
        if self.num_decay_steps is not None and self.num_decay_steps > remaining:
            raise UserError(
                f"`num_decay_steps` must be at most {remaining}, the number of steps after the "
                "warm-up (`num_train_steps` - `start_warmup_step` - `num_warmup_steps`). "
                f"Received: {self.num_decay_steps}"
            )


@dataclass(frozen=True)
class JobResult:
    """The result of a job; after a dry run, and on workers except the chief, only `output_dir`.

    Attributes:
        output_dir: the directory of the run.
        step: training step of the scored checkpoint, otherwise of the checkpoint used for
            predictions, otherwise the last training step. `None` if there is no checkpoint.
        scores: scores by name, as in `eval_results.txt`: of the best checkpoint if checkpoints
            were compared, otherwise of the evaluated checkpoint, otherwise of predictions with
            known answers. If the run was already finished, the recorded scores; none if they
            belong to other data or another metric.
        best_checkpoint: prefix of `model.ckpt-best` in `output_dir`; `None` if there is none.
        history: records with `step`, `phase` ("train" or "eval"), `time` and metrics.
            After training, these are the records of the whole run, including earlier calls, as in
            `metrics.jsonl`. Otherwise, they are the evaluations of this call.
    """

    output_dir: str
    step: int | None = None
    scores: dict[str, float] = field(default_factory=dict)
    best_checkpoint: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)
