"""The comparisons: their models, the order of the runs, what is repeated, and the results."""

import dataclasses
import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.tools import ablations
from albert_tf.tools.ablations import (
    AblationSettings,
    Variant,
    choose_variants,
    read_run,
    rows,
    run_ablations,
    write_results,
)
from tests.small_model import small_config

BASE = AlbertConfig(
    vocab_size=31,
    embedding_size=6,
    hidden_size=16,
    num_hidden_layers=4,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=9,
    type_vocab_size=5,
    extra={"net_structure_type": 0},
)
# What each model has that the base has not.
EXPECTED = {
    "base": {},
    "embedding_size-3": {"embedding_size": 3},
    "embedding_size-12": {"embedding_size": 12},
    "embedding_size-16": {"embedding_size": 16},
    "sharing-attention": {"parameter_sharing": "attention"},
    "sharing-ffn": {"parameter_sharing": "ffn"},
    "sharing-none": {"parameter_sharing": "none", "num_hidden_groups": 4},
    "sentence_loss-nsp": {},
    "sentence_loss-none": {},
    "dropout-0.1": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    "depth-1": {"num_hidden_layers": 1},
    "depth-2": {"num_hidden_layers": 2},
    "depth-8": {"num_hidden_layers": 8},
    "width-8": {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 12},
    "width-32": {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48},
}


class TestModels:
    def test_they_differ_from_the_base_in_what_their_names_say(self):
        before = {**BASE.to_dict(), "parameter_sharing": "all"}
        found = {}
        for variant in choose_variants(BASE):
            after = {"parameter_sharing": "all", **variant.config.to_dict()}
            assert after.keys() == before.keys()
            found[variant.name] = {key: after[key] for key in after if after[key] != before[key]}
        assert found == EXPECTED

    def test_sentence_losses_are_those_there_are_records_for(self):
        losses = {v.name: v.sentence_loss for v in choose_variants(BASE, ["sentence_loss"])}
        assert losses == {"base": "sop", "sentence_loss-nsp": "nsp", "sentence_loss-none": "none"}
        variants = choose_variants(BASE, ["sentence_loss"], losses=["sop", "none"])
        assert [v.name for v in variants] == ["base", "sentence_loss-none"]

    def test_given_values_replace_the_others_and_the_base_is_never_repeated(self):
        values = {"depth": [3, 4, 3, 12], "width": [16], "embedding_size": []}
        variants = choose_variants(BASE, ["depth", "width"], values)
        assert [v.name for v in variants] == ["base", "depth-3", "depth-12"]
        names = [v.name for v in choose_variants(BASE, ["embedding_size"], values)]
        assert names == ["base", "embedding_size-3", "embedding_size-12", "embedding_size-16"]
        dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
        other = BASE.replace(parameter_sharing="none", num_hidden_layers=1, **dropout)
        names = [v.name for v in choose_variants(other, ["sharing", "dropout", "depth"])]
        assert "sharing-none" not in names
        assert "sharing-all" in names
        assert names[-2:] == ["dropout-0.0", "depth-2"]

    def test_what_cannot_be_built_is_named(self):
        with pytest.raises(ValueError, match="width-5"):
            choose_variants(BASE.replace(num_attention_heads=8), ["width"], {"width": [5]})
        with pytest.raises(ValueError, match=r"--comparisons.*'deepness'"):
            choose_variants(BASE, ["deepness"])


STEPS = 6


class Pretended:
    """Stands for the processes of run_pretraining: notes flags and writes results, or fails."""

    def __init__(self, folder):
        self.calls = []
        self.failing = "no such run"
        self.folder = folder
        small_config(num_hidden_groups=1).to_json_file(str(folder / "base.json"))

    @contextmanager
    def __call__(self, name, arguments, output):
        assert name == "run_pretraining"
        pairs = [argument.removeprefix("--").partition("=") for argument in arguments]
        flags = {name: value if equals else True for name, equals, value in pairs}
        self.calls.append(flags)
        code = int(self.failing in flags["output_dir"])
        if "dry_run" not in flags and not code:
            metric = {"sop": "sentence_order", "nsp": "next_sentence"}.get(flags["sentence_loss"])
            path = self.folder / flags["output_dir"]
            path.mkdir(parents=True, exist_ok=True)
            text = f"masked_lm_accuracy = 0.5\nmasked_lm_loss = 2.0\nglobal_step = {STEPS}\n"
            text += f"{metric}_accuracy = 0.75\n" if metric else ""
            (path / "eval_results.txt").write_text(text)
        yield SimpleNamespace(returncode=code)

    def names(self):
        return [flags["output_dir"].rsplit("/out/")[1] for flags in self.calls]


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    processes = Pretended(tmp_path)
    monkeypatch.setattr(ablations, "started", processes)
    return processes


