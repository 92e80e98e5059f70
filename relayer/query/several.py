"""Recognition of a query that several memories answer: lists, counts, "both", "all".

Not here: what follows for a score (`fusion`, `rank`).

- Words that ask for several count in any query. "Which books have I read" asks for several, too:
  what somebody has or has done is told by many, which "what did I read yesterday" is not.
- Linear in the text: each alternative is short, and what repeats is bounded.
"""

import re
from typing import Final

from relayer.normalization import normalize

_LOOKED_AT: Final = 512  # characters, of which a question has a tenth
_SEVERAL: Final = re.compile(
    r"\b(?:both|all|each|every|how many|list|various|different|several|some)\b"
    r"(?! (?:right|time|day|over)\b)"
    r"|\b(?:kinds|types|sorts|ways|names|examples) of\b"
    r"|\b(?:alle|beide|jede[mnrs]?|wie viele|verschiedene[nr]?|mehrere|einige)\b"
    r"|\b(?:tous|toutes|les deux|chaque|combien de|quels|quelles|plusieurs|différents)\b"
    r"|\b(?:todos|todas|ambos|ambas|cada|cuántos|cuántas|cuáles|varios|varias)\b"
    r"|\b(?:tutti|tutte|entrambi|ogni|quanti|quante|quali|diversi)\b"
    r"|\b(?:quantos|quantas|quais|vários|várias)\b"
    r"|\b(?:wszystkie|oba|obie|ile razy|jakie|kilka)\b"
    r"|\b(?:все|всех|оба|обе|сколько раз|какие|несколько)(?!\w)"
    r"|哪些|几次|幾次|多少次|所有|全部|分别|分別|すべて|全て|それぞれ|何回|何度"
    r"|모두|모든|각각|몇 번"
)
_HAVE: Final = re.compile(
    r"\b(?:what|which|who|whom|where)\b(?:\s[\w'’+/-]{1,40}){0,4}?\s(?:has|have)\b"
)
_BEGINNING: Final = 24  # characters, within which a question begins


def asks_for_several(text: str) -> bool:
    """Return true if several memories together answer a query, as far as its words tell."""
    plain = normalize("NFC", text[:_LOOKED_AT]).casefold()
    if _SEVERAL.search(plain) is not None:
        return True
    begun = _HAVE.search(plain)
    return begun is not None and begun.start() <= _BEGINNING
