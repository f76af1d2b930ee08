"""Plans of `pretrain`: the settings of all stages, for a text and a number of hours.

A plan is decided once, so that it does not depend on the speed of later starts. The recipe is that
of the bundled model mini (albert_tf/pretrained/mini/README.md).
"""

import math
import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from unicodedata import name as character_name
from unicodedata import normalize

import tensorflow as tf

from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.huggingface import read_config
from albert_tf.checkpoints.load_tokenizer import load_tokenizer
from albert_tf.config import BFLOAT16, FLOAT32, AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import file_size, match_files, read_utf8
from albert_tf.data.parallel import available_cores
from albert_tf.pretraining.instances import ADJACENT, NONE, NSP, ORIGINAL, SOP
from albert_tf.pretraining.prepare_text import language_code
from albert_tf.pretraining.raw_text import PART_BYTES, read_parts
from albert_tf.pretraining.settings import (
    PrepareTextSettings,
    PretrainingDataSettings,
    PretrainingSettings,
    VocabularySettings,
)
from albert_tf.settings import settings_of
from albert_tf.tools.check_accelerator import run_isolated
from albert_tf.tools.pretrain_settings import PretrainSettings
from albert_tf.tools.pretrain_stages import (
    EXPORT,
    PREPARE,
    RECORDS,
    RUN,
    TRAINING,
    VOCABULARY,
    Row,
    execute,
)
from albert_tf.training.cluster import num_workers
from albert_tf.training.settings import OptimizerConfig

_LEAST_BYTES = 200_000
_BYTES_PER_PIECE = 500
_HELD_OUT_BYTES = 100_000  # at least 1% and at most 10% of the text
_LARGE_BYTES = 500_000_000  # a tenth of this is enough for the steps with short sequences
_SAMPLE_PARTS = 4  # of a megabyte
_MOST_PASSES = 40  # over the text; mini was trained for 31
_SENTENCE_ORDER_TOKENS = 1e9  # from which mini learned the order of sentences
# Least and most pieces of languages with many characters
_MANY_CHARACTERS = {"ja": (4000, 20_000), "ko": (2000, 8000), "zh": (4000, 20_000)}
_VOCABULARY_LINES = 1_000_000
# Bytes per second: text and records on each core, a vocabulary on one core
_SPEEDS = {PREPARE: 8e6, VOCABULARY: 1e6, RECORDS: 4e6}
_FINISHING_SECONDS = 15.0  # of the evaluation, and of the export
_STARTING_SECONDS = 8.0  # of each stage of training, to compile it
_NOMINAL_RATE = 2e11  # operations per second, if the speed is not measured

# Hidden size, layers, heads, feed-forward size and pieces. The last number limits --size=auto: if
# mini can process this many tokens in the given time, the size is better than the next smaller one.
# docs/results.md has the measurements for mini. The limits of larger sizes are estimates.
SHAPES: dict[str, tuple[int, int, int, int, int, float]] = {
    "tiny": (128, 2, 2, 512, 8000, 0),
    "mini": (384, 4, 6, 1536, 8000, 3e7),
    "small": (512, 6, 8, 2048, 8000, 2e8),
    "base_v2": (768, 12, 12, 3072, 30000, 4e9),
}
# Scripts of languages. The text of another language is not checked.
_SCRIPTS = {
    "LATIN": "ca cs cy da de en es et eu fi fr hr hu id it lt lv ms nl no pl pt ro sk sl sv tr vi",
    **{"CYRILLIC": "be bg mk ru uk", "ARABIC": "ar fa ur", "DEVANAGARI": "hi mr ne", "GREEK": "el"},
    **{"CJK": "zh", "HIRAGANA": "ja", "HANGUL": "ko", "HEBREW": "he", "THAI": "th"},
}


class Stage(NamedTuple):
    """A stage of training. The first `steps // warmup` steps are the warm-up."""

    positions: int
    tokens: int  # per step
    steps: int
    warmup: int
    seconds: float = 0.0  # per step


