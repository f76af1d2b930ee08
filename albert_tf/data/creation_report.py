"""What was made of a corpus, in words: the closing report and the warnings of record creation."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from albert_tf.data.masking import MaskingSettings
from albert_tf.data.pretraining import PretrainingDataSettings
from albert_tf.data.segments import ADJACENT, NONE


@dataclass(frozen=True)
class CreationReport:
    """Counts of one run; see `count_instances` and `create_pretraining_data` for the keys.

    Attributes:
        settings: what was asked for.
        counts: what was read and made.
        seconds: how long it took.
    """

    settings: PretrainingDataSettings
    counts: Counter[str]
    seconds: float

    def lines(self) -> list[str]:
        """The report, one `key=value` group a line."""
        c = self.counts
        padding = c["positions"] - c["tokens"]
        return [
            f"read: documents={c['documents']:,} segments={c['segments']:,} "
            f"tokens={c['text_tokens']:,} one_segment_documents={c['one_segment_documents']:,} "
            f"documents_cut={c['documents_cut']:,}",
            f"made: instances={c['instances']:,} passes={self.settings.dupe_factor} "
            f"tokens={c['tokens']:,} padding={_share(padding, c['positions'])} "
            f"tokens_cut={_share(c['tokens_cut'], c['tokens'] + c['tokens_cut'])}",
            f"masking: {self._masking()}",
            f"sentence pairs: {self._pairs()}",
            f"speed: tokens_per_second={c['tokens'] / self.seconds:,.0f} "
            f"seconds={self.seconds:,.1f}",
        ]

    def _pairs(self) -> str:
        """What the sentence loss is, and the shares of the two kinds of negatives."""
        c, loss = self.counts, self.settings.segments.sentence_loss
        if loss == NONE:
            return f"sentence_loss={loss} (a sequence is one run of text)"
        return (
            f"sentence_loss={loss} sentence_pairs={self.settings.segments.sentence_pairs} "
            f"swapped={_share(c['swapped'], c['instances'])} "
            f"random_document={_share(c['random_parts'], c['instances'])}"
        )

    def _masking(self) -> str:
        """How much is masked, and in which n-grams."""
        c, settings = self.counts, self.settings.masking
        if not settings.masked_lm_prob:
            return "none, for masking while training"
        return (
            f"predictions={c['predictions']:,} "
            f"masked_fraction={_share(c['predictions'], c['tokens'])} "
            f"prediction_slots={settings.prediction_slots} {self._ngrams()}"
        )

    def _ngrams(self) -> str:
        """Share of each n-gram length among the masked n-grams."""
        numbers = {n: self.counts[f"ngram_{n}"] for n in range(1, self.settings.masking.ngram + 1)}
        total = sum(numbers.values())
        return " ".join(f"{n}-grams={_share(number, total)}" for n, number in numbers.items())

    def warnings(self) -> Iterator[str]:
        """What the user should know about these records."""
        c = self.counts
        if c["random_parts_of_only_document"]:
            yield (
                f"{c['random_parts_of_only_document']:,} of {c['random_parts']:,} random second "
                "parts come from the document of the first part, because there was no other. Put "
                "empty lines between documents, or give more of them."
            )
        is_adjacent = self.settings.segments.sentence_pairs == ADJACENT
        if is_adjacent and 2 * c["one_segment_documents"] > c["documents"]:
            yield (
                f"{c['one_segment_documents']:,} of {c['documents']:,} documents have one line, "
                f"of which --sentence_pairs={ADJACENT} makes no pair. Has the text one sentence a "
                "line, and empty lines between documents alone?"
            )
        if c["tokens_cut"] > c["tokens"]:
            yield (
                f"{_share(c['tokens_cut'], c['tokens'] + c['tokens_cut'])} of the tokens did not "
                "fit into --max_seq_length and are lost. Has the text one sentence a line?"
            )
        if c["documents_cut"]:
            yield (
                f"Documents were cut at {c['documents_cut']:,} places because they are longer than "
                "a block of text. Are the empty lines between documents missing?"
            )
        if not self.settings.masking.masked_lm_prob:
            yield (
                "The records are plain (--masked_lm_prob=0): train on them with "
                "run_pretraining.py --masked_lm_prob=0.15, which masks them anew in every pass."
            )
        elif self.settings.masking.do_permutation:
            yield (
                "Permutation doubles the prediction slots: train on these records with "
                f"--max_predictions_per_seq={self.settings.masking.prediction_slots}."
            )


def masking_limit_warning(length: int, masking: MaskingSettings) -> str | None:
    """Says so when --max_predictions_per_seq allows less than --masked_lm_prob asks for.

    Args:
        length: positions of a full sequence.
        masking: what is asked for.
    """
    limit, fraction = masking.max_predictions_per_seq, masking.masked_lm_prob
    wanted = round(length * fraction)
    if wanted <= limit:
        return None
    return (
        f"--masked_lm_prob={fraction:g} asks for {wanted} predictions in {length} tokens, but "
        f"--max_predictions_per_seq={limit} allows {limit}: {limit / length:.1%} will be masked. "
        f"The released models were trained so; --max_predictions_per_seq={wanted} masks all."
    )


def _share(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.2%}"
