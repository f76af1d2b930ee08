"""The model that is part of the package, used by its name."""

import json

import albert_tf
from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.checkpoints.model_source import stored_model
from tests.classifier_run import COUNTS, ClassifierRun

SHORT = {"max_seq_length": 24, "train_step": 2, "albert_config_file": None, "spm_model_file": None}


def test_a_classifier_starts_from_mini(tmp_path, golden):
    run = ClassifierRun(tmp_path, golden)
    printed = run.must_work(
        albert_hub_module_handle="mini", do_train=True, do_predict=True, **SHORT
    )
    assert "25 of 27 variables restored" in printed
    stored = stored_model("mini")
    config = json.loads((run.output / "albert_config.json").read_text())
    for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
        assert config[name] == getattr(stored.config, name)
    tokenizer = albert_tf.load_tokenizer(run.output)
    assert tokenizer.model_proto == albert_tf.load_tokenizer("mini").model_proto
    assert len(run.predicted()) == COUNTS["test"]
    weights, shapes = open_checkpoint(str(run.output / "model.ckpt-2"))
    stored, _ = open_checkpoint(stored.checkpoint)
    name = "bert/embeddings/word_embeddings"
    # Two steps with a rate of at most 1e-3 change the weights only slightly.
    assert 0 < abs(weights.get_tensor(name) - stored.get_tensor(name)).max() < 5e-3
    assert shapes["output_weights"] == [3, config["hidden_size"]]