_SHORT = (Stage(16, 4096, 1500, 5), Stage(32, 4096, 900, 9), Stage(64, 4096, 1600, 16))
_LAST = Stage(128, 8192, 2069, 14)
_FEW_LAYERS, _FEW_LAYERS_UNTIL = 2, 32  # layers, positions
# A model that has not learned to use neighbors in this stage learns little afterwards.
_FIRST_STEPS, _FIRST_WARMUP = 600, 100  # at least
_RATE, _LAST_RATE, _CONTINUED_RATE = 5e-4, 8e-4, 3e-4  # for a hidden size of 384
_EVALUATED_PROB = 0.15  # of masked tokens, as in the original and in other results
_MASKING = {"masked_lm_prob": 0.2, "ngram": 1, "do_whole_word_mask": False}
# Settings that records and training have in common, but that do not apply to unmasked records.
_OF_TRAINING = settings_of(PretrainingSettings).keys() - {"spm_model_file", "vocab_file"}


class Planner:
    """Decides the settings of all stages after a rehearsal on a sample of the text in `folder`."""

    def __init__(self, settings: PretrainSettings, folder: str) -> None:
        self.settings, self.devices, self.folder = settings, device_settings(settings), folder
        self.given = {n: v for n, v in settings.given().items() if n not in self.devices}
        self.source = self.given.get("init_checkpoint")
        stored = open_model(self.source) if self.source else None
        self.code = language_code(settings.language)
        is_english = self.code == "en"
        self.rules: dict[str, Any] = {"do_lower_case": is_english, "keep_accents": not is_english}
        if stored:
            self.rules |= {name: value for name, value in stored.rules.items() if value is not None}
        self.rules |= {name: self.given[name] for name in self.rules if name in self.given}
        names = ("spm_model_file", "vocab_file")
        self.tokenizer = {name: self.given[name] for name in names if name in self.given}
        if self.tokenizer:
            tokenizer = load_tokenizer(**self.tokenizer, **self.rules)
            self.given["vocab_size"] = tokenizer.vocab_size
        self.grows = bool(stored and (self.tokenizer or "vocab_size" in self.given))
        if stored and not self.grows:
            file = os.path.abspath(stored.required_tokenizer.files[0])
            self.tokenizer = {names[file.endswith(".txt")]: file}
        self.initial = stored.required_config if stored else None
        # Workers must connect before TensorFlow is used.
        precision = partial(run_isolated, fast_precision) if num_workers() > 1 else fast_precision
        self.precision = self.given.get("precision") or precision()
        self.last = _LAST._replace(positions=settings.max_seq_length)

    def plan(self, start: float) -> dict[str, Any]:
        """Returns a plan, see `pretrain`. `start` is the time at which the command began.

        Raises ValueError if there is too little text or time, or the text is in another script.
        """
        settings = self.settings
        files, self.num_bytes, share = _sample(settings.text, self.folder)
        if self.num_bytes < _LEAST_BYTES:
            raise UserError(
                f"`text` contains {self.num_bytes:,} bytes. Training needs at least "
                f"{_LEAST_BYTES:,} bytes, and a useful model 50 MB or more."
            )
        size = settings.size if settings.size in SHAPES else "mini"
        self.pieces = self._config(size).vocab_size
        if share < 1:
            small = int(share * self.num_bytes) // _BYTES_PER_PIECE
            self.pieces = min(self.pieces, max(4000, small))
        sample = ",".join(files), 10, round(share * self.num_bytes)
        masked = _MASKING | {"max_predictions_per_seq": self.last.positions // 5 + 1}
        for row in self._data_rows(*sample, [self.last], NONE)[:-1]:  # no held-out records
            row["settings"] |= masked if row["command"] == RECORDS else {}
            counts = execute(row, self.folder, self.devices)
            if row["command"] == PREPARE:
                path = os.path.join(self.folder, "text", "part-00000-of-00010.txt")
                check_language(read_utf8(path), settings.language)
        self.text_tokens = counts["text_tokens"] / share
        parts = max(10, min(100, self.num_bytes // _HELD_OUT_BYTES))
        whole = settings.text, parts, self.num_bytes
        seconds = sum(r["seconds"] for r in self._data_rows(*whole, [*_SHORT, self.last], NONE))
        passed = time.monotonic() - start + seconds + 2 * _FINISHING_SECONDS
        passed += _STARTING_SECONDS * (len(_SHORT) + 1)
        budget = settings.hours * 3600 - passed
        if budget <= 0 and not settings.num_train_steps:
            raise UserError(
                f"`hours`={settings.hours:g} is too short. Without the training, the command "
                f"takes about {passed / 3600:.2g} hours. Pass more `hours`."
            )
        size = self._size(budget)
        config = self._config(size)
        self.pieces = config.vocab_size
        stages = self._stages(config, budget)
        tokens = [stage.steps * stage.tokens for stage in stages]
        is_large = tokens[-1] >= _SENTENCE_ORDER_TOKENS
        loss = self.given.get("sentence_loss") or (SOP if is_large else NONE)
        rows = self._data_rows(*whole, stages, loss) + self._training_rows(config, stages, loss)
        for row in rows[-len(stages) - 2 : -2]:
            names = ("num_train_steps", "num_warmup_steps", "num_decay_steps")
            OptimizerConfig(**{name: row["settings"][name] for name in names})  # checks them
        return {
            "settings": comparable(settings),
            "size": size,
            "config": config.to_dict(),
            "text": {"bytes": self.num_bytes, "tokens": round(self.text_tokens), "parts": parts},
            "tokens": sum(tokens),
            "stages": rows,
        }

    def _given_to(self, kind: type, omitted: Iterable[str] = ()) -> dict[str, Any]:
        names = settings_of(kind).keys() - {*omitted}
        return {name: value for name, value in self.given.items() if name in names}

    def _vocab_size(self, size: str = "mini") -> int:
        """Returns the number of pieces of a model, or fewer for a small text."""
        least, most = _MANY_CHARACTERS.get(self.code, (400, SHAPES[size][4]))
        small = max(least, self.num_bytes // _BYTES_PER_PIECE)
        return int(self.given.get("vocab_size") or min(most, small))

    def _config(self, size: str) -> AlbertConfig:
        positions = self.settings.max_seq_length
        if self.initial:
            positions = max(positions, self.initial.max_position_embeddings)
            pieces = self._vocab_size() if self.grows else self.initial.vocab_size
            return self.initial.replace(max_position_embeddings=positions, vocab_size=pieces)
        if path := self.given.get("albert_config_file"):
            config = read_config(path)
            config.check_sequence_length(positions)
            return config.replace(vocab_size=self.given.get("vocab_size", config.vocab_size))
        hidden, layers, heads, feed_forward, *_ = SHAPES[size]
        return AlbertConfig(
            vocab_size=self._vocab_size(size),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=feed_forward,
            max_position_embeddings=positions,
            initializer_range=0.05 if hidden < 768 else 0.02,
        )

    def _size(self, budget: float) -> str:
        """Returns the name of the size."""
        if self.source or "albert_config_file" in self.given:
            return "given"
        if self.settings.size != "auto":
            return self.settings.size
        steps = self.settings.num_train_steps
        tokens = steps * self.last.tokens if steps else budget * self._rate(self._config("mini"))
        possible = min(tokens, _MOST_PASSES * self.text_tokens)
        return [name for name, (*_, least) in SHAPES.items() if least <= possible][-1]

    def _rate(self, config: AlbertConfig) -> float:
        """Returns the number of tokens per second in the last stage, from a short training."""
        stage = self.last._replace(steps=4, seconds=1.0)
        row, *_ = self._training_rows(config, [stage], NONE)
        run = os.path.join(self.folder, f"{config.hidden_size}-{stage.tokens}")
        config.to_json_file(os.path.join(run, "albert_config.json"))
        records = f"{self.folder}/records/{stage.positions}.tfrecord-*"
        row["settings"] |= {"input_file": records, "log_steps": 2}
        row["settings"] |= {"max_predictions_per_seq": stage.positions // 5 + 1}
        row["settings"] |= {"num_warmup_steps": 0, "num_decay_steps": None}
        omitted = "favor_shorter_ngram", "init_checkpoint", "grow_init_checkpoint"
        for name in (*_MASKING, *self.tokenizer, *omitted):
            row["settings"].pop(name, None)
        rates: list[float] = []  # the first one includes the compilation
        execute(row, run, self.devices, lambda record: rates.append(record["examples_per_second"]))
        return rates[-1] * stage.positions

    def _stages(self, config: AlbertConfig, budget: float) -> list[Stage]:
        """Divides the steps, or the time, among the stages.

        With little time, all stages of the recipe are shortened by the same factor. With more time,
        the last stage becomes longer.
        """
        steps, last = self.settings.num_train_steps, self.last
        if batch := self.given.get("train_batch_size"):
            self.last = last = last._replace(tokens=batch * last.positions)
        rate = _NOMINAL_RATE / _operations(config, last) if steps else self._rate(config)
        # mini: 64 sequences per step with 17 million tokens, 512 with 1,630 million
        doublings = min(3, round(math.log2(max(1, budget * rate / 17e6)) / 2))
        if doublings > 0 and not (steps or batch):
            self.last = last = last._replace(tokens=last.tokens << doublings)
            rate = self._rate(config)
        rows = [stage for stage in _SHORT if stage.positions < last.positions and not self.source]
        stages, whole = [], _operations(config, last)
        for stage in (*rows, last):
            is_short = stage.positions <= _FEW_LAYERS_UNTIL and stage is not last
            share = _operations(few_layers(config) if is_short else config, stage) / whole
            stages.append(stage._replace(seconds=stage.tokens / rate * share))
        costs = [1.0 if steps else stage.seconds for stage in stages]
        left = float(steps or budget)
        factor = min(1.0, left / sum(c * s.steps for c, s in zip(costs, stages, strict=True)))
        for number, (cost, stage) in enumerate(zip(costs, stages, strict=True)):
            wanted = factor * stage.steps
            if number == 0:
                wanted = max(wanted, min(_FIRST_STEPS, left / cost / 2))
            if number == len(rows):
                wanted = left / cost
            stages[number] = stage._replace(steps=max(1, int(wanted)))
            left -= cost * stages[number].steps
        return stages

    def _data_rows(
        self, text: str, parts: int, num_bytes: int, stages: Sequence[Stage], loss: str
    ) -> list[Row]:
        """Returns the stages before the training; every `parts`-th document is held out."""
        planned: dict[str, Any] = {"input_file": text}
        planned |= {"output_file": f"{RUN}/text/part@{parts}.txt"}
        planned |= {"language": self.settings.language, "drop_duplicates": True}
        per_second = {n: v * (n == VOCABULARY or available_cores()) for n, v in _SPEEDS.items()}
        seconds = {name: 1 + num_bytes / value for name, value in per_second.items()}
        planned |= self._given_to(PrepareTextSettings)
        rows = [_row("text", PREPARE, seconds[PREPARE], planned)]
        prepared, prefix = f"{RUN}/text/part-*", f"{RUN}/vocabulary/pieces"
        tokenizer = self.tokenizer or {"spm_model_file": f"{prefix}.model"}
        if not self.tokenizer or tokenizer.get("spm_model_file", "").startswith(RUN):
            planned = {"input_file": prepared, "model_prefix": prefix, **self.rules}
            planned |= {"vocab_size": self.pieces, "input_sentence_size": _VOCABULARY_LINES}
            if self.code in _MANY_CHARACTERS:
                planned["character_coverage"] = 0.9995
            planned |= self._given_to(VocabularySettings, ("vocab_size",))
            rows.append(_row("vocabulary", VOCABULARY, seconds[VOCABULARY], planned))
        self.tokenizer = tokenizer
        held_out = stages[-1]._replace(steps=0)
        for stage in (*stages, held_out):
            length, is_last = stage.positions, stage.positions == stages[-1].positions
            planned = {"max_seq_length": length, "sentence_loss": loss if is_last else NONE}
            planned |= {"sentence_pairs": ORIGINAL if loss == NSP else ADJACENT}
            planned |= {"short_seq_prob": 0.0, "dupe_factor": 1}
            planned |= {"masked_lm_prob": 0.0, **tokenizer, **self.rules}
            planned |= self._given_to(PretrainingDataSettings, {*_OF_TRAINING, *tokenizer})
            name, files, share = str(length), prepared, 1.0
            if stage is held_out:
                name, files, share = "heldout", f"{RUN}/text/heldout.txt", 1 / parts
            elif num_bytes > _LARGE_BYTES and not is_last:
                files, share = f"{RUN}/text/part-0000?-*", 0.1
            output = f"{RUN}/records/{name}.tfrecord" + "@8" * (stage is not held_out)
            planned |= {"input_file": files, "output_file": output}
            rows.append(_row(f"records {name}", RECORDS, share * seconds[RECORDS], planned))
        return rows

    def _training_rows(self, config: AlbertConfig, stages: Sequence[Stage], loss: str) -> list[Row]:
        """Returns the stages from the first training step to the exported model."""
        rows: list[Row] = []
        grows = self.grows or config != (self.initial or config)  # pieces or positions
        initial = {"init_checkpoint": self.source, "grow_init_checkpoint": grows}
        for number, stage in enumerate(stages, start=1):
            length, is_last = stage.positions, number == len(stages)
            scale = 384 / config.hidden_size
            rate = _LAST_RATE * scale * (stage.tokens / _LAST.tokens) ** 0.2
            if not is_last:  # with a higher rate, models learn only frequencies for longer
                rate = _RATE * (min(1.0, scale) if number == 1 else scale)
            is_short = length <= _FEW_LAYERS_UNTIL and not is_last
            steps = stage.steps
            least = 0 if number > 1 or self.source else min(_FIRST_WARMUP, steps // 2)
            planned = {
                "input_file": f"{RUN}/records/{length}.tfrecord-*",
                "output_dir": f"{RUN}/training/{number}",
                "albert_config_file": f"{RUN}/{'few_layers' if is_short else 'albert_config'}.json",
                **initial,
                **self.tokenizer,
                **_MASKING,
                "sentence_loss": loss if is_last else NONE,
                "allow_partial_checkpoint": is_last and loss != NONE,
                "train_batch_size": stage.tokens // length,
                "num_train_steps": steps,
                "num_warmup_steps": max(steps // stage.warmup, least),
                "optimizer": "adamw",
                "learning_rate": float(f"{_CONTINUED_RATE if self.source else rate:.2g}"),
                "poly_power": float(is_last),
                "num_decay_steps": max(1, steps // 4) if is_last else None,
                "precision": self.precision,
                # A killed run repeats about a minute.
                "save_checkpoints_steps": max(1, min(steps, round(60 / stage.seconds))),
                "keep_checkpoint_max": 1,
                "log_steps": max(1, min(100, steps // 20)),
            }
            omitted = ["train_batch_size", "init_checkpoint", "albert_config_file", "sentence_loss"]
            omitted += ["num_decay_steps"] * (not is_last)
            planned |= self._given_to(PretrainingSettings, omitted)
            planned["max_seq_length"] = length
            slots = math.ceil(planned["masked_lm_prob"] * length)
            planned.setdefault("max_predictions_per_seq", slots)
            name = f"training {number}, {length} tokens"
            seconds = _STARTING_SECONDS + steps * stage.seconds
            rows.append(_row(name, TRAINING, seconds, planned))
            initial = {"init_checkpoint": planned["output_dir"], "grow_init_checkpoint": False}
            initial["init_from_group0"] = is_short  # the next stage may have more layers
        return [*rows, *_finishing_rows(planned)]


def few_layers(config: AlbertConfig) -> AlbertConfig:
    """Returns the configuration for short sequences."""
    return config.replace(num_hidden_layers=min(config.num_hidden_layers, _FEW_LAYERS))


def _row(name: str, command: str, seconds: float, settings: dict[str, Any]) -> Row:
    return {"name": name, "command": command, "seconds": round(seconds, 1), "settings": settings}


def _finishing_rows(trained: Mapping[str, Any]) -> list[Row]:
    """Returns the evaluation and the export after the last stage of training."""
    slots = math.ceil(_EVALUATED_PROB * trained["max_seq_length"])
    omitted = ("init_checkpoint", "init_from_group0", "grow_init_checkpoint", "num_decay_steps")
    evaluation = {
        **{name: value for name, value in trained.items() if name not in omitted},
        **{"do_train": False, "do_eval": True, "masked_lm_prob": _EVALUATED_PROB},
        "max_predictions_per_seq": max(slots, trained["max_predictions_per_seq"]),
        "eval_checkpoint": f"{trained['output_dir']}/model.ckpt-{trained['num_train_steps']}",
        "input_file": f"{RUN}/records/heldout.tfrecord",
        "output_dir": f"{RUN}/evaluation",
    }
    exported = {"path": trained["output_dir"], "format": "huggingface"}
    exported |= {"output_dir": f"{RUN}/model"}
    return [
        _row("evaluation", TRAINING, _FINISHING_SECONDS, evaluation),
        _row("export", EXPORT, _FINISHING_SECONDS, exported),
    ]


def extended_plan(plan: dict[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a plan with one more stage of training if `wanted` has more hours or steps."""
    known, trainings = plan["settings"], [r for r in plan["stages"] if "training" in r["name"]]
    before, number = trainings[-1]["settings"], len(trainings) + 1
    seconds = trainings[-1]["seconds"] / before["num_train_steps"]
    steps = wanted.get("num_train_steps", 0) - known.get("num_train_steps", 0)
    if "num_train_steps" not in known:
        steps = int((wanted["hours"] - known["hours"]) * 3600 / seconds)
    if steps <= 0:
        return plan
    warmup, decay = steps // _LAST.warmup, max(1, steps // 4)
    added = before | {
        "init_checkpoint": before["output_dir"],
        "grow_init_checkpoint": False,
        "output_dir": f"{RUN}/training/{number}",
        **{"num_train_steps": steps, "num_warmup_steps": warmup, "num_decay_steps": decay},
    }
    name = f"training {number}, {before['max_seq_length']} tokens"
    kept = [row for row in plan["stages"] if row["name"] not in ("evaluation", "export")]
    return {
        **plan,
        "settings": dict(wanted),
        "tokens": plan["tokens"] + steps * before["train_batch_size"] * before["max_seq_length"],
        "stages": [*kept, _row(name, TRAINING, steps * seconds, added), *_finishing_rows(added)],
        "note": f"The learning rate, which had decayed to 0, rises to {before['learning_rate']:g} "
        f"in {warmup:,} steps, and decays to 0 in the last {decay:,} steps.",
    }


def _operations(config: AlbertConfig, stage: Stage) -> float:
    """Returns the operations of the matrix products of a training step, per token."""
    E, H, F = config.embedding_size, config.hidden_size, config.intermediate_size
    layer = 2 * (4 * H * H + 2 * H * F) + 4 * stage.positions * H
    heads = 0.2 * 2 * E * (H + config.vocab_size)
    return 3 * (config.num_hidden_layers * layer + 2 * E * H + heads)


def fast_precision() -> str:
    """Returns bfloat16 if this machine computes matrix products much faster in it, else float32."""
    times = {}
    for dtype in (FLOAT32, BFLOAT16):
        matrix, laps = tf.cast(tf.random.normal([1024, 1024]), dtype), []
        for _ in range(6):
            start = time.perf_counter()
            tf.matmul(matrix, matrix).numpy()
            laps.append(time.perf_counter() - start)
        times[dtype] = min(laps)
    return BFLOAT16 if times[BFLOAT16] < 0.8 * times[FLOAT32] else FLOAT32


def _sample(text: str, folder: str) -> tuple[list[str], int, float]:
    """Writes parts of files, which are chosen at random, to a folder.

    Returns their paths, the number of bytes of the whole text, and the share of the sample.
    """
    files = match_files(text, in_folders=True)
    read, paths, left = [0], list[str](), _SAMPLE_PARTS * PART_BYTES
    for path in random.Random(0).sample(files, len(files)):
        for part in islice(read_parts(path, read.append), max(1, _SAMPLE_PARTS // len(files))):
            paths.append(os.path.join(folder, f"{len(paths)}.raw"))
            with open(paths[-1], "wb") as file:
                file.write(part.data)
            left -= len(part.data)
        if left <= 0:
            break
    written, total = sum(map(file_size, paths)), sum(map(file_size, files))
    ratio = max(1.0, written / max(1, sum(read)))  # of compressed files
    num_bytes = max(written, int(total * ratio))
    return paths, num_bytes, written / max(1, num_bytes)


def check_language(text: str, language: str) -> None:
    """Raises ValueError if a text is in another script than its language, or not in English."""
    letters, scripts = Counter(filter(str.isalpha, text)), Counter[str]()
    for letter, count in letters.items():
        scripts[character_name(letter, "?").split()[0].split("-")[0]] += count
    code, advice = language_code(language), f"Pass its `language`. Received: {language!r}"
    script = next((name for name, codes in _SCRIPTS.items() if code in codes.split()), "")
    for common, count in scripts.most_common(1):
        if script and scripts[script] < 0.2 * count:
            raise UserError(f"The text is mostly {common.title()}, not {script.title()}. {advice}")
    marked = sum(n for letter, n in letters.items() if len(normalize("NFD", letter)) > 1)
    if code == "en" and marked > 0.01 * letters.total():
        share = f"{marked / letters.total():.1%}"
        raise UserError(f"{share} of the letters have accents, unlike in English. {advice}")


def comparable(settings: PretrainSettings) -> dict[str, Any]:
    """Returns the settings that all starts of a run must have in common, for JSON."""
    declared, values = settings_of(PretrainSettings), vars(settings)
    others = {name for name in declared if declared[name].group == "Devices"} - {"precision"}
    kept = {n: v for n, v in values.items() if v is not None and n not in others}
    del kept["output_dir"], kept["dry_run"]
    return {name: list(v) if isinstance(v, tuple) else v for name, v in kept.items()}


def device_settings(settings: PretrainSettings) -> dict[str, Any]:
    """Returns the settings that the user has set, and that every start may change."""
    common = comparable(settings)
    return {name: value for name, value in settings.given().items() if name not in common}
