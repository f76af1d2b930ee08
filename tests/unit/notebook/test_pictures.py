"""Pictures of attention and metrics, and the choice of a device."""

import json

import numpy as np
import pytest

from albert_tf.encoder import AlbertEncoder
from albert_tf.notebook import choose_device, device, draw_attention, draw_metrics
from albert_tf.notebook.attention import attention_of
from albert_tf.tokenization import load_tokenizer
from tests.small_model import small_config


@pytest.fixture(scope="module")
def encoder():
    return AlbertEncoder(small_config(vocab_size=1000))


@pytest.fixture(scope="module")
def tokenizer(golden):
    return load_tokenizer(spm_model_file=str(golden / "tokenizer" / "small_1000.model"))


def test_attention_has_a_map_for_each_head(encoder, tokenizer):
    tokens, attention = attention_of(encoder, tokenizer, "the cat", "a mat", layer=-1)
    assert tokens[0] == "[CLS]"
    assert tokens[-1] == "[SEP]"
    assert tokens.count("[SEP]") == 2
    assert attention.shape == (3, len(tokens), len(tokens))
    np.testing.assert_allclose(attention.sum(-1), 1, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(
        attention, attention_of(encoder, tokenizer, "the cat", "a mat", layer=7)[1]
    )
    alone = attention_of(encoder, tokenizer, "the cat", layer=-1)[1]
    assert np.abs(alone - attention[..., : alone.shape[-1], : alone.shape[-1]]).max() > 1e-4


def test_attention_is_drawn_as_png_and_a_wrong_layer_named(encoder, tokenizer):
    picture = draw_attention(encoder, tokenizer, "the cat", layer=-1)
    assert picture.startswith(b"\x89PNG")
    assert picture != draw_attention(encoder, tokenizer, "the cat", layer=0)
    with pytest.raises(ValueError, match=r"has 8 layers, from 0\. Received layer=8"):
        draw_attention(encoder, tokenizer, "the cat", layer=8)
    with pytest.raises(ValueError, match=r"must be in 1\.\.16"):
        draw_attention(encoder, tokenizer, "the cat " * 20)


def test_metrics_are_drawn_where_there_are_any(tmp_path):
    records = [
        {"step": 2, "phase": "train", "time": "-", "loss": 0.9, "accuracy": 0.5},
        {"step": 2, "phase": "eval", "time": "-", "loss": 0.8, "eval_accuracy": None},
        {"step": 4, "phase": "train", "time": "-", "loss": 0.5, "accuracy": 0.7},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    names = ["accuracy", "eval_accuracy"]
    picture = draw_metrics(str(tmp_path), {"loss": ["loss"], "score": names})
    assert picture.startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"Nothing was recorded of pearson; but: accuracy, .*step"):
        draw_metrics(str(tmp_path), {"score": ["pearson"]})


def test_the_device_is_said(monkeypatch, capsys):
    assert choose_device() == {}
    assert "CPU" in capsys.readouterr().out
    monkeypatch.setattr(device, "is_tpu_here", lambda: True)
    assert choose_device() == {"use_tpu": True, "tpu_name": "local"}
    assert "TPU" in capsys.readouterr().out


def test_a_tpu_needs_its_library_and_its_file(monkeypatch, tmp_path):
    assert not device.is_tpu_here()
    monkeypatch.setattr(device, "_TPU_FILES", (str(tmp_path),))
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: None)
    assert not device.is_tpu_here()
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: name == "libtpu" or None)
    assert device.is_tpu_here()
