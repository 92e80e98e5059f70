"""Weights of English sentences: how much each states of its speaker's world, by how it is built.

It does not own other languages (`talk.py`), clauses (`clauses.py`), classes of words
(`english_words.py`), nor the cues that make a sentence important (`cues.py`).

- A clause counts by its subject and its verb: "the ferry takes cash" states something; "take the
  ferry", "does it take cash" and "taking the ferry now" do not. What places it in somebody's world,
  such as names, numbers, days and kin, counts for it; what ties it to the moment, to the one it is
  said to or to the work at hand counts against it.
- Closed classes and verbs decide. Of nouns there are kin, and those of work on a screen, because
  nearly all talk with an agent is about it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from relayer.extraction.clauses import HAVE, MODAL, STANDING, Clause, Form, clauses, form_of
from relayer.extraction.english_words import (
    ADVERB,
    ANCHOR,
    AUXILIARY,
    CLOSED,
    CONJUNCTION,
    DEICTIC,
    DETERMINER,
    DOUBT,
    EDITING,
    EVENT,
    FEELING,
    GAIN,
    HEALTH,
    JUDGEMENT,
    KIN,
    LASTING,
    MENTAL,
    MOMENT,
    ORDER,
    PREPOSITION,
    PRONOUN,
    QUESTION,
    SAME_IN_THE_PAST,
    SECOND,
    SEEM,
    TEXT,
    WORK,
    Tense,
    verb_of,
)


@dataclass(frozen=True)
class Weight:
    """The weight of a sentence: `score` is above zero if it states anything.

    `is_hedged` if it is no certainty.

    Attributes:
        anchors: signs that place it in somebody's world, in the clause that states most.
    """

    score: int
    is_hedged: bool = False
    anchors: int = 0


NOTHING: Final = Weight(score=0)
_ENTRY: Final = Weight(score=1, anchors=1)


def weigh(sentence: str, *, refers_back: bool = False) -> Weight:
    """Return what `sentence` states, by the clause that states most.

    With `refers_back`, what its "it" or "that" stands for has been said just before.
    """
    said = list(clauses(sentence))
    is_contrast = len(said) > 1 and any("not" in clause.words for clause in said)
    best, bonus = NOTHING, 0
    for number, clause in enumerate(said):
        form = form_of(clause.words)
        if number == 0 and form is Form.UNREAL and not _says_for_whom(clause.words):
            return NOTHING
        if form is Form.STATEMENT:
            is_corrected = is_contrast and _tells_which(clause)
            weight = _weight(clause, bonus + is_corrected, refers_back=refers_back and number == 0)
            best = max(best, weight, key=lambda found: found.score)
        elif form in {Form.ORDER, Form.QUESTION}:
            bonus = -1  # what follows mostly explains it
    return best if best.score or not _is_entry(sentence, said) else _ENTRY


def _says_for_whom(words: Sequence[str]) -> bool:
    """Tell whether a condition only says when something is of use: "if you need me"."""
    return words[:2] == ("if", "you") and not {"need", "want", "ask", "must"}.isdisjoint(words[2:3])


_KEY: Final = re.compile(r"[^\W\d_][^:,.!?\n]{0,30}: +(?=[^\s])")
_EXACT: Final = re.compile(r"[\d@/]|\w\.\w")  # a number, an address, the name of a file
_ENTRY_WORDS_MAX: Final = 8


def _is_entry(sentence: str, said: Sequence[Clause]) -> bool:
    """Tell whether a sentence is an entry such as "Editor: Helix", with a name or a number."""
    key = _KEY.match(sentence)
    if key is None or len(said) < 2 or not WORK.isdisjoint(said[0].words):
        return False
    value = [word for clause in said[1:] for word in clause.words]
    is_plain = all(form_of(clause.words) is Form.STATEMENT for clause in said)
    is_named = any(clause.names for clause in said[1:]) or any(map(_EXACT.search, value))
    return is_plain and is_named and len(value) <= _ENTRY_WORDS_MAX


def is_of_the_moment(sentence: str) -> bool:
    """Tell whether `sentence` says that it soon holds no longer: "in ten minutes"."""
    return _OF_THE_MOMENT.search(sentence) is not None


def introduces_text(words: str, *, with_colon: bool) -> bool:
    """Tell whether `words` ask for work on a text that follows: "proofread this mail".

    `with_colon`: one stands behind them, so that they need not say that anything follows.
    """
    if not _EDITS.search(words):  # as in nearly every sentence
        return False
    return any(_asks_for_work(clause.words, with_colon) for clause in clauses(words))


def _asks_for_work(words: Sequence[str], with_colon: bool) -> bool:
    is_asked = form_of(words) in {Form.ORDER, Form.QUESTION}
    names_text = not TEXT.isdisjoint(words)
    if not any(verb_of(word).base in EDITING for word in words):
        is_named = names_text and not _WORKS.isdisjoint(words)
        is_result = not _RESULTS.isdisjoint(words) and not _POINTS.isdisjoint(words)
        return is_asked and with_colon and (is_named or is_result)
    if not (names_text or not _POINTS.isdisjoint(words)):
        is_noun = len(words) == 1 and words[0] in _NOUNS
        return is_asked and with_colon and not is_noun
    return is_asked or not _WANTS.isdisjoint(words)


_WORKS: Final = frozenset(
    "analyse analyze answer check convert explain make read reply respond review revise".split()
)
_RESULTS: Final = frozenset({"translation", "summary", "paraphrase"})
_EDITS: Final = re.compile(
    "|".join(verb.rstrip("ey") for verb in sorted(EDITING | _WORKS | _RESULTS)), re.IGNORECASE
)
_POINTS: Final = frozenset({"this", "these"})
_WANTS: Final = frozenset({"need", "want", "like", "help"})
_NOUNS: Final = frozenset({"correct", "edit", "fix", "polish"})
_FIGURE: Final = re.compile(r"\d")


def _tells_which(clause: Clause) -> bool:
    """Tell whether a clause is a half of "it is not this, it is that", with a name or a number."""
    is_certain = bool(clause.names or _FIGURE.search(clause.words[-1]))
    return clause.words[0] in DEICTIC and is_certain


# What a clause weighs

_TELLING: Final = frozenset({"always", "never", "rather"})  # adverbs that a score looks at
_DEGREES: Final = frozenset({("a", "bit"), ("a", "little"), ("kind", "of"), ("sort", "of")})


def _weight(clause: Clause, bonus: int, *, refers_back: bool) -> Weight:
    words = _without_degrees(clause.words) or clause.words
    if _says_nothing(words):
        return NOTHING
    anchors = _anchors(words) + min(clause.names, 2)
    score = _base(words, refers_back=refers_back) + anchors + bonus - _malus(words, clause.words)
    return Weight(max(score, 0), clause.is_hedged, anchors)


def _without_degrees(words: Sequence[str]) -> tuple[str, ...]:
    """Return `words` without what only says how much or how surely."""
    triples = zip(("", *words), words, (*words[1:], ""), strict=False)
    return tuple(
        word
        for before, word, after in triples
        if not ((before, word) in _DEGREES or (word, after) in _DEGREES)
        and (word not in ADVERB or word in _TELLING)
    )


_NAMES_NOTHING: Final = CLOSED - ANCHOR - JUDGEMENT
_LIKING: Final = frozenset({"like", "love", "hate", "prefer"})
_ONE_OF_SEVERAL: Final = frozenset({"one", "ones", "version", "option"})
_TAKES_AN_OBJECT: Final = MENTAL | _LIKING | {"do", "get", "want", "need"}


def _says_nothing(words: Sequence[str]) -> bool:
    """Tell whether no word is left that names anything, as in "I like it" or "we did that"."""
    return len(words) < 2 or all(
        word in _NAMES_NOTHING
        or verb_of(word).base in _TAKES_AN_OBJECT
        or (len(word) == 1 and not word.isdigit())
        for word in words
    )


_POSSESSIVE: Final = frozenset({"my", "our", "his", "her", "their"})
_ANCHORS_MAX: Final = 3


def _anchors(words: Sequence[str]) -> int:
    """Return how many words place a clause in somebody's world, at most `_ANCHORS_MAX`."""
    found, is_work = 0, _is_work(words)
    for before, word, after in zip(("", *words), words, (*words[1:], ""), strict=False):
        if word in _POSSESSIVE:
            found += after not in WORK
        elif word == "for":
            found += after in {"me", "us"}
        elif _FIGURE.search(word):
            found += before not in WORK and after not in WORK
        elif word in ANCHOR:
            found += 1
        elif not is_work:
            verb, tense = verb_of(word)
            found += tense is Tense.PAST and verb in EVENT
    return min(found, _ANCHORS_MAX)


