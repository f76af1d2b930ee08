from collections import Counter

from albert_tf.pretraining.create_records import CreationReport, masking_limit_warning
from albert_tf.pretraining.instances import PretrainingDataSettings
from albert_tf.pretraining.masking import MaskingSettings
from albert_tf.pretraining.segments import SegmentSettings

COUNTS = Counter(
    documents=1234,
    segments=5678,
    text_tokens=90000,
    one_segment_documents=3,
    instances=400,
    positions=200_000,
    tokens=150_000,
    tokens_cut=50_000,
    predictions=15_000,
    swapped=180,
    random_parts=40,
    ngram_1=60,
    ngram_2=30,
    ngram_3=10,
)


def test_report_says_what_was_made() -> None:
    settings = PretrainingDataSettings(dupe_factor=5)
    text = "\n".join(CreationReport(settings, COUNTS, 10.0).lines())
    for part in (
        "documents=1,234",
        "segments=5,678",
        "one_segment_documents=3",
        "instances=400 passes=5",
        "padding=25.00%",
        "tokens_cut=25.00%",
        "masked_fraction=10.00%",
        "prediction_slots=20",
        "1-grams=60.00% 2-grams=30.00% 3-grams=10.00%",
        "sentence_loss=sop sentence_pairs=original swapped=45.00%",
        "random_document=10.00%",
        "tokens_per_second=15,000",
    ):
        assert part in text


def test_report_says_what_was_not_made_and_how_to_train_on_plain_records() -> None:
    settings = PretrainingDataSettings(
        SegmentSettings(sentence_loss="none"), MaskingSettings(masked_lm_prob=0)
    )
    report = CreationReport(settings, COUNTS, 10.0)
    text = "\n".join(report.lines())
    assert "sentence_loss=none" in text
    assert "swapped" not in text
    assert "masking: none" in text
    assert any("run_pretraining.py --masked_lm_prob=0.15" in line for line in report.warnings())


def test_warnings_only_where_there_is_something() -> None:
    assert not list(CreationReport(PretrainingDataSettings(), COUNTS, 1.0).warnings())
    masking = MaskingSettings(do_permutation=True, max_predictions_per_seq=7)
    counts = COUNTS + Counter(documents_cut=2, random_parts_of_only_document=1, tokens_cut=200_000)
    report = CreationReport(PretrainingDataSettings(masking=masking), counts, 1.0)
    one_document, lost, cut, permutation = report.warnings()
    assert one_document.startswith("1 of 40 random second parts")
    assert lost.startswith("62.50% of the tokens did not fit into --max_seq_length")
    assert "cut at 2 places" in cut
    assert "--max_predictions_per_seq=14" in permutation


def test_limit_below_the_fraction_is_told() -> None:
    warning = masking_limit_warning(512, MaskingSettings())
    assert warning is not None
    assert "asks for 77 predictions in 512 tokens" in warning
    assert "allows 20: 3.9%" in warning
    assert masking_limit_warning(128, MaskingSettings()) is None
