"""Recognition of a text that only asks, and of a query for what was asked.

Not here: how far what only asks is put back (`rank`). Pure; linear in a short text.

- A text that states more than two or three words, or says "I" or "my", tells something.
- A long text does, too, whatever it asks.
"""

import re
from typing import Final

from relayer.normalization import normalize
from relayer.query.heading import read_heading

_CHARACTERS_MAX: Final = 200
_STATED_MAX: Final = 20  # characters outside questions: "That is great, Anna!"
_WIDE_FROM: Final = "\u2e80"  # a Han character, a kana or a hangul tells as much as three letters
_LOOKED_AT: Final = 512  # characters of a query
_SENTENCE: Final = re.compile(r"[^.!?。！？؟\n]+[.!?。！？؟\n]*")
_ASKED: Final = tuple("?？؟")
_TOLD_BY: Final = re.compile(
    r"\b(?:i|i['’](?:m|ve|d|ll)|my|mine|we|we['’](?:re|ve|ll)|our|ours"
    r"|ich|mein(?:e[mnrs]?)?|wir|unser(?:e[mnrs]?)?|je|j['’]ai|mon|ma|mes|nous|notre|nos"
    r"|yo|mi|mis|nosotros|nuestr[oa]s?|io|mio|mia|eu|meu|minha)\b|[我私僕俺]"
)
_ABOUT_QUESTIONS: Final = re.compile(
    r"\b(?:ask(?:s|ed|ing)?|questions?|wonder(?:s|ed|ing)?|frag(?:en?|te|ten|st|t)|gefragt"
    r"|demand(?:e|é|ait)|pregunt\w{1,6}|domand\w{1,6}|pergunt\w{1,6})\b"
    r"|вопрос|спр[ао]с|问|問|質|聞|訊|질문|물었|물어"
)


def only_asks(text: str) -> bool:
    """Return true if a text is a question, and tells next to nothing beside it."""
    if len(text) > _CHARACTERS_MAX or not any(mark in text for mark in _ASKED):
        return False
    own = text[read_heading(text).end :]
    stated = [part for part in _SENTENCE.findall(own) if not part.rstrip().endswith(_ASKED)]
    size = sum(3 if c >= _WIDE_FROM else 1 for part in stated for c in part if c.isalnum())
    if size > _STATED_MAX or not own.strip():
        return False
    return _TOLD_BY.search(normalize("NFC", own).casefold()) is None


def is_about_questions(query: str) -> bool:
    """Return true if a query looks for what somebody asked."""
    return _ABOUT_QUESTIONS.search(normalize("NFC", query[:_LOOKED_AT]).casefold()) is not None