_WHICH: Final = frozenset("first second third last other next previous new old latest".split())
# What many other things are called, with a word before it: a door code, a guest list.
_OF_MANY_KINDS: Final = frozenset(
    "code list lists page title file files text form table question questions color colour".split()
)


def _is_work(words: Sequence[str]) -> bool:
    """Tell whether a clause is about work at hand, or one of several things: "the second one"."""
    return any(
        _is_work_noun(before, word) or (before in _WHICH and word in {"one", "ones"})
        for before, word in pairwise(("", *words))
    )


def _is_work_noun(before: str, word: str) -> bool:
    if word in _OF_MANY_KINDS and before not in CLOSED and before not in WORK and before:
        return False
    return word in WORK


_DECISIVE: Final = 9  # whatever else a clause says
_MOMENT_WEIGHTS: Final = dict.fromkeys(MOMENT, 1) | {"again": 2, "yet": 2}
_OF_THE_MOMENT: Final = re.compile(
    r"\b(?:about to|this (?:morning|afternoon|evening|second|minute)|wish me"
    r"|in (?:an?|\d+|one|two|five|ten|a few) (?:sec|second|min|minute|bit|moment|hour)s?"
    r"|for (?:hours|ages|an hour|a (?:second|minute|moment|bit)|\d+ minutes)"
    r"|running (?:out|late|low|behind))\b",
    re.IGNORECASE,
)
_CERTAIN: Final = frozenset({"the", "this", "that", "these", "those", "both", "all"})


