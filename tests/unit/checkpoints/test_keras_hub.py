"""Presets, against KerasHub itself and against files that are damaged or something else."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import keras_hub
from albert_tf.checkpoints.original import load_weights, original_names
from albert_tf.checkpoints.report import DamagedError, LoadError
from albert_tf.data.text_examples import Labels
from albert_tf.encoder import AlbertEncoder
from albert_tf.loading import load
from albert_tf.model_files.contents import ModelContents
from albert_tf.model_files.trained_task import TrainedTask
from albert_tf.models import AlbertForClassification, AlbertForMultipleChoice, AlbertForPretraining
from albert_tf.tokenization import load_tokenizer
from tests.full_disk import file_size_limit
from tests.programs import strangers_python
from tests.small_model import small_config

FLAG = "--model"
PROGRAM = Path(__file__).parents[2] / "keras_hub_program.py"
TEXT = "the cat sat on the mat, and many people saw it."  # clean: KerasHub cleans nothing
LABELS = ("a", "b", "c", "d", "e")
PROJECTION = "bert/encoder/embedding_hidden_mapping_in"
# Scores are of the size of 10 and more: outputs, of 1.
TOLERANCE = {"rtol": 0, "atol": 1e-5}

needs_keras_hub = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="KerasHub needs Python 3.11 or later"
)


def randomised(model):
    """Gives every weight values of its own, layer norms and biases too."""
    random = np.random.default_rng(11)
    for variable in original_names(model).values():
        variable.assign(random.normal(0.1, 0.3, variable.shape))
    return model


def weights_of(model):
    return {name: variable.numpy() for name, variable in original_names(model).items()}


def filled(model, checkpoint):
    """The model with the weights of a preset, all of them and nothing else."""
    reader = keras_hub.open_weights(checkpoint)
    variables = original_names(model)
    stored = reader.get_variable_to_shape_map()
    assert {name for name in stored if not name.startswith("optimizer/")} == set(variables)
    for name, variable in variables.items():
        assert tuple(stored[name]) == tuple(variable.shape)
        variable.assign(reader.get_tensor(name))
    return model


def our_models():
    """By name: the model, what belongs to it beside its weights, and what the preset lacks."""
    sop = {"cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"}
    shared = small_config(vocab_size=1000, type_vocab_size=2, hidden_dropout_prob=0.2)
    own = small_config(inner_group_num=1, num_hidden_groups=1, parameter_sharing="none")
    return {
        "masked_lm": (AlbertForPretraining(shared), sop),
        "classifier": (AlbertForClassification(own, num_labels=5), set()),
        "equal": (AlbertEncoder(small_config(embedding_size=12, num_hidden_groups=4)), set()),
    }


@pytest.fixture(scope="module")
def ours(golden, tmp_path_factory):
    """Directory with our presets in `ours/`, and the models in them."""
    root = tmp_path_factory.mktemp("keras_hub")
    tokenizer = load_tokenizer(spm_model_file=golden / "tokenizer" / "small_1000.model")
    models = {}
    for name, (model, not_held) in our_models().items():
        contents = ModelContents(
            config=model.config,
            weights=weights_of(randomised(model)),
            tokenizer=tokenizer if name == "masked_lm" else None,
            do_lower_case=name != "equal",
            task=TrainedTask("custom", Labels(LABELS)) if name == "classifier" else None,
        )
        (root / "ours" / name).mkdir(parents=True)
        assert set(keras_hub.write(str(root / "ours" / name), contents)) == not_held
        models[name] = model
    return root, models


@pytest.fixture(scope="module")
def compared(ours):
    """The same, after KerasHub has read ours and written its own."""
    root, models = ours
    run = subprocess.run(
        [strangers_python(), str(PROGRAM), str(root)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return root, models


@pytest.fixture
def preset(ours, tmp_path):
    """A copy of our masked LM, to be damaged."""
    return shutil.copytree(ours[0] / "ours" / "masked_lm", tmp_path / "preset")


def compare(model, file):
    """Holds a model against the outputs that KerasHub computed, and returns those."""
    theirs = np.load(file)
    names = {"token_ids": "input_ids", "padding_mask": "input_mask"}
    inputs = {
        names.get(name, name): tf.constant(theirs[name])
        for name in ("token_ids", "padding_mask", "segment_ids", "masked_lm_positions")
    }
    found = model(inputs)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(found[name], theirs[name], **TOLERANCE)
    scores = found.get("masked_lm_logits", found.get("logits"))
    assert (scores is None) == ("scores" not in theirs)
    if scores is not None:
        np.testing.assert_allclose(scores, theirs["scores"], **TOLERANCE)
    return theirs


@needs_keras_hub
@pytest.mark.parametrize("name", ["masked_lm", "classifier", "equal"])
def test_keras_hub_computes_what_our_model_computes(compared, name):
    root, models = compared
    compare(models[name], root / f"ours_{name}.npz")


@needs_keras_hub
def test_keras_hub_adds_more_before_a_root_in_its_head_than_the_original(compared):
    """1e-5, which no preset can change; that of the original is 1e-12."""
    theirs = np.load(compared[0] / "ours_masked_lm.npz")
    difference = np.abs(theirs["kept_epsilon"] - theirs["scores"]).max()
    assert 1e-7 < difference < 1e-3


@needs_keras_hub
def test_keras_hub_finds_the_tokenizer_and_the_lengths(compared, golden):
    theirs = np.load(compared[0] / "ours_masked_lm.npz")
    tokenizer = load_tokenizer(spm_model_file=golden / "tokenizer" / "small_1000.model")
    assert theirs["ids"].tolist() == tokenizer.encode(TEXT)
    assert theirs["packed_length"] == 16


@needs_keras_hub
def test_another_task_takes_the_encoder(compared):
    theirs = np.load(compared[0] / "ours_masked_lm.npz")
    np.testing.assert_array_equal(theirs["of_other_task"], theirs["pooled_output"])


@needs_keras_hub
@pytest.mark.parametrize("name", ["masked_lm", "classifier", "equal"])
def test_keras_hub_saves_the_files_that_we_write(compared, name):
    root, _ = compared
    written, again = root / "ours" / name, root / "again" / name
    beyond = {"classifier": {"labels.json"}}.get(name, set())
    files = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    assert files - beyond == {
        str(path.relative_to(again)) for path in again.rglob("*") if path.is_file()
    }
    for file in files - beyond:
        if file.endswith(".h5"):
            assert datasets(written / file) == datasets(again / file)
        elif file == "metadata.json":
            first, second = (json.loads((path / file).read_text()) for path in (written, again))
            for key in ("keras_version", "parameter_count", "tasks"):
                assert first[key] == second[key]
        elif file.endswith(".json"):
            assert json.loads((written / file).read_text()) == json.loads(
                (again / file).read_text()
            )
        else:
            assert (written / file).read_bytes() == (again / file).read_bytes()


def datasets(path):
    """What is in a file: names of optimizers are numbered, so they are left out."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda key, item: found.update(
                {key: (item.dtype, item[()].tolist(), item.parent.attrs.get("name"))}
                if isinstance(item, h5py.Dataset) and not key.startswith("optimizer")
                else {}
            )
        )
    return found


