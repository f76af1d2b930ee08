"""Flags of masking, in the command that makes records and in the one that trains on them."""

from __future__ import annotations

from absl import flags, logging

from albert_tf.cli.flag_groups import MASKING, flag_group, set_units
from albert_tf.data.masking import MaskingSettings

_NGRAM_FLAGS = ("ngram", "favor_shorter_ngram", "do_whole_word_mask")


def define_ngram_flags() -> None:
    """Which tokens are masked together."""
    with flag_group(MASKING):
        flags.DEFINE_integer("ngram", 3, "Longest run of words masked together.")
        flags.DEFINE_bool(
            "favor_shorter_ngram",
            True,
            "Mask runs of n words with probability ~ 1/n; if false, the longer the likelier.",
        )
        flags.DEFINE_bool(
            "do_whole_word_mask", True, "Mask all pieces of a word together, or none."
        )
    set_units(ngram="words")


def define_online_masking_flags() -> None:
    """Masking while training."""
    with flag_group(MASKING):
        flags.DEFINE_float(
            "masked_lm_prob",
            0.0,
            "Mask while training, anew in every pass: the fraction of the tokens to predict, 0.15 "
            "as a rule. For plain records (create_pretraining_data --masked_lm_prob=0). 0: the "
            "records are masked already.",
        )
        flags.DEFINE_float("masked_lm_budget", 0.0, "The original's name of --masked_lm_prob.")
    define_ngram_flags()
    set_units(masked_lm_prob="fraction", masked_lm_budget="fraction")


def online_masking_settings(values: flags.FlagValues) -> MaskingSettings | None:
    """Turns the flags of `define_online_masking_flags` into settings, None without masking.

    Raises:
        ValueError: a value is out of range, or two flags contradict each other.
    """
    prob, budget = values.masked_lm_prob, values.masked_lm_budget
    if prob and budget and prob != budget:
        raise ValueError(
            f"--masked_lm_prob={prob:g} and --masked_lm_budget={budget:g} are two names of one "
            "setting; give one of them, or the same number."
        )
    if not (prob or budget):
        for name in _NGRAM_FLAGS:
            if values[name].present:
                logging.warning("--%s changes nothing without --masked_lm_prob", name)
        return None
    return MaskingSettings(
        masked_lm_prob=prob or budget,
        max_predictions_per_seq=values.max_predictions_per_seq,
        ngram=values.ngram,
        favor_shorter_ngram=values.favor_shorter_ngram,
        do_whole_word_mask=values.do_whole_word_mask,
    )