def _malus(words: Sequence[str], spoken: Sequence[str]) -> int:
    """Return what ties a clause to the moment, to the work at hand or to the one it is said to."""
    is_for_ever = "never" in words
    of_now = [word for word in spoken if not (is_for_ever and word == "again")]
    malus = min(2, sum(_MOMENT_WEIGHTS.get(word, 0) for word in of_now))
    is_vow = is_for_ever and words[0] in PRONOUN  # "I would never eat meat"
    doubts = DOUBT.intersection(words) - ({"would"} if is_vow else set())
    if doubts and "rather" not in words:
        malus += _DECISIVE
    is_said_to = not SECOND.isdisjoint(words) and STANDING.isdisjoint(words)
    if is_said_to and not _tells_how_to_reach(words):
        malus += _DECISIVE
    malus += 2 * bool(_OF_THE_MOMENT.search(" ".join(spoken)))
    malus += "too" in spoken[:-1] or ("a", "bit") in pairwise(spoken)
    if _is_work(words):
        is_there = words[0] == "there"  # "there are three tests left"
        malus += _DECISIVE if is_there else 2 if _is_subject_work(words) else 1
    return malus


def _is_subject_work(words: Sequence[str]) -> bool:
    """Tell whether a clause begins with a certain thing that is worked on: "the second test"."""
    words = words[1:] if words[0] in CONJUNCTION and len(words) > 1 else words
    return words[0] in _CERTAIN and _is_work(words[:4])


# What a subject and its verb are worth

_BE: Final = frozenset({"am", "is", "are", "was", "were", "be", "been", "being"})