@needs_keras_hub
@pytest.mark.parametrize("name", ["masked_lm", "classifier", "sharded"])
def test_our_model_computes_what_that_of_keras_hub_computes(compared, name):
    root, _ = compared
    stored = keras_hub.read(str(root / "theirs" / name), FLAG)
    expected = small_config(hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.25)
    assert stored.config == expected.replace(initializer_range=0.02)
    assert (stored.format, stored.tokenizer_file) == ("keras_hub", None)
    assert stored.do_lower_case is None
    model = {
        "masked_lm": lambda: AlbertForPretraining(stored.config, has_sentence_order_head=False),
        "classifier": lambda: AlbertForClassification(stored.config, num_labels=6),
        "sharded": lambda: AlbertEncoder(stored.config),
    }[name]()
    compare(filled(model, stored.checkpoint), root / f"theirs_{name}.npz")


@needs_keras_hub
def test_a_file_of_several_is_needed(compared, tmp_path):
    preset = shutil.copytree(compared[0] / "theirs" / "sharded", tmp_path / "preset")
    assert len(list(preset.glob("model_*.weights.h5"))) > 2
    (preset / "model_00001.weights.h5").unlink()
    with pytest.raises(LoadError, match=r"missing: .*model_00001\.weights\.h5"):
        keras_hub.read(str(preset), FLAG)


