"""Lines in four languages, and their ids by AlbertTokenizer of transformers 4 with `keep_accents`.

The SentencePiece-based class was removed in transformers 5. To record the ids again, run in an
environment with transformers 4.57 and sentencepiece:

    python -m tests.huggingface.accents
"""

import hashlib
import io
import json
import random
import tempfile
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded" / "accents.json"
BYTE = 6  # type of the pieces of byte fallback
GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "tokenizer" / "small_1000.model"
WORDS = {
    "Hindi": "मैं हूँ क़लम क\u093cलम ज़मीन लक्ष्मी में है। क्या हिन्दी र\u094dक विद्यालय सौंदर्य १९, २,५००",
    "German": "schön Schon Straße GROẞE Ärger fu\u0308r Élan naïve 1,5 12,000 ½ €9, „Öl“ ﬁnden №7",
    "Japanese": "がぎ かき ﾊﾟﾝ は\u3099す 東京 日本語を食べる。 ㈱山田 ㌔ ①② ＡＢＣ ー々 9,000円",
    "Vietnamese": "má mà mạ ma tiếng Việt tie\u0302\u0301ng Đường đường Ở ở người… 3,14 Quốc NGỮ",
}
MARKS = ["", "", "", ",", ".", "!", " ", "\u00a0", "\u200b", "(x)", "9,", "İ", "\u0301"]


def lines(language: str, number: int = 1000) -> list[str]:
    """Returns lines of random words with random marks between them."""
    draw, words = random.Random(language), WORDS[language].split()
    return [
        " ".join(draw.choice(words) + draw.choice(MARKS) for _ in range(draw.randint(1, 12)))
        for _ in range(number)
    ]


def recorded() -> dict:
    """Returns the `pieces` of the recorded model, and the `ids` of the lines."""
    return json.loads(RECORDED.read_text("utf-8"))


def write_model(path: Path, *, has_bytes: bool = False) -> str:
    """Writes the recorded model, with byte fallback if `has_bytes`; returns the path."""
    from albert_tf.checkpoints.formats.huggingface.sentencepiece_messages import model_class

    pieces = recorded()["pieces"]
    if has_bytes:
        pieces += [[f"<0x{byte:02X}>", 0.0, BYTE] for byte in range(256)]
    path.write_bytes(model_proto(pieces, model_class()()))
    return str(path)


def digest(ids: list[list[int]]) -> str:
    """Returns a digest of the ids of lines."""
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def model_proto(pieces: list[list], message: Any) -> bytes:
    """Returns a SentencePiece model with the normalization of the golden model.

    `pieces` are texts, scores and types; `message` is an empty message of a model.
    """
    message.ParseFromString(GOLDEN.read_bytes())
    del message.pieces[:]
    for piece, score, kind in pieces:
        message.pieces.add(piece=piece, score=score, type=kind)
    message.trainer_spec.vocab_size = len(pieces)
    message.trainer_spec.byte_fallback = any(kind == BYTE for *_, kind in pieces)
    return message.SerializeToString()


def _train(message: Any) -> list[list]:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for language in WORDS for line in lines(language)]),
        model_writer=model,
        vocab_size=240,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        minloglevel=1,
    )
    message.ParseFromString(model.getvalue())
    return [[piece.piece, round(piece.score, 4), piece.type] for piece in message.pieces]


def _record() -> None:
    from sentencepiece.sentencepiece_model_pb2 import ModelProto
    from transformers import AlbertTokenizer

    pieces, found = _train(ModelProto()), {}
    with tempfile.NamedTemporaryFile(suffix=".model") as file:
        file.write(model_proto(pieces, ModelProto()))
        file.flush()
        for lower in (True, False):
            theirs = AlbertTokenizer(file.name, do_lower_case=lower, keep_accents=True)
            for language in WORDS:
                ids = [theirs.encode(line, add_special_tokens=False) for line in lines(language)]
                found[f"{language} {lower}"] = {"digest": digest(ids), "first": ids[0]}
    text = json.dumps({"pieces": pieces, "ids": found}, ensure_ascii=False)
    RECORDED.write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    _record()
