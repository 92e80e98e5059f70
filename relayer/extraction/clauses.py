"""An English sentence taken apart into clauses: their words, and which kind of sentence each is.

It does not own what a clause is worth (`english.py`), nor sentences of a text (`conversation.py`).

- Time is linear in the text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import zip_longest
from typing import Final

from relayer.extraction.english_words import (
    ADVERB,
    AUXILIARY,
    CLOSED,
    COURTESY,
    DEICTIC,
    DETERMINER,
    FEELING,
    HEDGES,
    INDEFINITE,
    JUDGEMENT,
    OPENING,
    ORDER,
    PRELUDES,
    PREPOSITION,
    PRONOUN,
    QUESTION,
    SECOND,
    UNREAL,
    Tense,
    verb_of,
)


@dataclass(frozen=True)
class Clause:
    """Words in lower case, contractions written out, without what stands before the point.

    Attributes:
        names: how many of them are written as names are, other than the first of a sentence.
        is_hedged: whether somebody says that it may not be so.
    """

    words: tuple[str, ...]
    names: int
    is_hedged: bool


_END: Final = re.compile(
    r"[,;:!?…—–(]+ | [-–—]+ |\. "
    r"| (?=(?:but|because|cause|so) (?:i|we|he|she|they|it|that|this|my|our|the|there|no)\b)"
    r"| (?=(?:in case|if|unless|although|though)\b)"
    r"| (?=and (?:i|we|he|she|they|my|our)\b)",
    re.IGNORECASE,
)
# Of an order: "from now on I live here" is none.
_FROM_NOW_ON: Final = re.compile(
    r"\b(?:from (?:now|here) on|going forward|henceforth|in future)\b(?:,? |(?=[.!,]|\Z))"
    r"(?!(?:i|we|he|she|they|it|you|there|the|a|an|my|our|his|her|their|this|that|no)\b)",
    re.IGNORECASE,
)
_NOT_EVER: Final = re.compile(r"\b(?:don't|do not) ever\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W_][\w'./:@+#&%-]*")


def clauses(sentence: str) -> Iterator[Clause]:
    """Yield the clauses of `sentence` that have words, as marks and conjunctions part them."""
    is_first = True
    said = " ".join(sentence.replace("’", "'").split())
    for piece in _END.split(_FROM_NOW_ON.sub("always ", _NOT_EVER.sub("never", said))):
        tokens = [token.rstrip(".:/'-") for token in _WORD.findall(piece)]
        names = sum(map(_is_name, tokens[1:] if is_first else tokens))
        is_first = is_first and not tokens
        words, is_hedged = _without_prelude(_expand_contractions(tokens))
        if words:
            yield Clause(tuple(words), names, is_hedged)


def _is_name(token: str) -> bool:
    word = token.lower().partition("'")[0]
    return token[0].isupper() and word != "i" and word not in CLOSED


_CONTRACTIONS: Final = {
    **{"can't": "can not", "cant": "can not", "won't": "will not", "cannot": "can not"},
    **{"im": "i am", "ive": "i have", "gonna": "going to", "wanna": "want to"},
    **{"gotta": "have to", "let's": "lets", "whats": "what is", "thats": "that is"},
    **{"theres": "there is", "hes": "he is", "shes": "she is", "theyre": "they are"},
    **{"youre": "you are", "hows": "how is", "wheres": "where is", "whos": "who is"},
    **{"ain't": "is not", "dunno": "do not know", "lemme": "let me", "gimme": "give me"},
    **{f"{verb}nt": f"{verb} not" for verb in "do does did is are was has have could".split()},
}
_SHORT_FORM: Final = re.compile(r"(\w+?)(?:'(m|re|ve|ll|d)|(n)'t|'(s))")
_LONG_FORM: Final = {"m": "am", "re": "are", "ve": "have", "ll": "will", "d": "would", "n": "not"}
_BEFORE_IS: Final = frozenset(
    "he she it that this there here what who where when why how everything everyone".split()
)
_AFTER_IS: Final = frozenset({"not", "more", "called"}).union(
    DETERMINER, PREPOSITION, ADVERB, JUDGEMENT, FEELING
)
_AFTER_ITS: Final = frozenset({"not"}).union(DETERMINER, ADVERB, PREPOSITION)


def _expand_contractions(tokens: Sequence[str]) -> list[str]:
    """Return `tokens` in lower case, with contractions in two words; "Tom's twin" stays."""
    words = list[str]()
    for token, following in zip_longest(tokens, tokens[1:], fillvalue=""):
        word, after = token.lower(), following.lower()
        short = _SHORT_FORM.fullmatch(word) if "'" in word else None
        if word in _CONTRACTIONS:
            words += _CONTRACTIONS[word].split()
        elif short and short[4]:
            is_verb = short[1] in _BEFORE_IS or after in _AFTER_IS or after.endswith("ing")
            words += [short[1], "is"] if is_verb else [word]
        elif short:
            words += [short[1], _LONG_FORM[short[2] or short[3]]]
        elif word == "its" and after in _AFTER_ITS:
            words += ["it", "is"]
        elif word == "longer" and words[-1:] == ["no"]:
            words[-1] = "not"  # else what is before it would look like a verb with an object
        else:
            words.append(word)
    return words


_PRELUDES: Final = PRELUDES | HEDGES | frozenset((word,) for word in OPENING)
_PRELUDE_WORDS_MAX: Final = max(map(len, _PRELUDES))


def _without_prelude(words: list[str]) -> tuple[list[str], bool]:
    """Return `words` from the point on, and whether what stood before it was a hedge."""
    at, is_hedged, length = 0, False, -1
    while length:
        ahead = tuple(words[at : at + _PRELUDE_WORDS_MAX])
        lengths = range(len(ahead), 0, -1)
        length = next((n for n in lengths if ahead[:n] in _PRELUDES), 0)
        is_hedged = is_hedged or ahead[:length] in HEDGES
        at += length
    return words[at:], is_hedged


# What a clause is


class Form(Enum):
    """The kind of sentence that a clause is."""

    QUESTION = auto()
    ORDER = auto()
    COURTESY = auto()
    UNREAL = auto()
    STATEMENT = auto()


_PLEASE: Final = frozenset({"please", "pls", "plz"})
_EXCLAMATIONS: Final = frozenset(
    {("what", "a"), ("what", "an"), ("such", "a"), ("such", "an"), ("best", "wishes")}
    | {(kind, "regards") for kind in ("best", "kind", "warm")}
)
STANDING: Final = frozenset({"always", "never", "every", "each", "whenever"})
_NEVER_ENDING: Final = frozenset({"always", "never", "whenever"})  # "every" may be of a list
_BEFORE_AN_ORDER: Final = ADVERB | {"then", "next", "first", "instead", "kindly", "quickly"}


def has_statement(sentence: str) -> bool:
    """Tell whether a clause of `sentence` is a statement; in "thanks, go on" none is."""
    return any(
        len(clause.words) > 1 and form_of(clause.words) is Form.STATEMENT
        for clause in clauses(sentence)
    )


def form_of(words: Sequence[str]) -> Form:
    """Return what a clause is; a statement if nothing speaks against it.

    An order that is to be followed always is one: it says how things are done.
    """
    if not _PLEASE.isdisjoint(words):
        return _form_of_request(tuple(word for word in words if word not in _PLEASE))
    first = words[0]
    if first in COURTESY or words[:2] in _EXCLAMATIONS:
        return Form.COURTESY
    if first in UNREAL or first == "if" or words[:2] == ("what", "if"):
        return Form.UNREAL
    if _is_question(words):
        return Form.QUESTION
    if not STANDING.isdisjoint(words) and words[:2] != ("never", "mind"):
        return Form.STATEMENT
    while words[0] in _BEFORE_AN_ORDER and len(words) > 1:
        words = words[1:]
    return Form.ORDER if _is_order(words) else Form.STATEMENT


def _form_of_request(words: Sequence[str]) -> Form:
    """Return what a clause with a "please" is: an order, if not a standing one."""
    is_name = words[:2] == ("call", "me") and len(words) > 2 and not _is_order(words)
    is_standing = is_name or not _NEVER_ENDING.isdisjoint(words)
    return form_of(words) if is_standing else Form.ORDER


_MEASURED: Final = frozenset({"many", "much", "long", "often", "far", "old", "big"})
_ASKED: Final = PRONOUN | SECOND | DEICTIC | INDEFINITE | {"there"}
_AFTER_A_QUESTION_WORD: Final = AUXILIARY | {"about", "if", "of", "else", "come", "to"}
_ALWAYS_ASK: Final = INDEFINITE | {"who", "whose", "why", "which"}
MODAL: Final = frozenset({"will", "would", "shall", "should", "can", "could", "may", "might"})
HAVE: Final = frozenset({"have", "has", "had"})
_CAN_ASK: Final = AUXILIARY - {"being", "been", "be"}


def _is_question(words: Sequence[str]) -> bool:
    first, second = words[0], words[1] if len(words) > 1 else ""
    if first in _ALWAYS_ASK or (first == "how" and second in _MEASURED):
        return True
    if first in QUESTION:
        # "where do I" and "what time is it", but "when I was" and "what I need is"
        is_long = first in {"what", "how"} and second not in _ASKED
        is_asked = is_long and any(word in AUXILIARY for word in words[2:4])
        return second in _AFTER_A_QUESTION_WORD or is_asked
    if first not in _CAN_ASK:
        return False
    if second == "not" and first != "do":
        return True
    if first in MODAL | {"is", "are"} and second and _is_noun(second):
        return True
    is_asked = second in _ASKED or (first not in HAVE and second in DETERMINER)
    return is_asked or first in {"did", "does"}


def _is_noun(word: str) -> bool:
    """Tell whether `word` is of no class that follows a verb without a subject."""
    return verb_of(word).tense is None and word not in CLOSED and not word.endswith(("ed", "ing"))


# By which a verb in front is a noun: "change of plan", "support closes at six".
_OF_A_NOUN: Final = frozenset(
    """
    of is are was were has have had will must can goes begins ends closes opens happens takes lives
    sits stands needs belongs costs meets comes gets moved changed ended closed means requires
    """.split()
)
_OBJECT: Final = DETERMINER | {"it", "me", "us", "them", "him", "everything", "something"}
_HAD_AT_ONCE: Final = JUDGEMENT | {"look", "fun", "rest", "break", "seat"}
_WHEN_TO_CALL: Final = frozenset({"back", "later", "tomorrow", "today"})
_NOT_OF_AN_ORDER: Final = ("s", "ed", "ing", "ly", "er", "'s")


def _is_order(words: Sequence[str]) -> bool:
    first, second = words[0], words[1] if len(words) > 1 else ""
    if first in {"do", "be"}:
        return True
    if first == "have" and second in {"a", "an", "fun"} and len(words) > 2:
        return words[2] in _HAD_AT_ONCE
    if (first, second) == ("call", "me"):
        return len(words) < 3 or words[2] in CLOSED or words[2] in _WHEN_TO_CALL
    verb, tense = verb_of(first)
    if tense is Tense.BASE and verb in ORDER:
        return _OF_A_NOUN.isdisjoint(words[1:3])
    # Any other word that looks like a verb before its object
    is_open = first.isalpha() and first not in CLOSED and not first.endswith(_NOT_OF_AN_ORDER)
    return is_open and tense in {None, Tense.BASE} and second in _OBJECT