@needs_keras_hub
def test_weights_in_half_precision_are_read(compared):
    """HDF5 has no such numbers: they lie there as pairs of bytes."""
    stored = keras_hub.read(str(compared[0] / "theirs" / "bfloat16"), FLAG)
    model = filled(AlbertEncoder(stored.config), stored.checkpoint)
    for name, value in weights_of(model).items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, tf.cast(tf.cast(value, tf.bfloat16), tf.float32))
        # They were drawn from a normal distribution around 0.3.
        assert -2 < value.min() < 0.3 < value.max() < 3, name


@needs_keras_hub
def test_a_projection_that_the_original_lacks_is_refused(compared):
    with pytest.raises(LoadError, match=r"embedding_dim and hidden_dim are both 12"):
        keras_hub.read(str(compared[0] / "theirs" / "projected"), FLAG)


@needs_keras_hub
def test_a_preset_of_another_architecture_is_recognised_and_refused(compared):
    path = str(compared[0] / "theirs" / "bert")
    assert keras_hub.is_here(path)
    with pytest.raises(
        LoadError, match=r"--model=.*is of the class keras_hub>BertBackbone; only Alb"
    ):
        keras_hub.read(path, FLAG)


@pytest.mark.parametrize("name", ["masked_lm", "classifier", "equal"])
def test_what_we_write_we_read(ours, name):
    root, models = ours
    directory, model = root / "ours" / name, models[name]
    assert keras_hub.is_here(str(directory))
    stored = keras_hub.read(str(directory), FLAG)
    assert stored.config == model.config
    assert stored.checkpoint == str(directory / "model.weights.h5")
    assert stored.do_lower_case is (name != "equal")
    reader = keras_hub.open_weights(stored.checkpoint)
    weights = weights_of(model)
    assert set(reader.get_variable_to_shape_map()) == {
        name for name in weights if "seq_relationship" not in name
    } | ({"optimizer/vars/0", "optimizer/vars/1"} if name != "equal" else set())
    for variable in reader.get_variable_to_shape_map():
        if variable in weights:
            np.testing.assert_array_equal(reader.get_tensor(variable), weights[variable])


@pytest.mark.parametrize(
    ("name", "file"), [("masked_lm", ""), ("equal", ""), ("classifier", "model.weights.h5")]
)
def test_a_preset_is_loaded_as_any_model_is(ours, name, file):
    root, models = ours
    model = load(root / "ours" / name / file)
    assert type(model) is type(models[name])
    weights = weights_of(models[name])
    for variable, value in weights_of(model).items():
        np.testing.assert_array_equal(value, weights[variable])


def test_labels_and_vocabulary_lie_in_the_preset(ours, golden):
    root, _ = ours
    assert TrainedTask.read(str(root / "ours" / "classifier")).labels.names == LABELS
    stored = keras_hub.read(str(root / "ours" / "masked_lm"), FLAG)
    found = load_tokenizer(spm_model_file=stored.tokenizer_file)
    assert found.tokens == load_tokenizer(vocab_file=golden / "tokenizer/small_1000.vocab").tokens


def test_a_vocabulary_that_keras_hub_cannot_use_is_kept(golden, tmp_path):
    vocabulary = golden / "tokenizer" / "vocab.txt"
    tokenizer = load_tokenizer(vocab_file=vocabulary)
    encoder = AlbertEncoder(small_config(vocab_size=tokenizer.vocab_size))
    keras_hub.write(str(tmp_path), ModelContents(encoder.config, weights_of(encoder), tokenizer))
    stored = keras_hub.read(str(tmp_path), FLAG)
    assert load_tokenizer(vocab_file=stored.tokenizer_file).tokens == tokenizer.tokens
    assert not (tmp_path / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("task", "kind"),
    [(None, AlbertForClassification), (TrainedTask("race"), AlbertForMultipleChoice)],
)
def test_a_head_with_one_output_is_a_classifier_of_one_class(tmp_path, task, kind):
    model = randomised(kind(small_config(), **({} if task else {"num_labels": 1})))
    weights = weights_of(model)
    assert keras_hub.write(str(tmp_path), ModelContents(model.config, weights, task=task)) == []
    assert json.loads((tmp_path / "task.json").read_text())["config"]["num_classes"] == 1
    found = load(tmp_path)
    assert type(found) is kind
    np.testing.assert_array_equal(weights_of(found)["output_weights"], weights["output_weights"])


