"""The verdict on a sentence: worth remembering or not, by its cues, who says it and how.

It does not own the cues (`cues.py`), splitting a conversation (`conversation.py`), nor choosing
the best (`rules.py`).

- Pure: the same sentence from the same kind of author always gets the same verdict.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

from relayer.extraction.cues import CUES, GENERAL, SHAPES, Cue, phrases
from relayer.extraction.english import is_of_the_moment, weigh
from relayer.extraction.language import (
    CUED,
    has_other_script,
    has_words,
    languages_of,
    width,
)
from relayer.extraction.talk import LANGUAGES, asks_to_remember, is_talk
from relayer.words.languages import ENGLISH

STATED: Final = 1  # the score of a statement without a cue
WORTH_KEEPING: Final = 2  # one plain statement of a decision, a preference, a rule, an identifier
_ASSISTANT_MALUS: Final = 1  # what an assistant says was often said to it before
_HEDGE_MALUS: Final = 1
_SHORT_MALUS: Final = 2
_SHORT_WORDS: Final = 4


@dataclass(frozen=True)
class Verdict:
    """The sum over all cues of a sentence, and what the strongest one says about it."""

    score: int
    kind: str
    importance: str
    confidence: str
    is_settled: bool = False  # by a cue that is kept however the sentence is built


_TO_BE_REMEMBERED: Final = Verdict(4, "fact", "vital", "high")  # as the cue for it in English
_HEDGE: Final = phrases(r"""
    maybe|perhaps|probably|possibly|might|not (?:so |really |entirely )?(?:sure|certain)|seems?
    I (?:guess|suppose|think|believe|assume|suspect)|(?:could|may) be (?:that|\w+ing)|could be
    as far as I know|chances are|a chance that|presumably|apparently
    vielleicht|vermutlich|wahrscheinlich|eventuell|glaube ich|ich glaube|könnten?|wohl|wäre
    möglicherweise|womöglich|kann(?: gut)? sein|soweit ich weiß|ich vermute|anscheinend|angeblich
    """)

# What a sentence may begin with before it comes to the point.
_OPENING: Final = (
    r"\A(?:(?:ok|okay|sure|great|perfect|thanks|thank you|yes|no|well|and|so|right|noted|got it"
    r"|understood|hi|hey|hello|please|gerne|klar|ja|nein|danke|bitte|alles klar|verstanden)"
    r"[,.!:–-]* )*"
)
# What an assistant opens with when it offers or reports work; of people it says nothing.
_WORK: Final = phrases(
    r"""
    (?:I|we) (?:did|found|just)|(?:I|we)'(?:ve|d)|I have(?! (?:to|an?|the)(?!\w))
    ich (?:habe|hatte)
    """,
    start=_OPENING,
)
# Talk that only holds for the moment, whoever says it.
_PASSING: Final = phrases(
    r"""
    (?:I|we) (?:can|could|will|would|am going to)(?!'| (?:go with|use|not|never|always))
    (?:I|we)'ll|(?:I am|I'm) (?:so |very |really |just )?(?:happy|glad|sorry|tired|sure|back|done)
    let me|let's|feel free|i know(?: right)?|never mind|go on|thinking of
    happy to|glad to|here(?:'s| is| are)|hope you|lol|haha|list (?:all|every|the|my|our)
    (?:can|could|would|will|shall|should|do|does|did|is|are) (?:I|you|u|we|it|this|that|there|the)
    (?:what|how|why|who|where|which|when) (?:I|you|we|is|are|was|do|does|did|can|would)
    (?:what|how|which|whose)(?: \w+){1,2} (?:should|would|can|could|do|does|did|will) (?:I|you|u|we)
    (?:good|nice|great|well|happy) (?:catch|one|work|job|idea|question|point|day|morning|evening)
    (?:run|show|fix|open|write(?! to)|create|generate|check|look|give|tell|explain|find|search)(?!-)
    (?:summari[sz]e|compare|read|add|remove|delete|update|translate|do it|go ahead|wait)(?!-)
    (?:all |the )?(?:\d+ )?(?:tests?|build) (?:pass|fail)|that (?:page|was|is|sounds|helps|looks)
    ich (?:kann|könnte|werde)|soll(?:en)? (?:ich|wir)|(?:kann|könnt|möcht|würd|magst)e?st du
    was|wie|warum|wer|wo|welche[rs]?|lass(?: uns| mich)|guten (?:morgen|tag|abend)
    hier (?:ist|sind)|mache? (?:ich|das|es)|zeig|schau|erklär|schreib(?:e)? (?:mir|eine?n?)
    """,
    start=_OPENING,
)
# What an assistant says when somebody told it something: the fact is in the other's message.
_PROMISE: Final = phrases(r"""
    (?:I'll|I will|will|shall) (?:\w+ )?(?:remember|note|make a note|keep (?:that|this|it) in mind)
    (?:I|I have|I've) (?:remembered|noted)|ich (?:merke mir|werde mir)
    """)
# What is not said of the world as it is.
_UNREAL: Final = phrases(r"""
    (?:I|we|he|she|they|it|that|you)(?:'d| would)(?! (?:like|love|prefer|rather|never|always))
    if (?:I|we) (?:were|had|could|won)|if (?!you)[^.;]{1,80} (?:would|could|might)
    what if|hypothetically|pretend|imagine|role-?play|just kidding|jk|once upon a time
    nur spaß|es war einmal|stell dir vor|angenommen
    (?:another|bedtime|tell \w+ a|make up a|write (?:me |us )?a) (?:story|tale|joke)
    (?:könnte|würde|hätte|wäre)(?:n|st)?(?! (?:gern|lieber))
    """)
# What a sentence says nothing of by itself: "I like it", "I prefer A".
_NAMELESS: Final = phrases(
    r"""
    \w+ \w+ (?:it|that|this|these|those|them|es|das|dies|die|sie)
    \w+ (?:prefer|like|love|want|mag|will|bevorzuge) \w
    """,
    start=r"\A",
)
# What even a passing remark is kept for.
_LASTING: Final = frozenset({"remember", "health", "change", "rule", "decide", "done", "prefer"})
# What is kept however its sentence is built.
_SETTLED: Final = frozenset(
    {"decide", "done", "deadline", *(shape.name for shape in SHAPES if shape.weight > 1)}
)
# What was settled is in another message: "let's keep that".
_POINTS: Final = re.compile(r"\b(?:it|that|this|these|those|them|one)\W*\Z", re.IGNORECASE)
_STATED_WORDS_MIN: Final = 2  # a word alone is none
_UNKNOWN_WORDS_MIN: Final = 3  # in a language whose talk is not known


def judge(sentence: str, *, by_assistant: bool = False, by_user: bool = False) -> Verdict | None:
    """Return what the cues say of `sentence`, or None for one that is not worth keeping.

    Where nothing tells who wrote it, speaking of one's own things makes it a person's.
    """
    if is_question(sentence) or (by_assistant and _PROMISE.search(sentence)):
        return None
    if (nameless := _NAMELESS.match(sentence)) and not sentence[nameless.end() :].strip(" .!"):
        return None
    hits = [cue for cue in (*CUES, *SHAPES) if cue.pattern.search(sentence)]
    lasting = any(cue.name in _LASTING for cue in hits)
    if not lasting and (_PASSING.match(sentence) or (not by_user and _WORK.match(sentence))):
        return None
    if _UNREAL.search(sentence) and not any(cue.name == "remember" for cue in hits):
        return None
    if not by_assistant:
        general = [cue for cue in GENERAL if cue.pattern.search(sentence)]
        own = by_user or any(cue.name in {"self", "whose"} for cue in general)
        hits += general if own else []
    return _verdict(sentence, hits, by_assistant=by_assistant)


def _verdict(sentence: str, hits: list[Cue], *, by_assistant: bool) -> Verdict | None:
    hedged = bool(_HEDGE.search(sentence))
    strongest = max(hits, key=lambda cue: cue.weight, default=None)
    score = sum(cue.weight for cue in hits)
    score -= _ASSISTANT_MALUS * by_assistant + _HEDGE_MALUS * hedged
    if all(cue.weight < 3 for cue in hits) and len(sentence.split()) < _SHORT_WORDS:
        score -= _SHORT_MALUS
    if strongest is None or score < WORTH_KEEPING:
        return None
    return Verdict(
        score=score,
        kind=strongest.kind,
        importance=_importance(hits, score),
        confidence="low" if hedged else "medium" if by_assistant or score < 3 else "high",
        is_settled=any(cue.vital or cue.name in _SETTLED for cue in hits),
    )


def _importance(hits: list[Cue], score: int) -> str:
    if any(cue.vital for cue in hits):
        return "vital"
    return "standard" if score > WORTH_KEEPING or hits[0].weight >= WORTH_KEEPING else "trivial"


def judge_user(sentence: str, *, refers_back: bool = False) -> Verdict | None:
    """Return a verdict on what a user says: a statement counts whatever it is about.

    Cues say how much it counts. Alone they keep only what was asked to be remembered, what was
    settled and what names its point, such as an address: other cues are in small talk as well.
    With `refers_back`, what its "it" or "that" stands for has been said just before.
    """
    if is_question(sentence) or not has_words(sentence, words_min=_STATED_WORDS_MIN):
        return None
    languages = languages_of(sentence)
    cued = judge(sentence, by_user=True) if languages & CUED else None
    is_passing = _POINTS.search(sentence) or is_of_the_moment(sentence)
    if cued and cued.is_settled and not is_passing:
        return cued
    stated = _statement(sentence, languages, refers_back=refers_back)
    if stated is None or cued is None:
        return stated
    return replace(cued, importance=stated.importance) if cued.importance == "trivial" else cued


def _statement(sentence: str, languages: frozenset[str], *, refers_back: bool) -> Verdict | None:
    """Return a verdict on what states something, below that of every cue that is not asked for."""
    if _UNREAL.search(sentence):
        return None
    if ENGLISH in languages:
        weight = weigh(sentence, refers_back=refers_back)
        importance = "standard" if weight.anchors else "trivial"
        confidence = "low" if weight.is_hedged or _HEDGE.search(sentence) else "medium"
        return Verdict(STATED, "fact", importance, confidence) if weight.score > 0 else None
    if any(asks_to_remember(sentence, language) for language in languages):
        return _TO_BE_REMEMBERED
    if any(is_talk(sentence, language) for language in languages):
        return None
    if languages & LANGUAGES:
        is_hedged = bool(languages & CUED and _HEDGE.search(sentence))
        return Verdict(STATED, "fact", "standard", "low" if is_hedged else "medium")
    is_said = has_words(sentence, words_min=_UNKNOWN_WORDS_MIN)
    return Verdict(STATED, "fact", "trivial", "low") if is_said else None


def is_question(sentence: str) -> bool:
    """Tell whether `sentence` asks something."""
    return sentence.rstrip("\"'”’»)*_ ").endswith(("?", "？", "؟"))


def is_declarative(sentence: str) -> bool:
    """Tell whether `sentence`, without a cue, at least states something."""
    if is_question(sentence) or _PASSING.match(sentence) or _HEDGE.search(sentence):
        return False
    if has_other_script(sentence):
        return len(sentence.split()) >= 3 or width(sentence) - len(sentence) >= 6
    return len(sentence.split()) >= 5
