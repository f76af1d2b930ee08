"""The statistics of golden/pretraining_data/statistics.json, from parsed records."""

from collections import Counter

import numpy as np

SCALARS = (
    "number_of_instances",
    "mean_sequence_length",
    "share_of_full_length",
    "masked_fraction_of_all_tokens",
    "mean_of_masked_fraction_per_instance",
    "share_mask",
    "share_kept",
    "share_random",
    "share_of_label_1",
    "share_of_token_boundary",
    "mean_length_a",
    "mean_length_b",
)
HISTOGRAMS = (
    "sequence_length_counts",
    "predictions_per_instance_counts",
    "masked_run_length_in_tokens_counts",
    "masked_run_length_in_words_counts",
)


def record_statistics(records: dict[str, np.ndarray], mask_id: int) -> dict:
    """Returns scalars and histograms, named as in the golden file; `None` without data."""
    lengths = records["input_mask"].sum(axis=1)
    b_and_sep = records["segment_ids"].sum(axis=1)
    weights = records["masked_lm_weights"] > 0
    counts = weights.sum(axis=1)
    rows, slots = np.nonzero(weights)
    positions = records["masked_lm_positions"][rows, slots]
    shown = records["input_ids"][rows, positions]
    labels = records["masked_lm_ids"][rows, slots]
    run_tokens, run_words = _runs(rows, positions, records["token_boundary"])
    return {
        "number_of_instances": len(lengths),
        "mean_sequence_length": lengths.mean(),
        "share_of_full_length": (lengths >= records["input_mask"].shape[1] - 1).mean(),
        "masked_fraction_of_all_tokens": counts.sum() / lengths.sum(),
        "mean_of_masked_fraction_per_instance": (counts / lengths).mean(),
        "share_mask": _mean(shown == mask_id),
        "share_kept": _mean(shown == labels),
        "share_random": _mean((shown != mask_id) & (shown != labels)),
        "share_of_label_1": records["next_sentence_labels"].mean(),
        "share_of_token_boundary": records["token_boundary"].sum() / lengths.sum(),
        "mean_length_a": (lengths - b_and_sep - 2).mean(),
        "mean_length_b": (b_and_sep - 1).mean(),
        "sequence_length_counts": _histogram(lengths),
        "predictions_per_instance_counts": _histogram(counts),
        "masked_run_length_in_tokens_counts": _histogram(run_tokens),
        "masked_run_length_in_words_counts": _histogram(run_words),
    }


def _mean(values: np.ndarray) -> float | None:
    return values.mean() if values.size else None


def _histogram(values: np.ndarray) -> dict[str, int]:
    return dict(Counter(map(str, values.tolist())))


def _runs(
    rows: np.ndarray, positions: np.ndarray, token_boundary: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens and word starts in each run of consecutive predicted positions."""
    if not rows.size:
        return rows, rows
    new = np.append(True, (np.diff(rows) != 0) | (np.diff(positions) != 1))
    run = new.cumsum() - 1
    return np.bincount(run), np.bincount(run, token_boundary[rows, positions]).astype(int)


def shares(histogram: dict[str, int], keys: list[str]) -> np.ndarray:
    """Returns the shares of a histogram in the order of `keys`."""
    values = np.array([histogram.get(key, 0) for key in keys], float)
    return values / max(values.sum(), 1)
