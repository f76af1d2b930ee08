"""Configurations: invalid values, files, and released models."""

import json
import math
import re

import pytest

from albert_tf.config import AlbertConfig
from tests.small_model import small_config


class TestAlbertConfig:
    def test_defaults(self):
        assert AlbertConfig.from_dict({"vocab_size": 9}).to_dict() == {
            "vocab_size": 9,
            "embedding_size": 128,
            "hidden_size": 4096,
            "num_hidden_layers": 12,
            "num_hidden_groups": 1,
            "num_attention_heads": 64,
            "intermediate_size": 16384,
            "inner_group_num": 1,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
            "initializer_range": 0.02,
        }

    def test_unknown_keys_are_kept(self, tmp_path):
        values = {
            **small_config(hidden_act="relu", hidden_dropout_prob=0.1).to_dict(),
            "net_structure_type": 0,
            "down_scale_factor": 1,
            "my_notes": ["kept", {"as": "they came"}],
        }
        source, copy = str(tmp_path / "a.json"), str(tmp_path / "new_folder" / "b.json")
        with open(source, "w") as file:
            json.dump(values, file)
        config = AlbertConfig.from_json_file(source)
        config.to_json_file(copy)
        with open(copy) as file:
            assert list(json.load(file).items()) == list(values.items())
        assert AlbertConfig.from_json_file(copy) == config
        assert hash(config) == hash(AlbertConfig.from_json_file(copy))
        assert config.replace(hidden_act="tanh").extra == config.extra

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hidden_size": 12.5}, "hidden_size must be a whole number"),
            ({"num_hidden_layers": 10**6}, "at most 10000. Received: 2000000"),
            ({"type_vocab_size": True}, "type_vocab_size must be a whole number"),
            ({"hidden_dropout_prob": math.nan}, "hidden_dropout_prob must be a rate in [0, 1)"),
            ({"hidden_act": "swish"}, "hidden_act must be one of 'gelu', 'gelu_exact', 'relu'"),
            ({"hidden_act": ["x" * 10**6]}, "hidden_act must be one of"),
            ({"initializer_range": 0.0}, "initializer_range must be a number above 0"),
            ({"num_attention_heads": 5}, "hidden_size=12, num_attention_heads=5"),
            ({"parameter_sharing": "some"}, "must be one of all, attention, ffn, none. Received"),
            ({"parameter_sharing": "none", "num_hidden_groups": 3}, "Omit num_hidden_groups"),
            (
                {"extra": {"hidden_size": 9}},
                "must be without names of fields. Received: ['hidden_size']",
            ),
        ],
    )
    def test_rejects_invalid_values(self, changes, message):
        with pytest.raises(ValueError, match=re.escape(message)) as error:
            small_config(**changes)
        assert len(str(error.value)) < 400

    def test_whole_numbers_can_be_floats(self):
        config = small_config(num_hidden_layers=4.0)
        assert config == small_config(num_hidden_layers=4)
        assert isinstance(config.num_hidden_layers, int)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"{", "line 1, column 2"),
            (b'{"vocab_size": NaN}', "NaN"),
            (b'{"hidden_size": 12}', "vocab_size"),
            (b'{"vocab_size": 9, "num_hidden_layers": 2}', "num_attention_heads"),
            (
                b'{"vocab_size": 9, "num_hidden_layers": 1, "num_attention_heads": 63}',
                "multiple of num_attention_heads",
            ),
        ],
    )
    def test_invalid_files_are_named(self, tmp_path, content, message):
        path = tmp_path / "albert_config.json"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message) as error:
            AlbertConfig.from_json_file(str(path))
        assert str(path) in str(error.value)

    def test_missing_files_and_directories_are_rejected(self, tmp_path):
        for path in (tmp_path, tmp_path / "nothing.json"):
            with pytest.raises(ValueError, match=r"no configuration file .*`albert_config_file`"):
                AlbertConfig.from_json_file(str(path))

    @pytest.mark.parametrize("mode", ["attention", "ffn", "none"])
    def test_sharing_modes_are_saved(self, mode, tmp_path):
        path = str(tmp_path / "albert_config.json")
        config = small_config(parameter_sharing=mode, num_hidden_groups=1)
        config.to_json_file(path)
        with open(path) as file:
            values = json.load(file)
        # The original only reads the number of groups.
        groups = 4 if mode == "none" else 1
        assert [values["parameter_sharing"], values["num_hidden_groups"]] == [mode, groups]
        assert AlbertConfig.from_json_file(path) == config
        assert config.replace(parameter_sharing="all") == small_config(num_hidden_groups=1)

    def test_replace_resets_the_groups_of_no_sharing(self):
        config = small_config(parameter_sharing="none", num_hidden_groups=4)
        assert config == small_config(parameter_sharing="none", num_hidden_groups=1)
        assert config.replace(num_hidden_layers=6).num_hidden_groups == 6
        assert config.replace(hidden_act="relu").num_hidden_groups == 4
        assert config.replace(parameter_sharing="all", num_hidden_groups=2) == small_config()

    def test_names_of_activations(self):
        assert AlbertConfig.from_dict({"vocab_size": 9, "hidden_act": None}).hidden_act == ""
        assert small_config(hidden_act="ReLU").hidden_act == "ReLU"

    @pytest.mark.parametrize("layers", [12, 24])
    def test_group_of_layer_equals_the_original(self, layers):
        for groups in range(1, layers + 1):
            config = AlbertConfig(9, num_hidden_layers=layers, num_hidden_groups=groups)
            assert [config.group_of_layer(layer) for layer in range(layers)] == [
                int(layer / layers * groups) for layer in range(layers)
            ]
        config = AlbertConfig(9, num_hidden_layers=22, num_hidden_groups=22)
        assert config.group_of_layer(15) == 15  # rounding errors give 14

    def test_check_sequence_length(self):
        small_config().check_sequence_length(16)
        for length in (0, 17):
            with pytest.raises(ValueError, match=rf"`max_seq_length` must be in 1..16.*={length}"):
                small_config().check_sequence_length(length, "`max_seq_length`")


RELEASED = {  # H, L, heads
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "xlarge": (2048, 24, 32),
    "xxlarge": (4096, 12, 64),
}


class TestPresets:
    @pytest.mark.parametrize("size", RELEASED)
    def test_sizes_of_presets(self, size):
        hidden, layers, heads = RELEASED[size]
        # All other fields have default values.
        v2 = AlbertConfig(
            vocab_size=30000,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
        )
        rate = 0.0 if size == "xxlarge" else 0.1
        v1 = v2.replace(hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        heads = 16 if size == "xxlarge" else heads
        chinese = v2.replace(vocab_size=21128, hidden_act="relu", num_attention_heads=heads)
        presets = [AlbertConfig.from_preset(f"{size}_{kind}") for kind in ("v1", "v2", "zh")]
        assert presets == [v1, v2, chinese]

    def test_unknown_presets_are_rejected(self):
        with pytest.raises(ValueError, match=r"Unknown preset 'tiny'. Known presets: base_v1, "):
            AlbertConfig.from_preset("tiny")


def test_warning_for_an_unusual_feed_forward_size(caplog):
    AlbertConfig(vocab_size=400, hidden_size=64, num_attention_heads=2, intermediate_size=256)
    assert not caplog.records
    AlbertConfig(vocab_size=400, hidden_size=64, num_attention_heads=2)
    assert "intermediate_size=16384" in caplog.text
