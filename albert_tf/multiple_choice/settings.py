"""Settings of `run_multiple_choice`. Does not import TensorFlow."""

from dataclasses import dataclass

from albert_tf.finetuning.settings import StepSettings, batch_size_setting
from albert_tf.settings import changed, setting


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceSettings(StepSettings):
    """Settings of `run_multiple_choice`, named after the flags of `run_race.py`.

    `output_dir` is required. The actions are `do_train` and `do_eval` (both True by default),
    `do_predict` and `export_dir`. All except `export_dir` need data: `data_dir` for RACE, otherwise
    `train_choices`, `dev_choices` and `test_choices`. Training also needs an initial model:
    `albert_hub_module_handle`, or `init_checkpoint` with the settings for its configuration and
    tokenizer. docs/flags.md describes all settings. For errors see `ClassificationSettings`.
    """

    task_name: str = setting("race", "Data")("""
        Must be race, for the RACE data and for custom questions.""")
    do_train: bool = changed(StepSettings, "do_train", default=True)
    do_eval: bool = changed(StepSettings, "do_eval", default=True)
    do_predict: bool = setting(False, "Actions")("""
        Write the selected options for the test set to predictions.tsv. If the test set has labels,
        write its scores to predict_results.txt.""")
    predict_batch_size: int = batch_size_setting("Prediction", "questions")
    eval_batch_size: int = batch_size_setting("Evaluation", "questions")
    max_seq_length: int = changed(
        StepSettings,
        "max_seq_length",
        help="""
        Maximum number of tokens of a sequence, which consists of context, question and option. The
        context is truncated to fit.""",
    )
    data_dir: str | None = setting(None, "Data")("""
        The directory RACE, which contains train, dev and test, or its parent directory. Not
        required with --train_choices, --dev_choices or --test_choices.""")
    high_only: bool = setting(False, "Data")("Use only the high-school level of RACE.")
    middle_only: bool = setting(False, "Data")("Use only the middle-school level of RACE.")
    train_choices: str | None = setting(None, "Data")("""
        The train set to use instead of RACE: JSON or CSV with context, question, options (2 to
        26) and label, or the columns of another data set.""")
    dev_choices: str | None = setting(None, "Data")("""
        The dev set to use instead of RACE: JSON or CSV with context, question, options (2 to
        26) and label, or the columns of another data set.""")
    test_choices: str | None = setting(None, "Data")("""
        The test set to use instead of RACE: JSON or CSV with context, question, options (2 to
        26) and label, or the columns of another data set.""")
    max_qa_length: int = setting(128, "Data", depends=True)("""
        Maximum number of tokens of a question with an option. Longer texts are truncated at the
        front.""")
    dropout_prob: float = setting(0.1, "Training", at_least=0, below=1, depends=True)("""
        Dropout rate of the input of the head during training.""")
    save_checkpoints_steps: int = changed(StepSettings, "save_checkpoints_steps", default=100)
    learning_rate: float = changed(StepSettings, "learning_rate", default=1e-5)
    train_step: int = changed(StepSettings, "train_step", default=12000)
    warmup_step: int = changed(StepSettings, "warmup_step", default=1000)
