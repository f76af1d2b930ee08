"""Settings that all fine-tuning commands share. Does not import TensorFlow."""

from dataclasses import dataclass

from albert_tf.data.sequences import PADDINGS
from albert_tf.finetuning.recipes import RECIPES
from albert_tf.settings import Group, TokenizerRules, changed, setting
from albert_tf.training.settings import STEPS_HELP, WARMUP_HELP, TrainingSettings


def checkpoint_setting(default: str) -> str | None:
    """Returns the setting `checkpoint`; `default` describes what is used if it is not set."""
    return setting(None, "Evaluation")(f"""
        Checkpoint to evaluate without training, to predict with or to export: all, best or newest
        of --output_dir, or a path. Default: {default}. If --output_dir has no checkpoint,
        --init_checkpoint is used.""")


def padding_setting(effect: str) -> str:
    """Returns the setting `padding`; `effect` describes its effect on results."""
    return setting("longest", "Training", choices=PADDINGS)(f"""
        Length to which the sequences of a batch are padded. longest: the length of the longest
        sequence in the batch. buckets: one of a few lengths, for TPUs. max: always
        --max_seq_length. {effect}""")


def batch_size_setting(group: Group, examples: str) -> int:
    """Returns the batch size in evaluation or prediction; `examples` is a plural noun."""
    return setting(8, group, at_least=1)(f"""
        Number of {examples} of --max_seq_length tokens per batch in {group.lower()}; batches of
        shorter {examples} contain more.""")


def classifier_dropout_setting() -> float:
    """Returns the setting of jobs whose labels are classes."""
    return setting(0.1, "Training", at_least=0, below=1, depends=True)("""
        Dropout rate of the input of the classification head during training.""")


def class_weights_setting() -> str | None:
    """Returns the setting of jobs whose labels are classes."""
    return setting(None, "Training")("""
        Weights of the labels in the training loss: comma-separated entries label=weight. Other
        labels have weight 1. balanced: weights are inversely proportional to the frequencies of
        the labels in the training file. Default: equal weights.""")


@dataclass(frozen=True, kw_only=True)
class FineTuningSettings(TrainingSettings, TokenizerRules):
    """Settings of all fine-tuning commands; see `TrainingSettings`.

    `warmup_proportion` is the share of the steps for the warm-up.
    """

    do_train: bool = setting(False, "Actions")("Train on the training set.")
    do_predict: bool = setting(False, "Actions")("Predict with the test set.")
    recipe: str | None = setting(None, "Actions", choices=RECIPES)("""
        Use the published settings of the task for all flags that are not set. v1, v2: settings for
        models of this version. auto: the version is detected from the configuration of the model;
        models of the size of mini have their own settings. none: the defaults listed here. Default:
        auto for models of the size of mini, otherwise none.""")
    checkpoint: str | None = checkpoint_setting("evaluate all, predict with the best")
    predict_batch_size: int = batch_size_setting("Prediction", "examples")
    export_dir: str | None = setting(None, "Export")("""
        Export a SavedModel into a numbered subdirectory of this directory. Default: no export.""")
    export_text_model: bool = setting(False, "Export")("""
        Also export a SavedModel that takes texts, into the subdirectory text of --export_dir. It
        returns the same results as this command and requires TensorFlow Text.""")
    best_metric: str | None = setting(None, "Evaluation")("""
        Score in eval_results.txt that selects the best checkpoint and ends training early, such as
        f1 or eval_loss. The lowest loss or error is best. Default: the usual score of the task.""")
    early_stopping: int | None = setting(None, "Evaluation", at_least=1)("""
        End training after this number of consecutive evaluations without a better score. The
        schedule of the learning rate still covers all steps. Default: train all steps.""")
    freeze: str | None = setting(None, "Training", choices=("encoder", "embeddings"))("""
        Variables that are not trained. encoder: the encoder with its pooler, so that only the head
        is trained. embeddings: the embedding tables and their layer normalization. Default:
        none.""")
    padding: str = padding_setting("Does not change results.")
    max_seq_length: int = setting(512, "Data", depends=True)("""
        Maximum number of tokens per sequence. Longer texts are truncated. If not set, a trained
        model keeps the length used in training.""")
    albert_hub_module_handle: str | None = setting(None, "Model")("""
        Model to start from, with its configuration and tokenizer: the directory or URL of a TF-Hub
        module, a model in another format, a released tar file, or a name such as base_v2 or mini
        (mini is part of albert_tf).""")
    albert_config_file: str | None = changed(
        TrainingSettings,
        "albert_config_file",
        help="""
        Model configuration (albert_config.json). Default: the configuration of
        --albert_hub_module_handle, next to --init_checkpoint, or in --output_dir.""",
    )
    encoder_dropout_prob: float | None = setting(
        None, "Training", at_least=0, below=1, depends=True
    )("""
        Dropout rate of hidden states and attention in the encoder during training. Default: the
        rates of the configuration.""")
    train_batch_size: int = changed(TrainingSettings, "train_batch_size", default=32, depends=True)
    num_train_epochs: float | None = setting(None, "Optimizer", above=0)("""
        Number of passes over the training examples, instead of --train_step and --warmup_step.
        Default: --train_step.""")
    warmup_proportion: float = setting(0.1, "Optimizer", at_least=0, at_most=1)("""
        With --num_train_epochs, fraction of the training steps used for the warm-up.""")
    save_checkpoints_steps: int = changed(
        TrainingSettings, "save_checkpoints_steps", default=1000, depends=True
    )
    optimizer: str = changed(TrainingSettings, "optimizer", default="adamw", depends=True)
    learning_rate: float = changed(TrainingSettings, "learning_rate", default=5e-5, depends=True)


@dataclass(frozen=True, kw_only=True)
class StepSettings(FineTuningSettings):
    """Settings of commands with a development set.

    `train_step` and `warmup_step`, or `num_train_epochs` and `warmup_proportion`, set the number of
    steps.
    """

    STEP_SETTINGS = ("train_step", "warmup_step")

    do_eval: bool = setting(False, "Actions")("""
        Evaluate on the development set: every saved checkpoint during training, or --checkpoint
        without training. The best checkpoint is kept as model.ckpt-best.""")
    eval_batch_size: int = batch_size_setting("Evaluation", "examples")
    train_step: int = setting(1000, "Optimizer", at_least=1, depends=True)(STEPS_HELP)
    warmup_step: int = setting(0, "Optimizer", at_least=0, depends=True)(WARMUP_HELP)
