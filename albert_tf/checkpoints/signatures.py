"""Names in the signatures of exported models."""

DEFAULT_SIGNATURE = "serving_default"
TOKENS_SIGNATURE = "tokens"
ORIGINAL_INPUTS = ("input_ids", "input_mask", "segment_ids")
HUB_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
POSITIONS = "masked_lm_positions"
