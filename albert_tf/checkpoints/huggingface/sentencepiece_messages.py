"""Messages of SentencePiece models.

SentencePiece's own message classes may require a newer protobuf than TensorFlow. This module
therefore declares the fields of sentencepiece_model.proto that are needed.
"""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from albert_tf.data.errors import UserError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4  # types of pieces
UNIGRAM = 1  # type of model
_PACKAGE = "albert_tf.sentencepiece"
_Field = descriptor_pb2.FieldDescriptorProto

# Fields of each message: name, number, and type or name of the message.
_MESSAGES: dict[str, tuple[tuple[str, int, Any], ...]] = {
    "Piece": (
        ("piece", 1, _Field.TYPE_STRING),
        ("score", 2, _Field.TYPE_FLOAT),
        ("type", 3, _Field.TYPE_INT32),
    ),
    "Trainer": (
        ("model_type", 3, _Field.TYPE_INT32),
        ("vocab_size", 4, _Field.TYPE_INT32),
        ("unk_id", 40, _Field.TYPE_INT32),
        ("bos_id", 41, _Field.TYPE_INT32),
        ("eos_id", 42, _Field.TYPE_INT32),
        ("pad_id", 43, _Field.TYPE_INT32),
        ("unk_piece", 45, _Field.TYPE_STRING),
        ("bos_piece", 46, _Field.TYPE_STRING),
        ("eos_piece", 47, _Field.TYPE_STRING),
        ("pad_piece", 48, _Field.TYPE_STRING),
    ),
    "Normalizer": (("name", 1, _Field.TYPE_STRING), ("precompiled_charsmap", 2, _Field.TYPE_BYTES)),
    "Model": (
        ("pieces", 1, "Piece"),
        ("trainer_spec", 2, "Trainer"),
        ("normalizer_spec", 3, "Normalizer"),
    ),
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
        for name, number, kind in fields:
            field = described.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
            if name == "type":
                field.default_value = str(NORMAL)
            if name == "pieces":
                field.label = _Field.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Model"))


def penalty(piece: str) -> float:
    """Returns what transformers subtracts from the score of a piece."""
    ends_in_digit_comma = len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
    return PENALTY if ends_in_digit_comma else 0.0