def test_presets_may_lie_in_a_store():
    encoder = AlbertEncoder(small_config())
    weights = weights_of(randomised(encoder))
    tf.io.gfile.makedirs("ram://presets/encoder")
    keras_hub.write("ram://presets/encoder", ModelContents(encoder.config, weights))
    stored = keras_hub.read("ram://presets/encoder", FLAG)
    reader = keras_hub.open_weights(stored.checkpoint)
    assert set(reader.get_variable_to_shape_map()) == set(weights)
    for name, value in weights.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value)


def test_weights_without_a_place_are_named(tmp_path):
    model = AlbertForPretraining(small_config(), has_sentence_order_head=False)
    beyond = {
        "output_weights": np.ones((3, 12)),
        "output_bias": np.ones(3),
        "cls/squad/output_weights": np.ones((2, 12)),
        "bert/pooler/dense/kernel/adam_m": np.ones((12, 12)),
    }
    weights = {**weights_of(model), **beyond}
    not_held = keras_hub.write(str(tmp_path), ModelContents(model.config, weights))
    assert not_held == sorted(
        [name for name in weights if name.startswith("cls/predictions/")]
        + ["cls/squad/output_weights", "bert/pooler/dense/kernel/adam_m"]
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "relu"}, r"always computes 'gelu'.*'relu'"),
        ({"parameter_sharing": "attention"}, r"whole blocks.*'attention'"),
        ({"num_hidden_layers": 5}, r"5 layers and 2 groups"),
        ({"vocab_size": 32}, r"word_embeddings' is \[31, 8\], and \[32, 8\] by"),
        ({"num_hidden_layers": 6, "num_hidden_groups": 3}, r"lacks .*group_2/inner_group_0"),
    ],
)
def test_what_keras_hub_cannot_hold_is_refused_before_anything_is_written(
    tmp_path, changes, message
):
    weights = weights_of(AlbertEncoder(small_config()))
    with pytest.raises(ValueError, match=message):
        keras_hub.write(str(tmp_path), ModelContents(small_config(**changes), weights))
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room_is_an_error(tmp_path):
    encoder = AlbertEncoder(small_config(vocab_size=5000))
    with file_size_limit(50_000), pytest.raises(OSError, match=r"(?i)too large|write"):
        keras_hub.write(str(tmp_path), ModelContents(encoder.config, weights_of(encoder)))


def test_directories_of_other_formats_are_not_presets(tmp_path, golden):
    assert not keras_hub.is_here(str(tmp_path))
    assert not keras_hub.is_here(str(tmp_path / "absent"))
    assert not keras_hub.is_here(str(tmp_path / "model.weights.h5"))
    assert not keras_hub.is_here(str(golden / "hub" / "module"))
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    assert not keras_hub.is_here(str(tmp_path))


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def edit_backbone(preset, change):
    """Changes its values in both places."""
    edit(preset / "config.json", lambda content: change(content["config"]))
    edit(preset / "task.json", lambda content: change(content["config"]["backbone"]["config"]))


def check_refused(preset, message, kind=LoadError):
    """Reading and opening say the same."""
    with pytest.raises(kind, match=message) as error:
        keras_hub.read(str(preset), FLAG)
    assert str(error.value).startswith(f"--model={preset} is no usable KerasHub preset of ALBERT")
    with pytest.raises(kind, match=message):
        keras_hub.open_weights(str(preset / "model.weights.h5"))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("config.json", r"no file '.*config\.json'"),
        ("model.weights.h5", r"neither model\.weights\.h5 nor model\.weights\.json"),
        ("task.json", r"has task\.weights\.h5 and no task\.json, so half of its head"),
        ("task.weights.h5", r"has task\.json and no task\.weights\.h5"),
    ],
)
def test_half_a_preset_is_refused(preset, file, message):
    (preset / file).unlink()
    check_refused(preset, message)


