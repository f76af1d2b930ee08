"""The serialized form of a SentencePiece model, as far as other libraries need to know it.

The message classes that come with SentencePiece are generated for one version of protobuf, and
refuse to be loaded beside an older one, TensorFlow's for instance. The few fields that matter are
described here instead; those that are not keep their values.

Source: sentencepiece_model.proto of SentencePiece.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4  # kinds of pieces
UNIGRAM = 1  # kind of model
_PACKAGE = "albert_tf.sentencepiece"
_Field = descriptor_pb2.FieldDescriptorProto
# Fields of each message: name, number, type (of a message: its name).
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
    "Normalizer": (
        ("name", 1, _Field.TYPE_STRING),
        ("precompiled_charsmap", 2, _Field.TYPE_BYTES),
    ),
    "Model": (
        ("pieces", 1, "Piece"),
        ("trainer_spec", 2, "Trainer"),
        ("normalizer_spec", 3, "Normalizer"),
    ),
}


def new_model() -> Any:
    """Returns an empty message: `pieces`, `trainer_spec` and `normalizer_spec`."""
    return _model_class()()


def parse_model(model_proto: bytes, name: str) -> Any:
    """Returns the message of a serialized model.

    Args:
        model_proto: the model.
        name: of its file, for the error.

    Raises:
        ValueError: it is not one.
    """
    model = new_model()
    try:
        model.ParseFromString(model_proto)
    except Exception as error:  # protobuf's DecodeError is public under no stable name
        raise ValueError(f"{name} is not a SentencePiece model: {error}") from error
    return model


@cache
def _model_class() -> Any:
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
