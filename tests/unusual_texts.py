"""Texts that are difficult for tokenization, byte offsets and truncation."""

from albert_tf.multiple_choice.data import ChoiceExample

UNUSUAL_TEXTS = (
    "",
    " ",
    "\t\n  \u3000",
    "The tower was built in 1,889, by 3 men.",
    "  leading and trailing  ",
    "caf\u00e9 cafe\u0301 \u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 STRA\u00dfE",
    "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\u3002",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 family \u00bd cup",
    "a_b __ _ \uff3f x",
    "[CLS] [SEP] [MASK] <pad> <unk>",
    "\u00a0no\u2003break\u200eodd\u00b4 blanks\u2028",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea",
    "word " * 60,
    "x" * 300,
)

SCRIPTS = {
    "latin": ["The naïve king paid for bread", "İstanbul'da Straße GROẞE ﬁne", "Tiếng Việt mạ mã"],
    "greek": ["ΟΔΟΣ Σίσυφος ΑΣ", "καλημέρα σας", "Α.Σ.Α. και Ο.Σ. ή ΑΣ'"],
    "cyrillic": ["Йод и Ёлка", "Її їжак", "ъ Ѐ"],
    "korean": ["안녕하세요 저는 학교에 갑니다", "오늘 날씨가 아주 좋습니다", "ᄒᆞᆫ글"],
    "hindi": ["मैं आज स्कूल जा रहा हूँ", "यहाँ पानी की बहुत कमी है", "क़लम और ज़मीन"],
    "bengali": ["আমি আজ স্কুলে যাচ্ছি", "বাংলা একটি ভাষা", "কো কৌ বই পড়ি"],
    "tamil": ["தமிழ் ஒரு மொழி", "கொடு கோடு கௌ", "நான் பள்ளிக்குச் செல்கிறேன்"],
    "thai": ["ภาษาไทยยากมาก", "น้ำ ทำ", "วันนี้อากาศดี"],
    "arabic": ["مرحبا بالعالم", "حالُكَ ﷺ", "كيف الحال"],
    "hebrew": ["שָׁלוֹם עולם", "שפה יפה", "\ufb1d \ufb2a"],
    "japanese": ["日本語のガギグ", "ﾊﾟﾋﾟ が 々ー", "㈱ と ①"],
    "emoji": ["1️⃣ first", "me ™️ too", "it’s ‼️ now 👨‍👩‍👧 👍🏽"],
}


def unusual_choices() -> list[ChoiceExample]:
    """Returns examples with each text as a question and 2 to 4 options."""
    texts, examples = UNUSUAL_TEXTS, []
    for number, question in enumerate(texts):
        options = tuple(texts[(number + step) % len(texts)] or " " for step in (1, 3, 5, 8))
        context = texts[(5 * number + 3) % len(texts)]
        examples.append(ChoiceExample("", context, question, options[: 2 + number % 3]))
    return examples


def choice_texts(examples: list[ChoiceExample]) -> dict[str, list]:
    """Returns the inputs of a text model. Missing options are empty."""
    return {
        "contexts": [example.context for example in examples],
        "questions": [example.question for example in examples],
        "options": [example.options + ("",) * (4 - len(example.options)) for example in examples],
    }