def compare(folder, comparisons, *, dry_run=False, steps=STEPS, seeds=(1,), more=(), **values):
    settings = AblationSettings(
        output_dir=str(folder / "out"),
        albert_config_file=str(folder / "base.json"),
        records={"sop": (["s"], ["S"]), "nsp": (["n", "m"], ["N"]), "none": (["s"], ["S"])},
        num_train_steps=steps,
        training_flags=["--max_seq_length=11"],
        comparisons=comparisons,
        values=values,
        seeds=seeds,
        base_seeds=more,
    )
    run_ablations(settings, dry_run=dry_run)


class TestRuns:
    def test_the_base_comes_first_with_all_its_seeds_then_each_model(self, pretended, tmp_path):
        compare(tmp_path, ["depth"], seeds=(1, 2), more=(2, 3), depth=[3])
        names = ["base-seed1", "base-seed2", "base-seed3", "depth-3-seed1", "depth-3-seed2"]
        assert pretended.names() == names

    def test_they_get_the_same_flags_but_for_model_and_seed(self, pretended, tmp_path):
        compare(tmp_path, ["depth"], more=(2,), depth=[3])
        first, *others = pretended.calls
        assert (first["max_seq_length"], first["num_train_steps"]) == ("11", str(STEPS))
        assert (first["input_file"], first["eval_input_file"]) == ("s", "S")
        for other in others:
            different = {name for name in first if other[name] != first[name]}
            assert different <= {"output_dir", "albert_config_file", "seed"}
        config = AlbertConfig.from_json_file(others[1]["albert_config_file"])
        assert config.num_hidden_layers == 3

    def test_sentence_losses_get_their_records_and_are_evaluated_on_each_others(
        self, pretended, tmp_path
    ):
        compare(tmp_path, ["sentence_loss"])
        calls = {
            name: (flags["sentence_loss"], flags["input_file"], "nodo_train" in flags)
            for name, flags in zip(pretended.names(), pretended.calls, strict=True)
        }
        assert calls == {
            "base-seed1": ("sop", "s", False),
            "base-seed1/as_nsp": ("nsp", "N", True),
            "sentence_loss-nsp-seed1": ("nsp", "n,m", False),
            "sentence_loss-nsp-seed1/as_sop": ("sop", "S", True),
            "sentence_loss-none-seed1": ("none", "s", False),
        }
        assert (tmp_path / "out" / "ablations.md").read_text().count("75.0 | 75.0") == 2
        pretended.calls.clear()
        compare(tmp_path, ["sentence_loss", "depth"], depth=[3])  # the others are finished
        assert pretended.names() == ["depth-3-seed1"]

    def test_a_failed_run_is_named_after_the_others_and_repeated_next_time(
        self, pretended, tmp_path
    ):
        pretended.failing = "depth-3"
        with pytest.raises(ValueError, match="depth-3-seed1"):
            compare(tmp_path, ["depth"], depth=[3, 5])
        table = (tmp_path / "out" / "ablations.md").read_text()
        assert "| 5 |" in table
        assert "| 3 |" not in table
        pretended.failing = "no such run"
        pretended.calls.clear()
        compare(tmp_path, ["depth"], depth=[3, 5])
        assert pretended.names() == ["depth-3-seed1"]

    def test_runs_of_other_settings_are_not_mixed(self, pretended, tmp_path):
        compare(tmp_path, [])
        with pytest.raises(ValueError, match=r"--output_dir.*num_train_steps was 6, and is 7"):
            compare(tmp_path, [], steps=7)
        (tmp_path / "out" / "ablation_settings.json").write_text("[" * 10**5)
        with pytest.raises(ValueError, match=r"--output_dir.*ablation_settings\.json"):
            compare(tmp_path, [])

    def test_a_dry_run_tries_one_of_each_sentence_loss(self, pretended, tmp_path):
        comparisons = ["sentence_loss", "depth"]
        compare(tmp_path, comparisons, dry_run=True, more=(2,), depth=[3])
        assert not (tmp_path / "out").exists()
        assert sorted(flags["sentence_loss"] for flags in pretended.calls) == ["none", "nsp", "sop"]
        for flags in pretended.calls:
            assert flags["dry_run"] is True
            assert flags["albert_config_file"] == str(tmp_path / "base.json")
        pretended.failing = "nsp"
        with pytest.raises(ValueError, match="--sentence_loss=nsp"):
            compare(tmp_path, comparisons, dry_run=True)


