"""Published fine-tuning settings and scores, and our own settings for `mini`.

The published settings are from table 14 of the ALBERT paper (https://arxiv.org/abs/1909.11942), or
from the README and the GLUE script of the original release. Only the settings for RACE differ
between v1 and v2.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from absl import logging

from albert_tf.config import PRESETS, VERSION_KEY, AlbertConfig
from albert_tf.data.errors import UserError

_shape = attrgetter("hidden_size", "num_hidden_layers", "intermediate_size")
SIZES = ("base", "large", "xlarge", "xxlarge")
VERSIONS = ("v1", "v2")
RECIPES = ("none", "auto", *VERSIONS)  # values of the setting `recipe`

# MNLI's mismatched sets and the diagnostic set evaluate models trained on MNLI.
_SAME_SETTINGS = {"mismnli": "mnli", "ax": "mnli"}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Settings of one task, named after the flags."""

    learning_rate: float
    train_batch_size: int
    train_step: int
    warmup_step: int
    max_seq_length: int = 512
    save_checkpoints_steps: int = 100
    encoder_dropout_prob: float = 0.0
    classifier_dropout_prob: float = 0.1
    optimizer: str = "adamw"
    num_train_epochs: float = 0.0  # only SQuAD; epochs over the questions
    warmup_proportion: float = 0.0  # only SQuAD; share of the steps for the warm-up
    init_from: str | None = None  # task of the initial model; `None` for a pretrained model
    versions: tuple[str, ...] = VERSIONS  # versions of ALBERT with these settings
    source: str = "paper, table 14; run_glue.sh of the original release"
    # Scores of a released model on the development set in percent, by metric.
    published: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)


_SQUAD: dict[str, Any] = {"warmup_proportion": 0.1, "save_checkpoints_steps": 5000}
_README = "paper, table 14; steps between checkpoints: README of the original release."
_SQUAD_1 = f"{_README} Its other settings are the same (2 epochs)"
_SQUAD_2 = f"{_README} Its command has learning rate 5e-5 and length 384 instead"
_TOKENS = "BERT paper, appendix A.3 (no settings were published for ALBERT): 4 epochs of CoNLL-2003"
_RACE_1 = "paper, table 14; with these settings v2 models diverge"
_RACE_2 = "README of the original release"

_ROWS: tuple[tuple[str, Recipe], ...] = (
    ("cola", Recipe(1e-5, 16, 5336, 320)),
    ("sts-b", Recipe(2e-5, 16, 3598, 214, init_from="mnli")),
    ("sst-2", Recipe(1e-5, 32, 20935, 1256)),
    ("mnli", Recipe(3e-5, 128, 10000, 1000)),
    ("qnli", Recipe(1e-5, 32, 33112, 1986, save_checkpoints_steps=200)),
    ("qqp", Recipe(5e-5, 128, 14000, 1000, encoder_dropout_prob=0.1)),
    ("rte", Recipe(3e-5, 32, 800, 200, encoder_dropout_prob=0.1, init_from="mnli")),
    ("mrpc", Recipe(2e-5, 32, 800, 200, init_from="mnli")),
    ("wnli", Recipe(2e-5, 16, 2000, 250, encoder_dropout_prob=0.1, source="paper, table 14")),
    ("squad1.1", Recipe(5e-5, 48, 3649, 365, 384, num_train_epochs=2.0, source=_SQUAD_1, **_SQUAD)),
    ("squad2.0", Recipe(3e-5, 48, 8144, 814, num_train_epochs=3.0, source=_SQUAD_2, **_SQUAD)),
    (
        "race",
        Recipe(2e-5, 32, 12000, 1000, encoder_dropout_prob=0.1, versions=("v1",), source=_RACE_1),
    ),
    ("race", Recipe(1e-5, 32, 12000, 1000, versions=("v2",), source=_RACE_2)),
    ("tokens", Recipe(5e-5, 32, 1755, 175, 128, source=_TOKENS)),
)

# Columns of the scores in the README of the original release. Each score is from the best
# checkpoint of a single run.
_README_COLUMNS = (
    ("squad1.1", "f1"),
    ("squad1.1", "exact_match"),
    ("squad2.0", "f1"),
    ("squad2.0", "exact"),
    ("mnli", "eval_accuracy"),
    ("sst-2", "eval_accuracy"),
    ("race", "eval_accuracy"),
)

_README_SCORES = {
    ("base", "v2"): (90.2, 83.2, 82.1, 79.3, 84.6, 92.9, 66.8),
    ("large", "v2"): (91.8, 85.2, 84.9, 81.8, 86.5, 94.9, 75.2),
    ("xlarge", "v2"): (92.9, 86.4, 87.9, 84.1, 87.9, 95.4, 80.7),
    ("xxlarge", "v2"): (94.6, 89.1, 89.8, 86.9, 90.6, 96.8, 86.8),
    ("base", "v1"): (89.3, 82.3, 80.0, 77.1, 81.6, 90.3, 64.0),
    ("large", "v1"): (90.6, 83.9, 82.3, 79.4, 83.5, 91.7, 68.5),
    ("xlarge", "v1"): (92.5, 86.1, 86.1, 83.1, 86.4, 92.4, 74.8),
    ("xxlarge", "v1"): (94.8, 89.3, 90.2, 87.4, 90.8, 96.9, 86.5),
}

# Paper, table 9 (1.5 M steps): medians of 5 runs. The table names no metrics. A comparison with the
# other models in the table shows that QQP and MRPC are accuracies, and STS-B Pearson's correlation.
_XXLARGE_V1_SCORES = {
    "qnli": {"eval_accuracy": 95.3},
    "qqp": {"eval_accuracy": 92.2},
    "rte": {"eval_accuracy": 89.2},
    "mrpc": {"eval_accuracy": 90.9},
    "cola": {"matthew_corr": 71.4},
    "sts-b": {"pearson": 93.0},
}