def _base(words: Sequence[str], *, refers_back: bool) -> int:
    """Return 1 where a subject and a verb are there and tell of what lasts; less otherwise."""
    first = words[0]
    if first in SECOND:
        return 0 if _tells_how_to_reach(words) else -2
    if first in {"i", "we"} or first in {"always", "never"}:
        return _of_oneself(words[1:])
    if first == "there" or words[:2] == ("call", "me"):
        return 1
    if first in DEICTIC:
        progress = _progress(words[2]) if words[1] in _BE and len(words) > 2 else 0
        return 1 - progress if refers_back else -1 - progress
    if first in AUXILIARY:  # "have two kids", as people write of themselves
        return _of_oneself(words)
    return _of_others(words)


_REACHES: Final = frozenset("reach contact call text find phone ring email mail message".split())


def _tells_how_to_reach(words: Sequence[str]) -> bool:
    """Tell whether a clause is as "you can reach me on Fridays"."""
    if len(words) < 6 or words[0] != "you" or words[1] not in MODAL or words[3] != "me":
        return False
    is_named = any(word not in _NAMES_NOTHING for word in words[5:])
    return words[2] in _REACHES and words[4] in PREPOSITION and is_named


_LASTS: Final = frozenset({("used", "to"), ("would", "rather"), ("had", "rather")})
_THINGS: Final = frozenset({"it", "this", "that", "them", "these", "those", "one"})
_ASKED_FOR: Final = frozenset("help advice feedback ideas suggestions assistance".split())
_BESIDE_A_VERB: Final = frozenset({"not", "always", "never"})
_OF_THE_TALK: Final = DEICTIC | SECOND
_KNOWN_ABOUT: Final = DEICTIC | SECOND | QUESTION | JUDGEMENT


def _of_oneself(rest: Sequence[str]) -> int:
    """Return what the predicate of "I" or "we" is worth."""
    verbs = [word for word in rest if word not in _BESIDE_A_VERB]
    if len(verbs) > 1 and verbs[0] in {"do", "did"} and verb_of(verbs[1]).base:
        verbs = verbs[1:]
    if not verbs:
        return -2
    verb, tense = verb_of(verbs[0])
    following = verbs[1] if len(verbs) > 1 else ""
    if (verbs[0], following) in _LASTS:
        return 1
    if verbs[0] in _BE:
        is_over = verbs[0] in {"was", "were"} and following in PREPOSITION  # "was on the phone"
        return 0 if is_over else _state(verbs[1:])
    if verbs[0] in MODAL:
        return _refusal(rest, verbs) or _plan(verbs[0], following)
    if following in _THINGS or (verb in MENTAL and verb != "remember"):
        return -2
    if verb in {"need", "want"} or (verb == "have" and following == "to"):
        return -2 if following in _ASKED_FOR else -_is_of_work("".join(verbs[2:3]))
    if verb == "have" and following:
        return _experience(verbs[1:]) if tense is Tense.BASE else 0
    if verb == "keep" and _progress(following):
        return -1
    if verb == "know" and (not following or following in _KNOWN_ABOUT):
        return -2
    if verb in _LIKING and (following in _OF_THE_TALK or verb == "prefer" or _is_work(verbs[1:4])):
        return _of_liking(verb, following, verbs)
    return _of_the_past(verb, verbs[1:]) if tense is Tense.PAST else 1


def _of_the_past(verb: str, rest: Sequence[str]) -> int:
    """Return what it is worth that somebody did something."""
    following = rest[0] if rest else ""
    is_participle = verb_of(following).tense is Tense.PAST or following.endswith("ed")
    if verb in _GAINS and _names_gain(rest):
        return 1
    became = verb == "get" and is_participle  # "got married"
    return 0 if became or verb in EVENT else 1 if verb in LASTING - ORDER else -1


_GAINS: Final = frozenset({"find", "get"})
_GAIN_WORDS_MAX: Final = 5