class TestResults:
    CONFIG = small_config(num_hidden_groups=1)
    SHARING_NONE = Variant(
        "sharing",
        "none",
        CONFIG.replace(parameter_sharing="none"),
        {"parameter_sharing": "none"},
        "sop",
        "what layers share",
        "table 4",
    )

    @staticmethod
    def leave(path, *, accuracy, order=None, step=20):
        """What a run leaves behind."""
        path.mkdir(parents=True)
        lines = ["loss = 3.5", "masked_lm_loss = 3.25", f"masked_lm_accuracy = {accuracy}"]
        lines += [f"sentence_order_accuracy = {order}"] if order else []
        (path / "eval_results.txt").write_text("\n".join([*lines, f"global_step = {step}\n"]))
        records = [
            {"step": 5 * n, "phase": "train", "time": "", "examples_per_second": speed}
            for n, speed in enumerate((8.0, 2.0, 9.0))
        ]
        for share in (2, 1):
            values = {"step": step // share, "masked_lm_accuracy": accuracy / share}
            records.append({**values, "phase": "eval", "time": ""})
        (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))

    @pytest.fixture
    def runs(self, tmp_path):
        """Two seeds of the base and one of a model that shares nothing."""
        models = [(Variant("base", "base", self.CONFIG), seed) for seed in (4, 5)]
        found = []
        for (variant, seed), accuracy in zip(
            [*models, (self.SHARING_NONE, 4)], (0.25, 0.125, 0.5), strict=True
        ):
            path = tmp_path / f"{variant.name}{seed}"
            self.leave(path, accuracy=accuracy, order=0.75 if variant.name == "base" else None)
            found.append(read_run(dataclasses.replace(variant, seed=seed), str(path)))
        return found

    def test_a_run_is_its_last_evaluation_its_curve_and_its_median_speed(self, runs, tmp_path):
        run = runs[0]
        assert (run["seed"], run["steps"]) == (4, 20)
        assert run["scores"]["masked_lm_accuracy"] == 0.25
        assert run["scores"]["examples_per_second"] == 8.0
        assert run["curve"] == {10: 0.125, 20: 0.25}
        assert runs[2]["encoder_parameters"] > run["encoder_parameters"]
        assert read_run(self.SHARING_NONE, str(tmp_path / "missing")) is None

    def test_the_head_of_sentence_pairs_is_counted_where_there_is_one(self, tmp_path):
        counts = {}
        for loss in ("sop", "none"):
            self.leave(tmp_path / loss, accuracy=0.5)
            variant = Variant("sentence_loss", loss, self.CONFIG, {}, loss)
            counts[loss] = read_run(variant, str(tmp_path / loss))["parameters"]
        assert counts["sop"] - counts["none"] == 12 * 2 + 2

    @pytest.mark.parametrize(("step", "found"), [(20, 0.625), (10, None)])  # of an earlier one
    def test_an_evaluation_as_another_loss_adds_its_accuracy_alone(self, tmp_path, step, found):
        self.leave(tmp_path / "run", accuracy=0.25, order=0.75)
        (tmp_path / "run" / "as_nsp").mkdir()
        text = f"global_step = {step}\nmasked_lm_accuracy = 0.9\nnext_sentence_accuracy = 0.625\n"
        (tmp_path / "run" / "as_nsp" / "eval_results.txt").write_text(text)
        scores = read_run(Variant("base", "base", self.CONFIG), str(tmp_path / "run"))["scores"]
        assert scores.get("next_sentence_accuracy") == found
        assert scores["masked_lm_accuracy"] == 0.25

    def test_the_table_gives_the_spread_of_seeds_and_leaves_out_empty_columns(self, runs):
        header, *others = rows(runs)
        base, none = (dict(zip(header, row, strict=True)) for row in others)
        assert "next sentence" not in header
        assert base["masked-LM accuracy"] == "18.8 (12.5 to 25.0)"
        assert base["seeds"] == "2"
        assert none["masked-LM accuracy"] == "50.0"
        assert none["masked-LM loss"] == "3.250"
        assert (base["sentence order"], none["sentence order"]) == ("75.0 (75.0 to 75.0)", "-")
        assert none["comparison"] == "what layers share"

    def test_files_agree_with_each_other(self, runs, tmp_path):
        table = write_results(str(tmp_path / "out"), runs)
        assert (tmp_path / "out" / "ablations.md").read_text() == table
        assert all(f"| {' | '.join(cells)} |\n" in table for cells in rows(runs))
        content = json.loads((tmp_path / "out" / "ablations.json").read_text())
        assert [run["seed"] for run in content] == [4, 5, 4]
        assert content[2]["changes"] == {"parameter_sharing": "none"}
        assert content[2]["source"] == "table 4"

    @pytest.mark.parametrize("chosen", [slice(2), slice(2, None)])  # the base alone; without it
    def test_a_picture_is_drawn_of_what_there_is(self, runs, tmp_path, chosen):
        write_results(str(tmp_path / "out"), runs[chosen])
        assert (tmp_path / "out" / "ablations.png").read_bytes().startswith(b"\x89PNG")
