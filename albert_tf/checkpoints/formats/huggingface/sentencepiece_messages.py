"""Messages of SentencePiece models.

SentencePiece's own message classes may require a newer protobuf than TensorFlow. This module
therefore declares the fields of sentencepiece_model.proto that are needed.
"""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from albert_tf.data.errors import UserError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # types of pieces
UNIGRAM, BPE = 1, 2  # types of models
_PACKAGE = "albert_tf.sentencepiece"
_Field = descriptor_pb2.FieldDescriptorProto

# Fields of each message: name, type, number, and the default unless it is 0 or empty.
_MESSAGES = {
    "Piece": "piece string 1, score float 2, type int32 3 1",
    "Trainer": (
        "model_type int32 3 1, vocab_size int32 4, treat_whitespace_as_suffix bool 24, "
        "byte_fallback bool 35, unk_id int32 40, bos_id int32 41, eos_id int32 42, "
        "pad_id int32 43, unk_piece string 45, bos_piece string 46, eos_piece string 47, "
        "pad_piece string 48"
    ),
    "Normalizer": (
        "name string 1, precompiled_charsmap bytes 2, add_dummy_prefix bool 3 true, "
        "remove_extra_whitespaces bool 4 true, escape_whitespaces bool 5 true"
    ),
    "Model": "pieces Piece 1, trainer_spec Trainer 2, normalizer_spec Normalizer 3",
}

# transformers subtracts this from the scores of pieces like "9,", which are then never used. The
# original splits these pieces instead.
PENALTY = 100.0


def parse_model(model_proto: bytes, name: str) -> Any:
    """Returns the message of a serialized model. Raises `ValueError` if it is damaged."""
    model = model_class()()
    try:
        model.ParseFromString(model_proto)
    except Exception as error:  # such as protobuf's DecodeError, which has no stable name
        raise UserError(f"{name} is not a SentencePiece model: {error}") from error
    return model


@cache
def model_class() -> Any:
    """Returns the class of the message `Model`."""
    file = descriptor_pb2.FileDescriptorProto(
        name="albert_tf/sentencepiece_model.proto", package=_PACKAGE, syntax="proto2"
    )
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, kind, number, *default in map(str.split, fields.split(",")):
            field = described.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
            if kind in _MESSAGES:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = getattr(_Field, f"TYPE_{kind.upper()}")
            if default:
                field.default_value = default[0]
            if name == "pieces":
                field.label = _Field.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Model"))


def penalty(piece: str) -> float:
    """Returns what transformers subtracts from the score of a piece."""
    ends_in_digit_comma = len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
    return PENALTY if ends_in_digit_comma else 0.0
