"""`pretrain`: its settings, its plan, its stages before the training, and its summary."""

import gzip
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from albert_tf import PretrainSettings
from albert_tf.cli import pretrain as command
from albert_tf.cli.flags import DRY_RUN_PASSED
from albert_tf.data.errors import UserError
from albert_tf.pretraining.instances import NONE, SOP
from albert_tf.settings import settings_of
from albert_tf.tools import model_card, pretrain, pretrain_plan
from albert_tf.tools.pretrain_plan import SHAPES, check_language, device_settings, extended_plan
from albert_tf.tools.pretrain_settings import _OWN
from albert_tf.tools.pretrain_stages import PREPARE, RECORDS, TRAINING, VOCABULARY, execute
from albert_tf.training.directory_lock import TRAINING as LOCK
from albert_tf.training.directory_lock import locked
from tests.pretrain_run import PretrainRun
from tests.run_in_process import assert_unchanged, run_here, tree

RATE = 20_000.0  # tokens per second in training
TOKENS = 10_000_000  # of the text
BYTES = 40_000_000


class Plans:
    """Creates plans without a rehearsal, for a text of which only the size is known."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.rate, self.tokens, self.num_bytes = folder, RATE, TOKENS, BYTES
        self.executed: list[dict[str, Any]] = []
        monkeypatch.setattr(pretrain_plan, "execute", self._execute)
        monkeypatch.setattr(pretrain_plan, "_sample", lambda *_: (["0.raw"], self.num_bytes, 1.0))
        monkeypatch.setattr(pretrain_plan, "read_utf8", lambda _: "")
        monkeypatch.setattr(pretrain_plan, "fast_precision", lambda: "float32")

    def _execute(self, row: dict[str, Any], run: str, devices: Any, on_log: Any = None) -> Any:
        self.executed.append(row)
        if on_log:
            on_log({"examples_per_second": self.rate / row["settings"]["max_seq_length"]})
        return {"text_tokens": self.tokens}

    def __call__(self, **changes: Any) -> dict[str, Any]:
        settings = {"text": "text.txt", "output_dir": self.folder / "run", **changes}
        planner = pretrain_plan.Planner(PretrainSettings(**settings), str(self.folder))
        return planner.plan(time.monotonic())


@pytest.fixture
def plan_of(tmp_path, monkeypatch) -> Plans:
    return Plans(tmp_path, monkeypatch)


def rows_of(plan: dict[str, Any], command: str) -> list[dict[str, Any]]:
    """Returns the settings of the stages that a command runs, without the evaluation."""
    found = [row for row in plan["stages"] if row["command"] == command]
    return [row["settings"] for row in found if row["name"] != "evaluation"]


def names_of(plan: dict[str, Any]) -> list[str]:
    return [row["name"] for row in plan["stages"]]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> PretrainRun:
    return PretrainRun(tmp_path_factory.mktemp("run"))


class TestSettings:
    def test_a_model_can_be_given_once(self):
        for given in (
            {"size": "tiny", "init_checkpoint": "mini"},
            {"size": "mini", "albert_config_file": "config.json"},
            {"albert_config_file": "config.json", "init_checkpoint": "mini"},
        ):
            with pytest.raises(UserError, match="cannot be combined"):
                PretrainSettings(text="t", output_dir="o", **given)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hours": 0.0}, "`hours` must be a number above 0"),
            ({"size": "large"}, "`size` must be one of auto, tiny, mini, small, base_v2"),
            ({"max_seq_length": 8}, "`max_seq_length` must be at least 16"),
            ({"num_train_steps": 0}, "`num_train_steps` must be at least 1"),
            ({"learning_rate": 0.0}, "`learning_rate` must be a number above 0"),
        ],
    )
    def test_values_out_of_range(self, changes, message):
        with pytest.raises(UserError, match=message):
            PretrainSettings(text="t", output_dir="o", **changes)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"size": "tiny"}, "--size cannot be combined with --albert_config_file"),
            ({"max_seq_length": 64}, "--max_seq_length must be in 1..32"),
            ({"language": "klingon"}, "--language must be the ISO 639 code"),
        ],
    )
    def test_errors_name_flags(self, run, plan_of, changes, message):
        with pytest.raises(UserError) as error:
            run_here(command, run.flags(**changes))
        assert message in str(error.value)
        assert not run.output.exists()

    def test_planned_settings_are_no_flags(self):
        assert (
            settings_of(PretrainSettings)
            .keys()
            .isdisjoint(
                {"input_file", "output_file", "do_train", "do_eval", "grow_init_checkpoint"}
            )
        )


# For all settings of stages: a value, and the commands that it reaches.
GIVEN: dict[str, tuple[Any, str]] = {
    "text_key": ("body", PREPARE),
    "drop_duplicates": (False, PREPARE),
    "do_lower_case": (False, f"{VOCABULARY} {RECORDS}"),
    "keep_accents": (True, f"{VOCABULARY} {RECORDS}"),
    "vocab_size": (700, VOCABULARY),
    "character_coverage": (0.99, VOCABULARY),
    "user_defined_symbols": (["§"], VOCABULARY),
    "byte_fallback": (True, VOCABULARY),
    "input_sentence_size": (500, VOCABULARY),
    "short_seq_prob": (0.1, RECORDS),
    "sentence_pairs": ("original", RECORDS),
    "random_seed": (3, RECORDS),
    "word_starts": ("unicode", RECORDS),
    "masked_lm_prob": (0.3, TRAINING),
    "max_predictions_per_seq": (3, TRAINING),
    "ngram": (2, TRAINING),
    "favor_shorter_ngram": (False, TRAINING),
    "do_whole_word_mask": (True, TRAINING),
    "gradient_accumulation_steps": (2, TRAINING),
    "remat": (True, TRAINING),
    "xla": (False, TRAINING),
    "seed": (3, TRAINING),
    "save_checkpoints_steps": (7, TRAINING),
    "keep_checkpoint_max": (2, TRAINING),
    "log_steps": (7, TRAINING),
    "optimizer": ("lamb", TRAINING),
    "learning_rate": (0.5, TRAINING),
    "poly_power": (2.0, TRAINING),
    "start_warmup_step": (1, TRAINING),
    "precision": ("bfloat16", TRAINING),
    "attention": ("plain", TRAINING),
    "allow_partial_checkpoint": (True, TRAINING),
    "shuffle_buffer_size": (7, TRAINING),
    "eval_batch_size": (7, TRAINING),
    "max_eval_steps": (7, TRAINING),
    "num_warmup_steps": (2, TRAINING),
}
# Settings with their own tests.
OTHERS = {
    *("spm_model_file", "vocab_file", "albert_config_file", "init_checkpoint"),
    *("train_batch_size", "num_decay_steps", "sentence_loss"),
}


class TestGivenSettings:
    def test_all_settings_are_tested(self):
        declared = settings_of(PretrainSettings)
        devices = {name for name in declared if declared[name].group == "Devices"} - {"precision"}
        assert declared.keys() - _OWN - devices == GIVEN.keys() | OTHERS

    def test_settings_reach_their_stages_and_only_those(self, plan_of):
        """All settings are changed, one after the other."""
        usual = plan_of(num_train_steps=100)
        for name, (value, commands) in GIVEN.items():
            plan = plan_of(num_train_steps=100, **{name: value})
            for row, other in zip(plan["stages"], usual["stages"], strict=True):
                settings = dict(row["settings"])
                if row["command"] in commands.split() and row["name"] != "evaluation":
                    assert settings[name] == value, (name, row)
                if row["command"] not in commands.split():
                    assert settings == other["settings"], (name, row)

    def test_devices_are_no_part_of_a_plan(self, plan_of):
        devices = {"num_workers": 1, "distribution_strategy": "mirrored", "num_tpu_cores": 4}
        plan = plan_of(num_train_steps=100, **devices)
        settings = PretrainSettings(text="t", output_dir="o", precision="float32", **devices)
        assert device_settings(settings) == devices
        for row in [plan, *plan["stages"]]:
            assert row["settings"].keys().isdisjoint(devices)

    def test_the_batch_size_and_the_decay_apply_to_the_last_stage(self, plan_of):
        plan = plan_of(num_train_steps=100, train_batch_size=6, num_decay_steps=5)
        *others, last = rows_of(plan, TRAINING)
        assert (last["train_batch_size"], last["num_decay_steps"]) == (6, 5)
        assert {row["train_batch_size"] * row["max_seq_length"] for row in others} == {4096}
        assert {row["num_decay_steps"] for row in others} == {None}

    def test_a_warm_up_must_fit_into_all_stages(self, plan_of):
        with pytest.raises(UserError, match="`num_decay_steps` must be at most"):
            plan_of(num_train_steps=100, num_warmup_steps=50)

    @pytest.mark.parametrize("loss", [SOP, "nsp"])
    def test_a_sentence_loss_belongs_to_the_last_stage(self, plan_of, loss):
        plan = plan_of(num_train_steps=100, sentence_loss=loss)
        records, training = rows_of(plan, RECORDS), rows_of(plan, TRAINING)
        assert [row["sentence_loss"] for row in records] == [*[NONE] * 3, loss, loss]
        assert [row["sentence_loss"] for row in training] == [*[NONE] * 3, loss]
        assert [row["allow_partial_checkpoint"] for row in training] == [*[False] * 3, True]
        pairs = "adjacent" if loss == SOP else "original"
        assert {row["sentence_pairs"] for row in records} == {pairs}

    @pytest.mark.parametrize("kind", ["spm_model_file", "vocab_file"])
    def test_a_vocabulary_is_used_as_it_is(self, plan_of, golden, tokenizer, kind):
        file = "small_1000.model" if kind == "spm_model_file" else "vocab.txt"
        path = str(golden / "tokenizer" / file)
        plan = plan_of(num_train_steps=100, **{kind: path})
        assert not rows_of(plan, VOCABULARY)
        for row in rows_of(plan, RECORDS) + rows_of(plan, TRAINING):
            assert row[kind] == path
        size = len(Path(path).read_text().splitlines()) if kind == "vocab_file" else 1000
        assert plan["config"]["vocab_size"] == size

    def test_a_configuration_is_used_as_it_is(self, plan_of, run):
        flags = {"num_train_steps": 9, "albert_config_file": run.config, "max_seq_length": 32}
        plan = plan_of(**flags)
        assert plan["config"]["hidden_size"] == 12
        assert plan["size"] == "given"
        assert rows_of(plan, VOCABULARY)[0]["vocab_size"] == 420
        plan = plan_of(**flags, vocab_size=500)
        assert plan["config"]["vocab_size"] == rows_of(plan, VOCABULARY)[0]["vocab_size"] == 500


class TestPlan:
    def test_stages_of_a_number_of_steps(self, plan_of):
        plan = plan_of(num_train_steps=1000, size="tiny", language="de")
        assert names_of(plan) == [
            *("text", "vocabulary", "records 16", "records 32", "records 64", "records 128"),
            *("records heldout", "training 1, 16 tokens", "training 2, 32 tokens"),
            *("training 3, 64 tokens", "training 4, 128 tokens", "evaluation", "export"),
        ]
        training = rows_of(plan, TRAINING)
        steps = [row["num_train_steps"] for row in training]
        assert sum(steps) == 1000
        assert steps[0] == 500  # the first stage must succeed
        for number, row in enumerate(training, start=1):
            length = row["max_seq_length"]
            assert row["input_file"] == f"{{run}}/records/{length}.tfrecord-*"
            config = "few_layers" if length < 64 else "albert_config"
            assert row["albert_config_file"] == f"{{run}}/{config}.json"
            before = f"{{run}}/training/{number - 1}" if number > 1 else None
            assert row["init_checkpoint"] == before
            assert row["max_predictions_per_seq"] == -(-length // 5)
            assert row["num_warmup_steps"] < row["num_train_steps"]
        assert plan["stages"][-2]["settings"]["eval_checkpoint"] == (
            f"{{run}}/training/4/model.ckpt-{steps[-1]}"
        )
        tokens = [row["train_batch_size"] * row["max_seq_length"] for row in training]
        assert plan["tokens"] == sum(n * t for n, t in zip(steps, tokens, strict=True))
        assert json.loads(json.dumps(plan)) == plan
        assert {row["keep_accents"] for row in rows_of(plan, RECORDS)} == {True}

    @pytest.mark.parametrize("length", [16, 32, 100])
    def test_short_stages_are_shorter_than_the_last_one(self, plan_of, length):
        training = rows_of(plan_of(num_train_steps=50, max_seq_length=length), TRAINING)
        lengths = [row["max_seq_length"] for row in training]
        assert lengths == [*(n for n in (16, 32, 64) if n < length), length]

    @pytest.mark.parametrize("hours", [0.1, 1.0, 10.0, 1000.0])
    def test_the_stages_fill_the_hours(self, plan_of, hours):
        plan = plan_of(hours=hours, size="mini")
        seconds = sum(row["seconds"] for row in plan["stages"])
        assert 0.97 * hours * 3600 < seconds <= hours * 3600 + 1

    def test_more_hours_extend_the_last_stage(self, plan_of):
        short, long = (rows_of(plan_of(hours=h, size="mini"), TRAINING) for h in (10.0, 100.0))
        for row, other in zip(short[:-1], long[:-1], strict=True):
            assert row["num_train_steps"] == other["num_train_steps"]
        assert short[-1]["num_train_steps"] < long[-1]["num_train_steps"]

    @pytest.mark.parametrize(("rate", "batch"), [(1e3, 64), (4e3, 128), (1e4, 256), (1e8, 512)])
    def test_long_runs_have_large_batches(self, plan_of, rate, batch):
        plan_of.rate = rate
        last = rows_of(plan_of(hours=5.0, size="mini"), TRAINING)[-1]
        assert last["train_batch_size"] == batch
        last = rows_of(plan_of(hours=5.0, size="mini", train_batch_size=32), TRAINING)[-1]
        assert last["train_batch_size"] == 32

    def test_the_speed_is_measured_without_masking_and_initial_weights(self, plan_of):
        given = {"masked_lm_prob": 0.3, "num_warmup_steps": 9, "sentence_loss": SOP}
        plan_of(init_checkpoint="mini", vocab_size=500, hours=0.1, **given)
        [measured] = [row for row in plan_of.executed if row["command"] == TRAINING]
        names = {"masked_lm_prob", "init_checkpoint", "spm_model_file"}
        assert measured["settings"].keys().isdisjoint(names)
        assert measured["settings"]["num_warmup_steps"] == 0
        assert measured["settings"]["sentence_loss"] == NONE
        [records] = [row for row in plan_of.executed if row["command"] == RECORDS]
        masked = "max_predictions_per_seq"
        assert measured["settings"][masked] == records["settings"][masked] == 26

    @pytest.mark.parametrize(
        ("trained", "text", "size"),
        [
            *((1e6, 1e9, "tiny"), (2.9e7, 1e9, "tiny"), (3.1e7, 1e9, "mini")),
            *((1.9e8, 1e9, "mini"), (2.1e8, 1e9, "small"), (3.9e9, 1e9, "small")),
            *((4.1e9, 1e9, "base_v2"), (1e12, 1e9, "base_v2")),
            # 40 passes over a small text
            *((1e12, 7e5, "tiny"), (1e12, 8e5, "mini"), (1e12, 6e6, "small")),
        ],
    )
    def test_the_size_that_time_and_text_can_train(self, plan_of, trained, text, size):
        plan_of.tokens, plan_of.rate = int(text), trained / 3600
        plan = plan_of(hours=1.0 + 60 / 3600)  # a minute for the other stages
        hidden, layers, *_ = SHAPES[size]
        config = plan["config"]
        assert plan["size"] == size
        assert (config["hidden_size"], config["num_hidden_layers"]) == (hidden, layers)
        steps = int(trained / 8192)
        assert plan_of(num_train_steps=steps)["size"] == size

    @pytest.mark.parametrize(
        ("language", "num_bytes", "pieces"),
        [
            *(("de", 300_000, 600), ("de", 210_000, 420), ("de", 40_000_000, 8000)),
            *(("zh", 4_000_000, 8000), ("zh-Hant", 40_000_000, 20_000)),
            *(("jpn", 40_000_000, 20_000), ("jav", 40_000_000, 8000)),
        ],
    )
    def test_the_size_of_the_vocabulary(self, plan_of, language, num_bytes, pieces):
        plan_of.num_bytes = num_bytes
        plan = plan_of(num_train_steps=10, language=language, size="mini")
        [row] = rows_of(plan, VOCABULARY)
        assert plan["config"]["vocab_size"] == row["vocab_size"] == pieces
        assert ("character_coverage" in row) == (language in ("zh", "zh-Hant", "jpn"))
        plan = plan_of(num_train_steps=10, language=language, vocab_size=3000)
        [row] = rows_of(plan, VOCABULARY)
        assert plan["config"]["vocab_size"] == row["vocab_size"] == 3000

    @pytest.mark.parametrize(
        ("language", "is_english"),
        [("en", True), ("en-GB", True), ("eng_Latn", True), ("et", False), ("enm", False)],
    )
    def test_only_english_is_lower_cased(self, plan_of, language, is_english):
        plan = plan_of(num_train_steps=10, language=language)
        for row in rows_of(plan, VOCABULARY) + rows_of(plan, RECORDS):
            assert (row["do_lower_case"], row["keep_accents"]) == (is_english, not is_english)

    def test_sentence_order_from_a_billion_tokens_on(self, plan_of):
        for rate, loss in ((0.9e9 / 3600, NONE), (1.2e9 / 3600, SOP)):
            plan_of.rate = rate
            plan = plan_of(hours=1.05, size="mini")
            assert [row["sentence_loss"] for row in rows_of(plan, TRAINING)] == [*[NONE] * 3, loss]
            assert [row["sentence_loss"] for row in rows_of(plan, RECORDS)[-2:]] == [loss, loss]
            assert plan["stages"][-2]["settings"]["sentence_loss"] == loss

    def test_a_tenth_of_a_large_text_for_short_sequences(self, plan_of):
        plan_of.num_bytes = 2_000_000_000
        plan = plan_of(num_train_steps=1000)
        inputs = [row["input_file"] for row in rows_of(plan, RECORDS)]
        tenth, whole = "{run}/text/part-0000?-*", "{run}/text/part-*"
        assert inputs == [tenth, tenth, tenth, whole, "{run}/text/heldout.txt"]
        assert rows_of(plan, PREPARE)[0]["output_file"] == "{run}/text/part@100.txt"

    @pytest.mark.parametrize(("num_bytes", "parts"), [(200_000, 10), (1_500_000, 15), (10**9, 100)])
    def test_the_held_out_part(self, plan_of, num_bytes, parts):
        plan_of.num_bytes = num_bytes
        assert plan_of(num_train_steps=9)["text"]["parts"] == parts


class TestContinuedModels:
    def test_a_model_with_its_vocabulary(self, plan_of):
        plan = plan_of(init_checkpoint="mini", num_train_steps=100)
        assert names_of(plan)[:4] == [
            *("text", "records 128", "records heldout", "training 1, 128 tokens"),
        ]
        [training] = rows_of(plan, TRAINING)
        assert training["init_checkpoint"] == "mini"
        assert not training["grow_init_checkpoint"]
        assert training["learning_rate"] == 3e-4
        assert Path(training["spm_model_file"]).name == "spiece.model"
        assert plan["config"]["vocab_size"] == 8000
        assert plan["config"]["max_position_embeddings"] == 512

    def test_a_model_with_a_new_vocabulary(self, plan_of):
        plan = plan_of(init_checkpoint="mini", num_train_steps=100, vocab_size=500)
        [vocabulary], [training] = rows_of(plan, VOCABULARY), rows_of(plan, TRAINING)
        assert vocabulary["vocab_size"] == plan["config"]["vocab_size"] == 500
        assert training["grow_init_checkpoint"]
        assert training["spm_model_file"] == "{run}/vocabulary/pieces.model"
        assert plan["config"]["hidden_size"] == 384

    def test_a_model_with_more_positions(self, plan_of):
        plan = plan_of(init_checkpoint="mini", num_train_steps=100, max_seq_length=600)
        [training] = rows_of(plan, TRAINING)
        assert training["grow_init_checkpoint"]
        assert plan["config"]["max_position_embeddings"] == 600
        assert not rows_of(plan, VOCABULARY)


class TestExtendedPlans:
    @pytest.fixture(params=["hours", "num_train_steps"])
    def extension(self, request, plan_of):
        """Returns a plan, and the settings of a later start with twice the time or steps."""
        first = {"hours": 3.0} if request.param == "hours" else {"num_train_steps": 1000}
        plan = json.loads(json.dumps(plan_of(**first, size="mini")))
        return plan, {**plan["settings"], request.param: 2 * first[request.param]}

    def test_a_stage_is_added(self, extension):
        plan, wanted = extension
        extended = extended_plan(plan, wanted)
        assert names_of(extended) == [
            *names_of(plan)[:-2],
            *("training 5, 128 tokens", "evaluation", "export"),
        ]
        assert extended["stages"][:-3] == plan["stages"][:-2]
        before, added = rows_of(extended, TRAINING)[-2:]
        steps = added["num_train_steps"]
        if "num_train_steps" in wanted:
            assert steps == 1000
        else:
            assert extended["stages"][-3]["seconds"] == pytest.approx(3 * 3600, rel=0.01)
        assert added["init_checkpoint"] == before["output_dir"] == "{run}/training/4"
        assert added["output_dir"] == "{run}/training/5"
        assert extended["settings"] == wanted
        assert extended["tokens"] == plan["tokens"] + 8192 * steps * (
            added["train_batch_size"] // 64
        )
        evaluation, export = extended["stages"][-2:]
        assert evaluation["settings"]["eval_checkpoint"] == f"{{run}}/training/5/model.ckpt-{steps}"
        assert export["settings"]["path"] == "{run}/training/5"
        assert "rises to" in extended["note"]

    def test_the_same_settings_change_nothing(self, extension):
        plan, _ = extension
        assert extended_plan(plan, plan["settings"]) == plan


class TestDirectories:
    """Another directory or another run is rejected before anything is written."""

    @pytest.fixture
    def planned(self, plan_of, run, tmp_path, monkeypatch):
        """Returns flags of a directory with a plan. The stages of a run raise an error."""

        def fail(*_, **__):
            raise UserError("a stage was started")

        monkeypatch.setattr(pretrain, "_run_stages", fail)
        flags = run.flags(output_dir=tmp_path / "run", num_train_steps=None, hours=2.0)
        with pytest.raises(UserError, match="a stage was started"):
            run_here(command, flags)
        return flags

    def test_the_same_settings_continue_a_run(self, planned, tmp_path):
        before = (tmp_path / "run" / "plan.json").read_bytes()
        for changes in ({}, {"num_workers": 2, "distribution_strategy": "one_device"}):
            with pytest.raises(UserError, match="a stage was started"):
                run_here(command, {**planned, **changes})
            assert (tmp_path / "run" / "plan.json").read_bytes() == before

    def test_another_run_is_rejected(self, planned, tmp_path):
        before = tree(tmp_path / "run")
        for name, value in {
            **{"text": "other.txt", "language": "de", "hours": 1.0, "max_seq_length": 32},
            **{"num_train_steps": 500, "train_batch_size": 8, "precision": "bfloat16"},
            **{"vocab_size": 500, "keep_accents": True, "sentence_loss": "sop"},
        }.items():
            with pytest.raises(UserError, match=rf"--{name} is .*Use the same settings"):
                run_here(command, {**planned, name: value})
        assert_unchanged(tmp_path / "run", before)

    def test_other_files_are_rejected(self, run, plan_of, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "mine.txt").write_text("mine")
        with pytest.raises(UserError, match=r"--output_dir must be empty .*mine\.txt"):
            run_here(command, run.flags(output_dir=tmp_path / "run"))
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]

    @pytest.mark.parametrize("pattern", ["{}", "{}/*", "{}/*,missing.txt"])
    def test_the_directory_of_the_text_is_rejected(self, run, plan_of, tmp_path, pattern):
        (tmp_path / "a.txt").write_text("text")
        flags = {"text": pattern.format(tmp_path), "output_dir": tmp_path / "deep" / "run"}
        with pytest.raises(UserError, match=r"--output_dir is in .* whose files --text contains"):
            run_here(command, run.flags(**flags))
        assert not (tmp_path / "deep").exists()

    def test_two_runs_at_a_time_are_rejected(self, planned, tmp_path):
        with locked(str(tmp_path / "run"), LOCK):
            for dry_run in (False, True):
                with pytest.raises(UserError, match="is in use by another training"):
                    run_here(command, {**planned, "dry_run": dry_run})

    def test_a_dry_run_writes_nothing(self, run, plan_of, tmp_path, capsys, monkeypatch):
        cluster = {"worker": ["localhost:1", "localhost:2"]}
        for index in (None, 0, 1):
            if index is not None:
                config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
                monkeypatch.setenv("TF_CONFIG", json.dumps(config))
            run_here(command, run.flags(output_dir=tmp_path / "run", dry_run=True))
            printed = capsys.readouterr().out
            assert printed.startswith("model     given: 1 layers of 12")
            assert "about 40.0 MB, about 10.0 million tokens; 1/100 is held out" in printed
            assert printed.endswith(f"{DRY_RUN_PASSED}\n")
            assert not (tmp_path / "run").exists()

    def test_several_workers_need_a_number_of_steps(self, run, plan_of, monkeypatch):
        cluster = {"worker": ["localhost:1", "localhost:2"]}
        config = {"cluster": cluster, "task": {"type": "worker", "index": 1}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        with pytest.raises(UserError, match="Several workers need --num_train_steps"):
            run_here(command, run.flags(num_train_steps=None))


def test_a_waiting_worker_logs_the_file_that_it_waits_for(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("albert_tf.training.cluster._WARNING_SECONDS", 0)
    threading.Timer(0.1, pretrain._write_json, [tmp_path, "plan.json", {"settings": {}}]).start()
    assert pretrain._wait_for(str(tmp_path), "plan.json", {}) == {"settings": {}}
    assert f"for the first worker to write {tmp_path / 'plan.json'}" in caplog.text


class TestTexts:
    """The rehearsal on a sample rejects unsuitable texts. Nothing is written."""

    @pytest.fixture
    def refuse(self, run, tmp_path) -> Callable[..., str]:
        """Returns a function that starts a run and returns the error."""

        def start(**changes: Any) -> str:
            with pytest.raises(UserError) as error:
                run_here(command, run.flags(output_dir=tmp_path / "run", **changes))
            assert not (tmp_path / "run").exists()
            return str(error.value)

        return start

    def test_missing_files(self, refuse, tmp_path):
        (tmp_path / "empty").mkdir()
        for text in (tmp_path / "empty", tmp_path / "missing.txt"):
            assert refuse(text=text).startswith(f"--text: no file matches '{text}'")

    def test_little_text(self, refuse, tmp_path):
        (tmp_path / "small.txt").write_text("Too little text. " * 99)
        assert refuse(text=tmp_path / "small.txt").startswith("--text contains 1,683 bytes.")

    def test_a_binary_file(self, refuse, tmp_path):
        picture = tmp_path / "picture.png"
        picture.write_bytes(random.Random(1).randbytes(300_000))
        error = refuse(text=picture)
        assert "is not UTF-8 text: line 1 contains byte" in error

    def test_another_script(self, refuse):
        error = refuse(language="ru")
        assert error.startswith("The text is mostly Latin, not Cyrillic. Pass its --language.")

    def test_little_time(self, refuse):
        flags = {"num_train_steps": None, "hours": 0.002}
        error = refuse(**flags)
        assert error.startswith("--hours=0.002 is too short. Without the training, the command")


@pytest.mark.parametrize(
    ("text", "language", "message"),
    [
        ("The café is open. " + "It closes at ten o'clock. " * 9, "en", None),
        ("Die Bären über den schönen Flüssen möchten Äpfel.", "en", "letters have accents"),
        ("Die Bären über den schönen Flüssen möchten Äpfel.", "de", None),
        ("Die Bären über den schönen Flüssen möchten Äpfel.", "deu", None),
        ("Привет, как дела?", "ru", None),
        ("Привет, как дела?", "de", "mostly Cyrillic, not Latin"),
        ("Hello, how are you?", "ru", "mostly Latin, not Cyrillic"),
        ("Γειά σου, τι κάνεις;", "el", None),
        ("مرحبا كيف حالك", "ar", None),
        ("مرحبا كيف حالك", "he", "mostly Arabic, not Hebrew"),
        ("नमस्ते आप कैसे हैं", "hi", None),
        ("你好，你怎么样？", "zh", None),
        ("你好，你怎么样？", "ja", "mostly Cjk, not Hiragana"),
        ("お元気ですか。東京は大きいです。", "ja", None),
        ("안녕하세요, 잘 지내세요?", "ko", None),
        ("안녕하세요, 잘 지내세요?", "zh", "mostly Hangul, not Cjk"),
        ("สวัสดีครับ", "th", None),
        ("Wilujeng sumping, kumaha damang?", "jav", None),
        ("আপনি কেমন আছেন?", "ben", None),
        ("12345 !?", "ru", None),
        ("Москва (Moscow, MOW, RUS)", "ru", None),
    ],
)
def test_the_language_of_a_text(text, language, message):
    if message is None:
        check_language(text, language)
    else:
        with pytest.raises(UserError, match=f"{message}.* Received: '{language}'"):
            check_language(text, language)


class TestSamples:
    def sample(self, folder: Path, text: Path) -> tuple[bytes, int, float]:
        (folder / "sample").mkdir()
        paths, num_bytes, share = pretrain_plan._sample(str(text), str(folder / "sample"))
        return b"".join(Path(path).read_bytes() for path in paths), num_bytes, share

    @pytest.mark.parametrize("is_compressed", [False, True])
    def test_a_small_file_is_sampled_completely(self, tmp_path, is_compressed):
        content = b"A line of text.\n\n" * 20_000
        path = tmp_path / "text"
        path.write_bytes(gzip.compress(content) if is_compressed else content)
        assert self.sample(tmp_path, path) == (content, len(content), 1.0)

    @pytest.mark.parametrize("is_compressed", [False, True])
    def test_the_size_of_a_large_file_is_estimated(self, tmp_path, is_compressed):
        draws = random.Random(1)
        lines = [f"{draws.randrange(10**9)} {'word ' * 9}\n\n".encode() for _ in range(1000)]
        content = b"".join(lines) * 120
        assert len(content) > 6 << 20
        path = tmp_path / "text"
        path.write_bytes(gzip.compress(content, 1) if is_compressed else content)
        sample, num_bytes, share = self.sample(tmp_path, path)
        assert content.startswith(sample)
        assert num_bytes == pytest.approx(len(content), rel=0.1 if is_compressed else 0)
        assert share == len(sample) / num_bytes

    def test_many_small_files(self, tmp_path):
        (tmp_path / "texts").mkdir()
        for number in range(50):
            (tmp_path / "texts" / f"{number}.txt").write_bytes(b"Short.\n" * number)
        sample, num_bytes, share = self.sample(tmp_path, tmp_path / "texts")
        assert len(sample) == num_bytes == 7 * sum(range(50))
        assert share == 1.0

    def test_parts_of_large_files(self, tmp_path):
        (tmp_path / "texts").mkdir()
        for number in range(6):
            content = f"Text {number}.\n\n".encode() * 130_000
            (tmp_path / "texts" / f"{number}.txt").write_bytes(content)
        sample, num_bytes, share = self.sample(tmp_path, tmp_path / "texts")
        files = Counter(sample.split(b"\n\n")).keys() - {b""}
        assert len(files) >= 4
        assert num_bytes == 6 * 130_000 * 9
        assert share == len(sample) / num_bytes < 0.9


class TestHeldOutText:
    def prepare(self, folder: Path, documents: list[str]) -> tuple[list[str], list[str]]:
        """Returns the lines of the training text and of the held-out text."""
        text = folder / "text.txt"
        text.write_text("\n\n".join(documents))
        settings = {"input_file": str(text), "output_file": "{run}/text/part@10.txt"}
        settings |= {"language": "en", "drop_duplicates": True, "num_workers": 1}
        row = {"name": "text", "command": PREPARE, "seconds": 1.0, "settings": settings}
        for _ in range(2):  # as after a kill
            counts = execute(row, str(folder / "run"), {})
        assert counts["documents"] == len(documents)
        files = sorted((folder / "run" / "text").iterdir())
        training = [path for path in files if path.name.startswith("part-")]
        assert files == [folder / "run" / "text" / "heldout.txt", *training]
        both = (path.read_text().splitlines() for path in files)
        held_out, *others = ([line for line in lines if line] for lines in both)
        return [line for lines in others for line in lines], held_out

    def test_every_tenth_of_many_documents(self, tmp_path):
        lines = [[f"This is text {n}.", f"It has a name, {n}."] for n in range(40)]
        training, held_out = self.prepare(tmp_path, [" ".join(two) for two in lines])
        assert held_out == [*chain(*lines[9::10])]
        assert sorted(training + held_out) == sorted(chain(*lines))

    @pytest.mark.parametrize("count", [1, 3, 9])
    def test_the_ends_of_few_documents(self, tmp_path, count):
        made = [" ".join(f"Line {k} of text {n}." for k in range(40)) for n in range(count)]
        training, held_out = self.prepare(tmp_path, made)
        assert held_out == [f"Line {k} of text {n}." for n in range(count) for k in range(36, 40)]
        assert {*training}.isdisjoint(held_out)
        assert len(training) + len(held_out) == 40 * count


class TestSummary:
    def test_the_text_of_a_plan(self, plan_of):
        lines = [*model_card.describe_plan(plan_of(num_train_steps=1000, size="mini"), "about ")]
        assert lines[0] == (
            "model     mini: 4 layers of 384, 3.1 million parameters, 8,000 pieces, 128 positions"
        )
        assert lines[1].startswith("text      about 40.0 MB, about 10.0 million tokens; 1/100")
        training = [line for line in lines if line.startswith("  training")]
        assert len(training) == 4
        assert "500 steps of 256, learning rate 0.0005" in training[0]
        assert lines[-1].startswith("end       about ")

    def test_texts_fit_into_a_short_model(self, tokenizer, monkeypatch):
        """A word of one piece is masked in each of three texts."""
        texts = ["the cat sat on the mat and the dog on the rug", "a dog", "the dog and the cat "]
        texts += ["the cat and the dog on the mat", "the end of the day in the city"] * 3
        rows = tokenizer.encode_batch(texts * 2)
        asked: list[str] = []

        def fill(texts, top_k):
            asked.extend(texts)
            return [[[SimpleNamespace(token="the", probability=0.5)] * top_k] for _ in texts]

        monkeypatch.setattr(model_card.FillMask, "load", lambda _: fill)
        lines = [*model_card._guesses("model", tokenizer, rows, 16)]
        assert len(asked) == 3
        assert lines[0::2] == asked
        for text in asked:
            assert text.count("[MASK]") == 1
            assert len(tokenizer.encode(text.replace("[MASK]", "the"))) <= 13
        for line in lines[1::2]:
            assert line.startswith("  the 50%, the 50%, the 50% (in the text: ")
        assert not [*model_card._guesses("model", tokenizer, rows[1:2], 16)]
