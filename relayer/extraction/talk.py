"""Talk that holds nothing to remember, in other languages than English: chat, questions, orders.

It does not own English (`english.py`), nor telling languages apart (`language.py`).

- The phrases are in `talk.txt`, a few closed classes a language. A statement is what none of them
  makes talk of: nothing has to be known of what it is about.
- A language is read when its first sentence comes.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Final

from relayer.extraction.tables import sections

_NEVER: Final = re.compile(r"(?!)")
_OPENINGS_MAX: Final = 4  # before the point; more are no sentence
# No blank stands between words, or endings follow a word without one.
_UNBOUNDED: Final = frozenset({"chinese", "japanese", "thai", "korean"})
_MARKS: Final = r"[\s,.!;:，、。！،؛।…~\-–—]"


@dataclass(frozen=True)
class _Talk:
    """Patterns of a language, one for each kind of `talk.txt`."""

    remember: re.Pattern[str]
    greeting: re.Pattern[str]
    opening: re.Pattern[str]
    begins: re.Pattern[str]
    holds: re.Pattern[str]
    ends: re.Pattern[str]
    moment: re.Pattern[str]
    work: re.Pattern[str]
    editing: re.Pattern[str]
    letter: re.Pattern[str]
    standing: re.Pattern[str]


def asks_to_remember(sentence: str, language: str) -> bool:
    """Tell whether `sentence` says of itself that it is to be remembered."""
    return _talk(language).remember.search(sentence) is not None


def is_talk(sentence: str, language: str) -> bool:
    """Tell whether `sentence` is small talk, a question, an order or of the moment.

    Of a language that has no table, nothing is.
    """
    talk = _talk(language)
    if talk.standing.search(sentence) and not talk.work.search(sentence):
        return False
    rest = re.sub(r"\A\W+", "", sentence).replace("’", "'")
    for _ in range(_OPENINGS_MAX):
        opening = talk.greeting.match(rest)
        if opening is None and talk.begins.match(rest):
            return True
        opening = opening or talk.opening.match(rest)
        if opening is None:
            break
        rest = rest[opening.end() :]
    said = _without_end(rest)
    if not said or talk.holds.search(said) or talk.ends.search(said):
        return True
    return bool(talk.moment.search(said) and talk.work.search(said))


def orders_editing(words: str) -> bool:
    """Tell whether `words` order or ask for work on a text, in any language that is known."""
    return any(
        _talk(language).editing.search(words) and is_talk(words, language) for language in LANGUAGES
    )


def names_letter(words: str) -> bool:
    """Tell whether `words` name what somebody else wrote, in any language that is known."""
    return any(_talk(language).letter.search(words) for language in LANGUAGES)


def _without_end(text: str) -> str:
    """Return `text` up to its last letter, vowel sign or digit."""
    end = len(text)
    while end and unicodedata.category(text[end - 1])[0] not in "LMN":
        end -= 1
    return text[:end]


@cache
def _talk(language: str) -> _Talk:
    table = _TABLE.get(language, {})
    bounded = language not in _UNBOUNDED
    before, after = (r"(?<!\w)", r"(?!\w)") if bounded else ("", "")

    def pattern(kind: str, start: str, end: str) -> re.Pattern[str]:
        alternatives = table.get(kind)
        if not alternatives:
            return _NEVER
        return re.compile(f"{start}(?:{alternatives}){end}", re.IGNORECASE)

    before_the_point = rf"(?:{_MARKS}+|\Z)"
    return _Talk(
        remember=pattern("remember", before, after),
        greeting=pattern("greeting", r"\A", before_the_point),
        opening=pattern("opening", r"\A", before_the_point),
        begins=pattern("begins", r"\A", after),
        holds=pattern("holds", before, after),
        ends=pattern("ends", before, r"\Z"),
        moment=pattern("moment", before, after),
        work=pattern("work", before, after),
        editing=pattern("editing", before, ""),
        letter=pattern("letter", before, after),
        standing=pattern("standing", before, after),
    )


def _table() -> dict[str, dict[str, str]]:
    """Return language → kind → what stands behind it, lines put together."""
    found: dict[str, dict[str, str]] = {}
    for language, lines in sections("talk.txt").items():
        kinds, kind = found.setdefault(language, {}), ""
        for line in lines:
            if line.endswith(":") and line[:-1] in _KINDS:
                kind = line[:-1]
            else:
                glue = " " if kind == "common" else ""
                kinds[kind] = kinds.get(kind, "") + line + glue
    return found


_KINDS: Final = frozenset(
    "remember greeting opening begins holds ends moment work editing letter standing common".split()
)
_TABLE: Final = _table()
# Whose talk is known.
LANGUAGES: Final = frozenset(name for name, kinds in _TABLE.items() if "begins" in kinds)
# Words that tell a language, beside the function words of the keyword index.
COMMON: Final = {
    name: frozenset(kinds["common"].split()) for name, kinds in _TABLE.items() if "common" in kinds
}
