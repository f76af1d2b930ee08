"""Ablations: models, order and flags of the runs, results."""

import json
from pathlib import Path

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.tools import ablations
from albert_tf.tools.ablations import (
    AblationSettings,
    Variant,
    choose_variants,
    read_run,
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
# Differences of each model from the base.
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
STEPS = 6


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Changes to a directory with record files and the configuration of the base."""
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path / "files")
    for name in "sSnmN":
        Path(name).touch()
    BASE.to_json_file("base.json")


def settings(folder="out", **changes):
    given = {
        "albert_config_file": "base.json",
        "input_file": "s",
        "eval_input_file": "S",
        "nsp_input_file": "n,m",
        "nsp_eval_input_file": "N",
        "num_train_steps": STEPS,
        "seeds": ("1",),
        **changes,
    }
    return AblationSettings(output_dir=str(folder), **given)


def test_variants_differ_from_the_base_in_one_respect():
    before = {**BASE.to_dict(), "parameter_sharing": "all"}
    found, losses = {}, {}
    for variant in choose_variants(settings()):
        after = {"parameter_sharing": "all", **variant.config.to_dict()}
        assert after.keys() == before.keys()
        found[variant.name] = {key: after[key] for key in after if after[key] != before[key]}
        losses[variant.name] = variant.sentence_loss
    assert found == EXPECTED
    other = {name: loss for name, loss in losses.items() if loss != "sop"}
    assert other == {"sentence_loss-nsp": "nsp", "sentence_loss-none": "none"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"comparisons": ["width"], "widths": ["5"]}, "width-5"),
        ({"comparisons": ["deepness"]}, r"comparisons.*'deepness'"),
        ({"depths": ["3", "x"]}, r"`depths`.*'x'"),
        ({"nsp_eval_input_file": None}, "`nsp_eval_input_file` must be set"),
    ],
)
def test_invalid_settings_are_rejected(changes, named):
    BASE.replace(num_attention_heads=8).to_json_file("base.json")
    with pytest.raises(ValueError, match=named):
        choose_variants(settings(**changes))


@pytest.fixture
def compare(monkeypatch, tmp_path):
    """Runs a comparison with a stub of run_pretraining; returns the flags of each call."""
    calls = []

    def run_command(name, arguments, log=None):
        assert name == "run_pretraining"
        pairs = [argument.removeprefix("--").partition("=") for argument in arguments]
        flags = {name: value if equals else True for name, equals, value in pairs}
        calls.append({**flags, "run": flags["output_dir"].partition("/out/")[2]})
        if compare.failing in flags["output_dir"] or compare.failing == flags["sentence_loss"]:
            return 3
        if "dry_run" not in flags:
            path = tmp_path / flags["output_dir"]
            path.mkdir(parents=True, exist_ok=True)
            metric = {"sop": "sentence_order", "nsp": "next_sentence"}.get(flags["sentence_loss"])
            accuracy = 0.5 if flags.get("eval_input_file", flags["input_file"]) == "S" else 0.25
            (path / "eval_results.txt").write_text(
                f"masked_lm_accuracy = {accuracy}\n{metric}_accuracy = 0.75\n"
                f"global_step = {STEPS}\n"
            )
        return 0

    def compare(*comparisons, dry_run=False, **changes):
        calls.clear()
        changes = {"training_flags": ["--max_seq_length=11"], **changes}
        given = settings(tmp_path / "out", comparisons=comparisons, dry_run=dry_run, **changes)
        run_ablations(given)
        return calls

    compare.calls, compare.failing = calls, "nothing"
    monkeypatch.setattr(ablations, "run_command", run_command)
    return compare


def test_runs_differ_only_in_model_and_seed(compare, tmp_path):
    calls = compare("depth", seeds=("1", "2"), base_seeds=("2", "3"), depths=("3",))
    names = ["base-seed1", "base-seed2", "base-seed3", "depth-3-seed1", "depth-3-seed2"]
    assert [call["run"] for call in calls] == names
    first = calls[0]
    assert (first["max_seq_length"], first["num_train_steps"]) == ("11", str(STEPS))
    assert (first["input_file"], first["eval_input_file"]) == ("s", "S")
    for other in calls[1:]:
        different = {name for name in first if other[name] != first[name]}
        assert different <= {"run", "output_dir", "albert_config_file", "seed"}
    assert AlbertConfig.from_json_file(calls[3]["albert_config_file"]).num_hidden_layers == 3
    stored = json.loads((tmp_path / "out" / "ablation_settings.json").read_text())
    assert stored["records"]["sop"] == [["s"], ["S"]]  # as earlier versions wrote it


def test_sentence_losses_are_evaluated_on_the_records_of_each_other(compare, tmp_path):
    calls = compare("sentence_loss")
    runs = {c["run"]: (c["sentence_loss"], c["input_file"], "nodo_train" in c) for c in calls}
    assert runs == {
        "base-seed1": ("sop", "s", False),
        "base-seed1/as_nsp": ("nsp", "N", True),
        "sentence_loss-nsp-seed1": ("nsp", "n,m", False),
        "sentence_loss-nsp-seed1/as_sop": ("sop", "S", True),
        "sentence_loss-none-seed1": ("none", "s", False),
        "sentence_loss-none-seed1/as_sop": ("none", "S", True),
    }
    table = (tmp_path / "out" / "ablations.md").read_text()
    assert table.count("| 50.0 | 75.0 | 75.0 |") == 2
    assert table.count("| 50.0 | - | - |") == 1


def test_masked_lm_scores_of_other_records_are_not_compared(compare, tmp_path):
    compare.failing = "as_sop"
    none_files = {"none_input_file": "s", "none_eval_input_file": "N"}
    with pytest.raises(ValueError, match="2 of 3 runs failed"):
        compare("sentence_loss", **none_files)
    table = (tmp_path / "out" / "ablations.md").read_text()
    assert "| sentence loss | nsp |" in table
    assert table.count("25.0") == 0
    compare.failing = "nothing"
    runs = [call["run"] for call in compare("sentence_loss", **none_files)]
    assert runs == [f"sentence_loss-{loss}-seed1/as_sop" for loss in ("nsp", "none")]
    table = (tmp_path / "out" / "ablations.md").read_text()
    assert table.count("50.0") == 3


def test_failed_runs_are_repeated_and_finished_runs_are_not(compare, tmp_path):
    compare.failing = "depth-3"
    with pytest.raises(ValueError, match="depth-3-seed1"):
        compare("depth", depths=("3", "5"))
    table = (tmp_path / "out" / "ablations.md").read_text()
    assert "| 5 |" in table
    assert "| 3 |" not in table
    compare.failing = "nothing"
    assert [call["run"] for call in compare("depth", depths=("3", "5"))] == ["depth-3-seed1"]
    with pytest.raises(ValueError, match=r"out.*other settings"):
        compare("depth", num_train_steps=7)


def test_a_dry_run_checks_each_sentence_loss_and_writes_nothing(compare, tmp_path):
    calls = compare("sentence_loss", "depth", dry_run=True)
    assert [path.name for path in tmp_path.iterdir()] == ["files"]
    assert sorted(call["sentence_loss"] for call in calls) == ["none", "nsp", "sop"]
    assert all(call["dry_run"] for call in calls)
    compare.failing = "nsp"
    with pytest.raises(ValueError, match="nsp"):
        compare("sentence_loss", dry_run=True)


def test_results_have_scores_at_the_last_step_curves_and_the_spread_of_seeds(tmp_path):
    config = small_config(num_hidden_groups=1)
    base = Variant("base", "base", config)
    other = Variant("sharing", "none", config.replace(parameter_sharing="none"))
    runs = []
    for variant, accuracy in ((base, 0.25), (base._replace(seed=5), 0.125), (other, 0.5)):
        path = tmp_path / f"{variant.name}{variant.seed}"
        path.mkdir()
        order = "sentence_order_accuracy = 0.75\n" if variant.name == "base" else ""
        (path / "eval_results.txt").write_text(
            f"masked_lm_loss = 3.25\nmasked_lm_accuracy = {accuracy}\n{order}global_step = 20\n"
        )
        records = [
            *({"step": 5, "phase": "train", "examples_per_second": v} for v in (8.0, 2.0, 9.0)),
            {"step": 5, "phase": "train", "masked_lm_accuracy": 0.75},
            {"step": 10, "phase": "eval", "masked_lm_accuracy": accuracy / 2},
            {"step": 20, "phase": "eval", "masked_lm_accuracy": accuracy},
        ]
        lines = (json.dumps({"time": "", **record}) + "\n" for record in records)
        (path / "metrics.jsonl").write_text("".join(lines))
        runs.append(read_run(variant, str(path)))
    assert runs[0]["curve"] == {10: 0.125, 20: 0.25}
    assert runs[2]["parameters"] > runs[0]["parameters"]
    assert read_run(base, str(tmp_path / "missing"))["steps"] == 0
    table = write_results(str(tmp_path), runs)
    assert (tmp_path / "ablations.md").read_text() == table
    header, _, *rows = (line.strip("| ").split(" | ") for line in table.splitlines()[:5])
    assert header[5:] == ["masked-LM loss", "masked-LM accuracy", "sentence order", "examples/s"]
    names = [", ".join(row[:2]) for row in rows]
    assert names == ["base, base", "base, base, all seeds", "parameter sharing, none"]
    assert rows[0][4:] == ["1", "3.250", "25.0", "75.0", "8.0"]
    spreads = ("3.250 (3.250 to 3.250)", "18.8 (12.5 to 25.0)", "75.0 (75.0 to 75.0)")
    assert rows[1][4:] == ["2", *spreads, "8.0 (8.0 to 8.0)"]
    assert rows[2][4:] == ["1", "3.250", "50.0", "-", "8.0"]
    content = json.loads((tmp_path / "ablations.json").read_text())
    assert [run["seed"] for run in content] == [0, 5, 0]
