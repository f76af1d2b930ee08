"""Names of classes as a picture can show them: a user's labels may be in any script."""

from __future__ import annotations

from collections.abc import Sequence

from albert_tf.data.text_examples import label_cell

_LONGEST = 24  # characters
# Fonts with Chinese, Japanese and Korean, as systems have them; matplotlib brings none.
_MORE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "SimHei",
    "Arial Unicode MS",
)


def font_families() -> list[str]:
    """Returns matplotlib's own font, and those of `_MORE_FONTS` that are installed."""
    import matplotlib
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return [
        *matplotlib.rcParams["font.sans-serif"][:1],
        *(name for name in _MORE_FONTS if name in installed),
    ]


def drawn_names(names: Sequence[str], families: Sequence[str]) -> list[str]:
    """Returns what stands for each class in a picture.

    Args:
        names: of the classes.
        families: fonts, those that are installed.

    Returns:
        The names, shortened if need be, or `#` and the class's place where no font has all of
        the name's characters.
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    fonts = [get_font(findfont(FontProperties(family=family))) for family in families]

    def can_be_drawn(text: str) -> bool:
        return all(any(font.get_char_index(ord(c)) for font in fonts) for c in text)

    cells = [_shortened(label_cell(name)) for name in names]
    return [cell if can_be_drawn(cell) else f"#{place}" for place, cell in enumerate(cells)]


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
