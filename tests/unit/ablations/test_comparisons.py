"""The models of the comparisons: each can be built, and differs from the base in one thing."""

import pytest

from albert_tf.ablations.comparisons import choose_variants
from albert_tf.config import AlbertConfig
from albert_tf.models import AlbertForPretraining
from albert_tf.parameter_counts import parameter_counts
from tests.small_model import pretraining_inputs

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


def test_models_differ_from_the_base_in_what_their_names_say():
    before = {**BASE.to_dict(), "parameter_sharing": "all"}
    found = {}
    for variant in choose_variants(BASE):
        after = {"parameter_sharing": "all", **variant.config(BASE).to_dict()}
        assert after.keys() == before.keys()
        found[variant.name] = {key: after[key] for key in after if after[key] != before[key]}
    assert found == EXPECTED


def test_sentence_losses_are_those_there_are_records_for():
    losses = {v.name: v.sentence_loss for v in choose_variants(BASE, ["sentence_loss"])}
    assert losses == {"base": "sop", "sentence_loss-nsp": "nsp", "sentence_loss-none": "none"}
    variants = choose_variants(BASE, ["sentence_loss"], losses=["sop", "none"])
    assert [v.name for v in variants] == ["base", "sentence_loss-none"]


@pytest.mark.parametrize("variant", choose_variants(BASE), ids=lambda variant: variant.name)
def test_models_have_the_parameters_of_the_table(variant):
    config = variant.config(BASE)
    model = AlbertForPretraining(config)
    model(pretraining_inputs())
    built = sum(weight.shape.num_elements() for weight in model.trainable_variables)
    assert built == parameter_counts(config).pretraining


def test_given_values_replace_those_that_follow_from_the_base_which_is_never_repeated():
    values = {"depth": [3, 4, 3, 12], "width": [16], "embedding_size": []}
    variants = choose_variants(BASE, ["depth", "width"], values)
    assert [v.name for v in variants] == ["base", "depth-3", "depth-12"]
    names = [v.name for v in choose_variants(BASE, ["embedding_size"], values)]
    assert names == ["base", "embedding_size-3", "embedding_size-12", "embedding_size-16"]


def test_comparing_from_another_side_leaves_its_value_out():
    base = BASE.replace(parameter_sharing="none", hidden_dropout_prob=0.1, num_hidden_layers=1)
    names = [v.name for v in choose_variants(base, ["sharing", "dropout", "depth"])]
    assert "sharing-none" not in names
    assert "sharing-all" in names
    assert names[-2:] == ["dropout-0.0", "depth-2"]


def test_what_cannot_be_built_is_named():
    with pytest.raises(ValueError, match=r"width-5 .*embedding|width-5 .*multiple"):
        choose_variants(BASE.replace(num_attention_heads=8), ["width"], {"width": [5]})
    with pytest.raises(ValueError, match=r"--comparisons.*'deepness'.*depth"):
        choose_variants(BASE, ["deepness"])