def test_a_tokenizer_without_its_vocabulary_is_refused(preset):
    shutil.rmtree(preset / "assets")
    with pytest.raises(LoadError, match=r"no '.*vocabulary\.spm'"):
        keras_hub.read(str(preset), FLAG)


def test_a_preset_without_tokenizer_or_metadata_is_a_model(preset):
    shutil.rmtree(preset / "assets")
    (preset / "tokenizer.json").unlink()
    (preset / "metadata.json").unlink()
    stored = keras_hub.read(str(preset), FLAG)
    assert (stored.tokenizer_file, stored.do_lower_case) == (None, None)
    assert stored.config.hidden_dropout_prob == stored.config.attention_probs_dropout_prob == 0.2


@pytest.mark.parametrize("file", ["model.weights.h5", "task.weights.h5"])
@pytest.mark.parametrize("share", [0, 0.5, 0.95])
def test_truncated_weights_are_damaged(preset, file, share):
    content = (preset / file).read_bytes()
    (preset / file).write_bytes(content[: int(share * len(content))])
    check_refused(preset, rf"{file}' cannot be read as HDF5", DamagedError)


@pytest.mark.parametrize("content", ["", "{", "[]", '"a"', "\0\0"])
def test_a_configuration_that_is_not_json_is_refused(preset, content):
    (preset / "config.json").write_text(content)
    check_refused(preset, r"config\.json'")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_dim": 24}, r"\[8, 12\], but \[8, 24\] by the configuration"),
        ({"num_heads": 4}, r"_dense/vars/0' .query. is \[12, 3, 4\], but \[12, 4, 3\]"),
        ({"num_heads": 5}, r"multiple of num_attention_heads"),
        ({"num_groups": 1}, r"not expected: layers/transformer_encoder_2.* more"),
        ({"num_groups": 4}, r"missing: layers/transformer_encoder_4.* more"),
        ({"num_groups": 3}, r"4 layers and 3 groups"),
        ({"vocabulary_size": 999}, r"token_embedding. is \[1000, 8\], but \[999, 8\]"),
        ({"activation": "relu"}, r"not known here, activation"),
        ({"max_sequence_length": None}, r"max_position_embeddings must be a whole number"),
        ({"dtype": {"class_name": "DTypePolicyMap", "config": {}}}, r"of the kind DTypePolicyMap"),
    ],
)
def test_a_configuration_that_contradicts_the_weights_is_refused(preset, changes, message):
    edit(preset / "config.json", lambda content: content["config"].update(changes))
    edit(
        preset / "task.json",
        lambda content: content["config"]["backbone"]["config"].update(changes),
    )
    check_refused(preset, message)


def test_a_task_of_another_backbone_is_refused(preset):
    edit(
        preset / "task.json",
        lambda content: content["config"]["backbone"]["config"].update(num_segments=3),
    )
    check_refused(preset, r"task\.json': its backbone is another one than that of config\.json")


def test_a_missing_size_is_named(preset):
    edit(preset / "config.json", lambda content: content["config"].pop("num_heads"))
    check_refused(preset, r"config\.json': it lacks num_heads")


@pytest.mark.parametrize(
    ("file", "name", "message"),
    [
        ("config.json", "keras_hub>RobertaBackbone", r"keras_hub>RobertaBackbone; only AlbertBa"),
        ("config.json", "mine>AlbertBackbone", r"mine>AlbertBackbone"),
        ("config.json", "AlbertBackbone", r"of the class AlbertBackbone"),
        ("task.json", "keras_hub>AlbertTagger", r"task\.json'.*only AlbertMaskedLM or AlbertText"),
    ],
)
def test_other_classes_are_refused(preset, file, name, message):
    edit(preset / file, lambda content: content.update(registered_name=name))
    check_refused(preset, message)