def _names_gain(words: Sequence[str]) -> bool:
    """Tell whether `words` begin with what changes a life: "a new job"."""
    is_ones_own = bool(words) and words[0] in {"a", "an", "my", "our", "two"}
    pairs = zip(words[1:_GAIN_WORDS_MAX], (*words[2:], "at"), strict=False)
    ends = CLOSED | _WHICH  # else it only says what kind another thing is: "a house style guide"
    return is_ones_own and any(word in GAIN and after in ends for word, after in pairs)


def _refusal(rest: Sequence[str], verbs: Sequence[str]) -> int:
    """Return 1 for what somebody will, would or should never do: "would never eat meat"."""
    is_refused = "never" in rest or (verbs[0] in {"will", "should"} and "not" in rest)
    if not is_refused or len(verbs) < 3 or verbs[1] in AUXILIARY or verbs[2] in _THINGS:
        return 0
    verb = verb_of(verbs[1]).base
    is_named = any(word not in _NAMES_NOTHING for word in verbs[2:])
    return int(bool(verb) and not _is_of_work(verbs[1]) and is_named)


def _of_liking(verb: str, following: str, verbs: Sequence[str]) -> int:
    """Return what liking something is worth that is of the talk, of work, or preferred."""
    is_of_the_talk = following in _OF_THE_TALK or not _ONE_OF_SEVERAL.isdisjoint(verbs)
    return 2 if verb == "prefer" and not is_of_the_talk else -2


def _state(rest: Sequence[str]) -> int:
    """Return what follows "I am" or "we are" is worth."""
    if rest[:1] == ["back"] and rest[1:2] and (rest[1] in {"in", "with"} or "since" in rest):
        return 0  # "back in Berlin"
    if not rest or (rest[0] in FEELING and rest[:2] != ["afraid", "of"]):
        return -2
    if rest[0] in JUDGEMENT and len(rest) == 1:
        return -2
    if rest[:2] == ["looking", "for"] and rest[2:3] and rest[2] in {"a", "an"}:
        return 1
    if rest[:2] == ["going", "to"]:
        return -_is_of_work("".join(rest[2:3]))
    if rest[0] == "getting" and (_names_gain(rest[1:]) or _is_of_life("".join(rest[1:2]))):
        return 1
    if rest[0] in {"getting", "about", "off"}:
        return -1
    return 1 - _progress(rest[0])


def _is_of_life(word: str) -> bool:
    """Tell whether `word` is what one becomes once: "getting married"."""
    verb, tense = verb_of(word)
    is_event = tense is Tense.PAST and verb in EVENT and verb not in ORDER
    return word == "engaged" or (is_event and word not in FEELING)


def _progress(word: str) -> int:
    """Return what a form in -ing takes off: most tell of the moment."""
    verb, tense = verb_of(word)
    if not verb:
        return int(word.endswith("ing") and len(word) > 5)
    if tense is not Tense.PROGRESS or verb in LASTING:
        return 0
    return 2 if verb in ORDER or verb in MENTAL or verb in SEEM else 1


def _plan(modal: str, verb: str) -> int:
    """Return what "will", "can" and the like are worth, with the verb behind."""
    if modal == "can":
        return 1 - _is_of_work(verb)
    return -_is_of_work(verb) if modal == "will" else -2


def _experience(words: Sequence[str]) -> int:
    """Return what "have" is worth with the words behind it: "have two", "have been"."""
    verb, tense = verb_of(words[0])
    if tense is not Tense.PAST or words[0] in {"got", "had"}:
        return 1
    is_gain = verb in _GAINS and _names_gain(words[1:])
    return 1 if is_gain else -_is_of_work(words[0])


def _is_of_work(word: str) -> bool:
    """Tell whether `word` is a verb of what is done with an assistant."""
    verb = verb_of(word).base
    return verb in ORDER or verb in MENTAL


_DO: Final = frozenset({"do", "does", "did"})
_SPEECH: Final = frozenset({"say", "tell", "ask", "answer", "reply"})
_MENTAL_OF_OTHERS: Final = MENTAL | {"know"}
_KNOWN_BY_OTHERS: Final = DEICTIC | QUESTION
_HOW_IT_IS: Final = JUDGEMENT | FEELING