# Measured with `mini` on nine data sets, see docs/results.md. Few examples need more passes.
_MINI_SHAPE = (384, 4, 1536)
_MINI_LEARNING_RATE = 1e-4
_MINI_EPOCHS = {"tokens": 6}  # other tasks: 3
_MINI_LEAST_STEPS = 96


def recipe_for(task_name: str, size: str | None = None, version: str = "v2") -> Recipe:
    """Returns the published settings of a task, and the scores of a model if a size is given.

    Raises ValueError if the task, the size or the version is unknown.
    """
    task = task_name.lower()
    if size not in (None, *SIZES) or version not in VERSIONS:
        raise UserError(
            f"size must be one of {', '.join(SIZES)}, and version one of {', '.join(VERSIONS)}. "
            f"Received: {size!r} and {version!r}"
        )
    row = _SAME_SETTINGS.get(task, task)
    scores: dict[str, float] = {}
    if size:
        columns = zip(_README_COLUMNS, _README_SCORES[size, version], strict=True)
        scores = {metric: score for (name, metric), score in columns if name == task}
        if (size, version) == ("xxlarge", "v1"):
            scores |= _XXLARGE_V1_SCORES.get(task, {})
    for name, recipe in _ROWS:
        if name == row and version in recipe.versions:
            return dataclasses.replace(recipe, published=scores)
    raise UserError(
        f"There is no published recipe for the task {task_name!r}. The tasks with recipes are "
        f"{', '.join(recipe_names())}. Set `recipe`=none and pass the settings instead."
    )


def recipe_settings(
    setting: str | None,
    task_name: str,
    config: AlbertConfig,
    wanted: Iterable[str],
    *,
    is_training: bool,
) -> dict[str, Any]:
    """Returns and logs the values of a recipe for the settings `wanted`.

    `setting` is one of `RECIPES`; "auto" selects the version of the model, or the settings of
    `mini`. `None` is "auto" for `mini`, otherwise "none". If `is_training`, also logs the task of
    the initial model of the published runs.
    """
    is_own = is_for_mini(setting, config)
    setting = setting or ("auto" if is_own else "none")
    if setting == "none" or (is_own and not is_training):
        return {}
    if is_own:
        offered, first_task = {"learning_rate": _MINI_LEARNING_RATE}, None
        epochs = _MINI_EPOCHS.get(task_name, 3)
        source = f"for `mini`: {epochs} epochs, at least {_MINI_LEAST_STEPS} steps, unless set"
    else:
        recipe = recipe_for(
            task_name, size_of(config), version_of(config) if setting == "auto" else setting
        )
        offered = {
            **vars(recipe),
            "max_seq_length": min(recipe.max_seq_length, config.max_position_embeddings),
            "dropout_prob": recipe.classifier_dropout_prob,
        }
        source, first_task = recipe.source, recipe.init_from
    taken = {name: offered[name] for name in wanted if name in offered}
    values = " ".join(f"`{name}`={value}" for name, value in taken.items())
    logging.info("`recipe`=%s (%s): %s", setting, source, values)
    if first_task and is_training:
        logging.info(
            "The published runs of this task started from a model fine-tuned on %s. Pass such a "
            "model as `init_checkpoint`.",
            first_task,
        )
    return taken


def mini_steps(task_name: str, num_examples: int, batch_size: int) -> int:
    """Returns the number of training steps of `mini` for a number of examples."""
    return max(_MINI_LEAST_STEPS, _MINI_EPOCHS.get(task_name, 3) * -(-num_examples // batch_size))


def recipe_names() -> list[str]:
    """Returns the tasks that have a recipe, in alphabetical order."""
    return sorted({name for name, _ in _ROWS} | set(_SAME_SETTINGS))


def size_of(config: AlbertConfig) -> str | None:
    """Returns the released size with the same layers, or `None` if there is no such size.

    Only the hidden size, the intermediate size and the number of layers are compared.
    """
    return next((s for s in SIZES if _shape(PRESETS[f"{s}_v2"]) == _shape(config)), None)


def is_for_mini(setting: str | None, config: AlbertConfig) -> bool:
    """Returns whether `setting` selects the recipe of `mini`; compares layers as `size_of` does."""
    return setting in (None, "auto") and _shape(config) == _MINI_SHAPE


def version_of(config: AlbertConfig) -> str:
    """Returns the released version of a model, or of the model that it was fine-tuned from."""
    # Only v1 was pretrained with dropout, except xxlarge, which has the same configuration in both
    # versions and is reported as v2.
    recorded = config.extra.get(VERSION_KEY)
    if recorded in VERSIONS:
        return recorded
    return "v1" if config.hidden_dropout_prob or config.attention_probs_dropout_prob else "v2"


def with_dropout(config: AlbertConfig, rate: float) -> AlbertConfig:
    """Changes the dropout rate of the encoder, and stores the version of the model."""
    return config.replace(
        hidden_dropout_prob=rate,
        attention_probs_dropout_prob=rate,
        extra={**config.extra, VERSION_KEY: version_of(config)},
    )


def released_name(config: AlbertConfig) -> str | None:
    """Returns the released model of this size and vocabulary, such as "large_zh", or `None`."""
    size = size_of(config)
    names = [f"{size}_{version_of(config)}", f"{size}_zh"] if size else []
    return next((n for n in names if PRESETS[n].vocab_size == config.vocab_size), None)