def test_another_tokenizer_is_refused(preset):
    edit(
        preset / "tokenizer.json",
        lambda content: content.update(registered_name="keras_hub>XLMRobertaTokenizer"),
    )
    with pytest.raises(LoadError, match=r"XLMRobertaTokenizer; only AlbertTokenizer"):
        keras_hub.read(str(preset), FLAG)


def test_names_of_earlier_versions_are_read(preset):
    for file in ("config.json", "task.json", "tokenizer.json"):
        content = (preset / file).read_text().replace("keras_hub>", "keras_nlp>")
        (preset / file).write_text(content)
    with h5py.File(preset / "model.weights.h5", "a") as file:
        file.move("layers", "_layer_checkpoint_dependencies")
    config = keras_hub.read(str(preset), FLAG).config
    filled(
        AlbertForPretraining(config, has_sentence_order_head=False),
        str(preset / "model.weights.h5"),
    )


def test_another_generation_is_refused(preset):
    edit(preset / "metadata.json", lambda content: content.update(keras_hub_version="1.2.0"))
    check_refused(preset, r"written by KerasHub 1\.2\.0")


def test_an_additional_weight_is_refused(preset):
    with h5py.File(preset / "model.weights.h5", "a") as file:
        file["layers/transformer_encoder/vars/0"] = np.ones(1)
    check_refused(preset, r"not expected: layers/transformer_encoder/vars/0")


def test_a_layer_of_another_name_is_refused(preset):
    """Its shapes may well agree."""
    with h5py.File(preset / "model.weights.h5", "a") as file:
        file["layers/transformer_encoder/_feedforward_layer_norm/vars"].attrs["name"] = "other"
    check_refused(preset, r"of a layer 'other' where 'feedforward_layer_norm' is expected")


def test_quantised_weights_are_refused(preset):
    with h5py.File(preset / "model.weights.h5", "a") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = np.ones((8, 12), np.int8)
    check_refused(preset, r"embedding_projection. holds no floating-point numbers")


def test_weights_elsewhere_are_not_followed(preset, tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["values"] = np.ones((8, 12), np.float32)
    with h5py.File(preset / "model.weights.h5", "a") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "values")
    check_refused(preset, r"missing: layers/dense/vars/0")


def test_a_classifier_with_other_outputs_than_logits_is_refused(ours, tmp_path):
    preset = shutil.copytree(ours[0] / "ours" / "classifier", tmp_path / "preset")
    edit(preset / "task.json", lambda content: content["config"].update(activation="sigmoid"))
    check_refused(preset, r"activation is 'sigmoid'")
    edit(
        preset / "task.json",
        lambda content: content["config"].update(activation="softmax", num_classes="5"),
    )
    check_refused(preset, r"num_classes is '5'")
    edit(preset / "task.json", lambda content: content["config"].update(num_classes=4))
    check_refused(preset, r"vars/0' .logits. is \[12, 5\], but \[12, 4\]")


def test_an_optimizers_state_keeps_its_name(preset):
    with h5py.File(preset / "task.weights.h5", "a") as file:
        file["optimizer/vars/2"] = np.full((2, 3), 7.0)
    reader = keras_hub.open_weights(str(preset / "model.weights.h5"))
    assert reader.get_variable_to_shape_map()["optimizer/vars/2"] == [2, 3]
    assert reader.get_tensor("optimizer/vars/2").tolist() == np.full((2, 3), 7.0).tolist()
    model = AlbertForPretraining(keras_hub.read(str(preset), FLAG).config)
    report = load_weights(model, str(preset))
    assert set(report.missing) == {n for n in original_names(model) if "seq_relationship" in n}
    assert "not used: optimizer/vars/* (3 variables)" in report.summary()


def test_an_identity_that_was_trained_is_refused(ours, tmp_path):
    preset = shutil.copytree(ours[0] / "ours" / "equal", tmp_path / "preset")
    with h5py.File(preset / "model.weights.h5", "a") as file:
        file["layers/dense/vars/1"][3] = 1e-6
    check_refused(preset, r"'embedding_projection' between them is not the identity")


def test_a_changed_dropout_counts(preset):
    edit_backbone(preset, lambda values: values.update(dropout=0.4))
    config = keras_hub.read(str(preset), FLAG).config
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.4
    assert config.initializer_range == 0.2