def _of_others(words: Sequence[str]) -> int:
    """Return what a clause about others or without a subject is worth."""
    at = _verb_at(words)
    if at is None or words[0] == "what":
        return _fragment(words)
    rest = [word for word in words[at + 1 :] if word != "not"]
    if words[at] in _BE | HAVE and rest:
        ends_so = len(rest) <= 2 and rest[-1] in _HOW_IT_IS
        return 1 - ends_so - min(1, _progress(rest[0]))
    verb, tense = verb_of(words[at])
    if words[at] in _DO and rest and verb_of(rest[0]).base:
        verb, tense = verb_of(rest.pop(0))
    is_verdict = bool(rest) and len(rest) <= 2 and (
        rest[-1] in JUDGEMENT or (verb in SEEM and rest[0] in JUDGEMENT)
    )  # fmt: skip
    does_not = words[0] in _CERTAIN and "not" in words and not rest  # "the keys do not match"
    if (
        is_verdict
        or does_not
        or (verb in _MENTAL_OF_OTHERS and (not rest or rest[0] in _KNOWN_BY_OTHERS))
    ):
        return 0
    if tense is Tense.PAST and words[0] in PRONOUN:
        return int(verb in LASTING or verb in EVENT)
    return int(not (tense is Tense.PAST and verb in _SPEECH))


_FRAGMENT_WORDS_MIN: Final = 3
_OF_A_PERSON: Final = {
    "live": frozenset({"in", "near", "with"}),
    "work": frozenset({"at", "as"}),
    "study": frozenset({"at", "in"}),
}


def _fragment(words: Sequence[str]) -> int:
    """Return what a clause without a subject or without a verb is worth."""
    if len(words) < _FRAGMENT_WORDS_MIN and HEALTH.isdisjoint(words):
        return 0 if _counts_kin(words) else -2
    verb, tense = verb_of(words[0])
    if tense is Tense.PRESENT and words[1] in _OF_A_PERSON.get(verb, ()):
        return 0  # "works at Bosch", as people write of themselves
    is_of_the_moment = {
        Tense.PAST: verb not in EVENT and _is_of_work(words[0]),
        Tense.PROGRESS: verb not in LASTING,
        Tense.PRESENT: True,  # "works here": of the thing at hand
    }
    is_verdict = words[0] in _HOW_IT_IS or verb in SEEM or verb == "make" or words[0] == "not"
    return -(is_verdict or (tense is not None and is_of_the_moment.get(tense, False)))


def _counts_kin(words: Sequence[str]) -> bool:
    """Tell whether `words` are as "two kids"."""
    return (words[0].isdigit() or words[0] in _COUNTS) and words[-1] in KIN


_COUNTS: Final = frozenset("no one two three four five six seven eight nine ten".split())


_PLURALS: Final = frozenset("they people children everybody folks police men women".split())
_BEFORE_A_NOUN: Final = DETERMINER | PREPOSITION


def _verb_at(words: Sequence[str]) -> int | None:
    """Return where the first finite verb of a clause stands, if one does.

    The first word is none: it is a subject in the form of a verb, as "logs", or has no subject.
    """
    for at, word in enumerate(words):
        if word in AUXILIARY:
            return at
        if at and _is_finite(words, at):
            return at
    return None


def _is_finite(words: Sequence[str], at: int) -> bool:
    word, before = words[at], words[at - 1]
    verb, tense = verb_of(word)
    if tense in {Tense.PRESENT, Tense.PAST} or word in SAME_IN_THE_PAST:
        return before not in _BEFORE_A_NOUN
    if tense is Tense.BASE and not (word == "like" and verb_of(before).base):
        is_plural = before in _PLURALS or (before.endswith("s") and not before.endswith("ss"))
        return is_plural or "and" in words[1:at]
    # A word that is not in the list, where only a verb can stand
    after = words[at + 1] if at + 1 < len(words) else ""
    looks_so = not verb and word.endswith(("ed", "s")) and CLOSED.isdisjoint((word, before))
    return looks_so and after in _BEFORE_A_NOUN
