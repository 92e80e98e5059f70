"""Classes of English words and the forms of English verbs.

It does not own what a class counts for (`english.py`), nor the words themselves, which are in
`english_words.txt`.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from relayer.extraction.tables import sections


class Tense(Enum):
    """The form in which a verb stands."""

    BASE = auto()
    PRESENT = auto()  # of the third person
    PAST = auto()
    PROGRESS = auto()


class Verb(NamedTuple):
    """A verb in its base form, and the form it was found in; neither for another word."""

    base: str = ""
    tense: Tense | None = None


_SECTIONS: Final = {name: " ".join(lines) for name, lines in sections("english_words.txt").items()}


def _words(name: str) -> frozenset[str]:
    return frozenset(_SECTIONS[name].split())


def _phrases(name: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(phrase.split()) for phrase in _SECTIONS[name].split(" | "))


ORDER: Final = _words("order")
EDITING: Final = _words("editing")
TEXT: Final = _words("text")
MENTAL: Final = _words("mental")
SEEM: Final = _words("seem")
LASTING: Final = _words("lasting")
EVENT: Final = _words("event")
GAIN: Final = _words("gain")
AUXILIARY: Final = _words("auxiliary")
ADVERB: Final = _words("adverb")
OPENING: Final = _words("opening")
COURTESY: Final = _words("courtesy")
UNREAL: Final = _words("unreal")
DOUBT: Final = _words("doubt")
SECOND: Final = _words("second")
DEICTIC: Final = _words("deictic")
INDEFINITE: Final = _words("indefinite")
FEELING: Final = _words("feeling")
JUDGEMENT: Final = _words("judgement")
MOMENT: Final = _words("moment")
WORK: Final = _words("work")
HEALTH: Final = _words("health")
KIN: Final = _words("kin")
ANCHOR: Final = _words("anchor") | KIN | HEALTH
DETERMINER: Final = _words("determiner")
PREPOSITION: Final = _words("preposition")
CONJUNCTION: Final = _words("conjunction")
QUESTION: Final = _words("question")
PRONOUN: Final = _words("pronoun")
PRELUDES: Final = _phrases("prelude")
HEDGES: Final = _phrases("hedge")
CLOSED: Final = frozenset({"not"}).union(
    *(AUXILIARY, ADVERB, OPENING, COURTESY, UNREAL, SECOND, DEICTIC, INDEFINITE, DETERMINER),
    *(PREPOSITION, CONJUNCTION, QUESTION, PRONOUN, JUDGEMENT, ANCHOR),
)

_IRREGULAR: Final = {verb: past for verb, *past in _phrases("irregular")}
# "put" and "set" are the past as well.
SAME_IN_THE_PAST: Final = frozenset(verb for verb, past in _IRREGULAR.items() if verb in past)
_DOUBLES_ITS_END: Final = re.compile(r"[^aeiou]*[aeiou][bdgklmnprt]|\w+(?:mit|fer|cel|vel|rol|cur)")


def verb_of(word: str) -> Verb:
    """Return the verb that `word` is a form of."""
    return _VERBS.get(word, _NO_VERB)


_NO_VERB: Final = Verb()


def _forms(verb: str) -> Iterator[tuple[str, Tense]]:
    """Yield the forms of `verb`; some are too many, none of those is another word."""
    yield verb, Tense.BASE
    stem = verb.removesuffix("e")
    if re.search(r"[^aeiou]y$", verb):
        yield verb[:-1] + "ies", Tense.PRESENT
        past, stem = [verb[:-1] + "ied"], verb
    else:
        yield verb + ("es" if re.search(r"(?:s|x|z|ch|sh|o)$", verb) else "s"), Tense.PRESENT
        past = [stem + "ed"]
    yield (verb if verb.endswith("ee") else stem) + "ing", Tense.PROGRESS
    if _DOUBLES_ITS_END.fullmatch(verb):
        past.append(f"{verb}{verb[-1]}ed")
        yield f"{verb}{verb[-1]}ing", Tense.PROGRESS
    if verb.endswith("ie"):
        yield verb[:-2] + "ying", Tense.PROGRESS
    yield from ((form, Tense.PAST) for form in _IRREGULAR.get(verb, past))


def _verbs() -> dict[str, Verb]:
    """Return form → verb; "put" counts as the base form."""
    found: dict[str, Verb] = {}
    classes = (ORDER, EDITING, MENTAL, SEEM, LASTING, EVENT, _words("other"), _IRREGULAR)
    for verb in sorted({*()}.union(*classes)):
        for form, tense in _forms(verb):
            found.setdefault(form, Verb(verb, tense))
    return found


_VERBS: Final = _verbs()
