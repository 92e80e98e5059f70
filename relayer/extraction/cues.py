"""What makes a sentence worth remembering: a table of named cues with weights.

It does not own splitting a conversation (`conversation.py`) nor choosing the best (`extract.py`).

- Pure: the same sentence from the same kind of author always gets the same verdict.
- English and German words; dates, identifiers, addresses and amounts count in any language.
- An order to ignore rules, or to remember something behind the user's back, is never worth keeping.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from relayer.extraction.dates import FULL_DATE, MONTH

WORTH_KEEPING: Final = 2  # one plain statement of a decision, a preference, a rule, an identifier
_ASSISTANT_MALUS: Final = 1  # what an assistant says was often said to it before
_HEDGE_MALUS: Final = 1


@dataclass(frozen=True)
class Cue:
    """A sign that a sentence lasts; `vital` marks what somebody asked to have remembered."""

    name: str
    kind: str
    weight: int
    pattern: re.Pattern[str]
    vital: bool = False


@dataclass(frozen=True)
class Verdict:
    """The sum over all cues of a sentence, and what the strongest one says about it."""

    score: int
    kind: str
    importance: str
    confidence: str


_DAY: Final = (
    "(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch"
)


def _phrases(lines: str, *, start: str = r"(?<!\w)") -> re.Pattern[str]:
    """Return a pattern of whole words and phrases, one or more alternatives a line."""
    alternatives = "|".join(line.strip() for line in lines.strip().splitlines())
    return re.compile(rf"{start}(?:{alternatives})(?!\w)", re.IGNORECASE)


def _cue(name: str, kind: str, weight: int, lines: str, *, vital: bool = False) -> Cue:
    return Cue(name, kind, weight, _phrases(lines), vital)


# The strongest cue names the kind; among equals the first one.
CUES: Final = (
    _cue("remember", "fact", 4, r"""
        remember(?: ?:| that| this| to| my| our| the| we| I)|(?:don't|do not) forget
        keep in mind|note that|for the record|make a note|important(?= ?:)
        merke? dir|vergiss nicht|denke? daran|zur erinnerung|wichtig(?= ?:)
        """, vital=True),
    _cue("health", "preference", 4, r"""
        (?:am|is|are|\w+'(?:m|s|re)) (?:\w+ )?(?:allergic|diabetic)|(?:\w+ )?allerg(?:y|ies)
        (?:bin|ist) (?:\w+ )?(?:allergisch|diabetiker(?:in)?)|\w*allergie
        """, vital=True),
    _cue("prefer", "preference", 3, r"""
        prefer(?:s|red)?|favou?rites?|can(?:'t|not) stand|(?:would|\w+'d) rather|vegetarian|vegan
        (?:I|we|he|she|they) (?:really |also |don't |do not )?(?:like|love|hate|dislike|enjoy)s?
        bevorzug(?:e|t|en)|am liebsten|lieber|lieblings\w+|(?:vegetarier|veganer)(?:in)?
        (?:ich|wir|er|sie) (?:mag|mögen|liebe?n?|hasse?n?)
        """),
    _cue("decide", "decision", 3, r"""
        decided|decision (?:is|was)|settled on|agreed (?:to|on|that|with)|went with
        (?:we|I) (?:will )?go with|(?:we're|we are|I'm|I am) going with
        let's (?:use|go with|keep|stick (?:to|with))
        (?:we|I|they|he|she) (?:chose|picked|rejected|ruled out|approved)
        (?:switch(?:ed|ing)?|migrat(?:ed|ing|e)|moved|moving) (?:\w+ ){0,3}(?:to|from)
        beschlossen|entschieden|geeinigt|vereinbart|festgelegt|ausgeschlossen|wir nehmen
        nehmen wir|(?:wechseln|umgestiegen|steigen) (?:\w+ ){0,3}(?:zu|auf|um)
        """),
    _cue("change", "decision", 3, r"""
        changed (?:my|our|his|her|their) minds?|no longer|from now on|used to
        (?:not|\w+n't) (?:[^.,;]{1,60} )?any ?more|postponed|rescheduled|cancell?ed
        (?:(?:we|they)'re|(?:we|they) are) (?:dropping|removing|replacing|deprecating)
        nicht mehr|(?:ab|von) (?:jetzt|sofort|nun)(?: an)?|doch (?:lieber|nicht)|umentschieden
        früher|verschoben|abgesagt
        """),
    _cue("done", "event", 2, r"""
        (?:we|I|he|she|they)(?: have| has|'ve|'s)? (?:booked|signed|renewed|hired|bought|ordered)
        (?:hat|haben|habe) (?:[^.,;]{1,80} )?(?:gebucht|bestellt|gekauft|unterschrieben|verlängert)
        """),
    _cue("correct", "decision", 1, r"""
        actually|instead|eigentlich|statt(?:dessen)?
        """),
    _cue("rule", "procedural", 2, r"""
        always|never|must(?: not|n't)?|make sure|(?:every|each) time|(?:not )?allowed to
        we (?:don't|do not)|(?:don't|do not) (?:ever|use|send|call)
        forbidden|verboten|nur noch
        immer|nie(?:mals)?|muss|müssen|darf|dürfen|jedes mal|grundsätzlich
        """),
    _cue("practice", "procedural", 2, r"""
        (?:we|they) (?:follow|deploy|release|review|test|back up|rotate)
        (?:is|are) (?:only )?(?:calibrated|deployed|released|reviewed|tested|rotated)
        runs? (?:every|each|daily|nightly|weekly|at)|(?:goes|belongs?) (?:at|in|into|to)
        (?:kommt|gehört) (?:ans?|ins?|nach|zum|zur)
        (?:läuft|laufen) (?:jede\w*|täglich|nachts)
        """),
    _cue("person", "fact", 3, r"""
        my (?:full )?name is|call me|I (?:work|live|grew up|studied)
        I(?:'m| am) (?:a|an|the|from|based|responsible|on call)
        (?:is|are|I'm) (?:responsible for|in charge of|on call)
        (?:is|are) (?:our|my|the|your) (?:\w+ ){0,2}contact|our contact (?:\w+ ){0,3}is
        my (?:wife|husband|partner|son|daughter|dog|cat|boss|birthday|team|job|hometown)
        ich heiße|mein name ist|ich (?:arbeite|wohne|lebe|komme aus)|vertritt
        ich bin (?!sicher|mir|gespannt|froh|dabei|fertig|da)\w+|(?:zuständig|verantwortlich) für
        meine? (?:frau|mann|partner|partnerin|sohn|tochter|hund|katze|chef|chefin|geburtstag)
        """),
    _cue("own", "fact", 2, r"""
        (?:my|our) (?:[\w-]+ ){1,5}(?:is|are|was|were|has|have|runs?|lives?|uses?|stands?|sits?)
        (?:her|his|their) (?:[\w-]+ ){1,3}(?:is|are)
        (?:mein|unser)(?:e[rsmn]?)? (?:[\w-]+ ){1,5}(?:ist|sind|war|hat|haben|läuft|steht|liegt)
        """),
    _cue("named", "fact", 2, r"""
        the (?:[\w-]+ ){1,6}(?:is|are|was|were) (?-i:[A-Z0-9])[\w.-]*|(?:is|are) (?:called|named)
        (?:der|die|das) (?:[\w-]+ ){1,6}hei(?:ß|ss)t
        """),
    _cue("use", "fact", 2, r"""
        (?:we|I|they) (?:currently |now |only )?(?:use|run|store|keep|host|work on|work with)
        (?:is|are|was) (?:stored|located|hosted|deployed|written|built|tracked|kept|based)
        (?:runs?|lives?|listens?|sits|stands|depends|relies) (?:on|in|at|under|behind)
        (?:wir|ich) (?:verwenden?|nutzen?|benutzen?|setzen|speichern|betreiben)
        (?:läuft|liegt|steht|hängt|sitzt) (?:auf|in|im|unter|hinter|bei|an|am)
        """),
    _cue("deadline", "event", 2, r"""
        deadline|(?:is|are) due|due (?:on|by)|go(?:es|ing)? live|launch(?:es|ed)?|birthday
        (?:starts?|begins?|ends?|opens?|happens?) (?:on|at|in)|appointment|vacation
        (?:arrives?|leaves?|returns?) (?:on|at|in|next|tomorrow)|on (?:leave|holiday)
        (?:im|in) urlaub|frist|termin|abgabe(?:termin)?|geburtstag
        (?:beginnt|startet|endet) (?:am|um|im)
        """),
    _cue("worth", "fact", 1, r"""
        because|the reason|(?:goal|plan|budget|contract|price) is|plan(?:s|ned|ning)? to
        (?:want|need|intend)s? to|costs?|offers?|sells?
        weil|der grund|ziel ist|wollen|möchten|planen|kostet|kosten
        """),
)  # fmt: skip


def _shape(name: str, kind: str, weight: int, pattern: str) -> Cue:
    return Cue(name, kind, weight, re.compile(pattern))


# Shapes that mean the same in every language.
SHAPES: Final = (
    _shape("contact", "fact", 3, r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{2,}"),
    _shape("phone", "fact", 3, r"(?<![\w.])\+\d{1,3}[ /-]?\(?\d[\d ()/-]{6,18}\d"),
    _shape("ticket", "fact", 2, r"\b[A-Z][A-Z0-9]{1,9}-\d[\d-]{0,18}\b"),
    _shape("version", "fact", 2, r"\bv\d+\.\d+[\w.-]*|\b[A-Z]\w+ \d+\.\d+[\d.]*\b"),
    _shape("path", "fact", 2, r"(?<![\w/:.-])(?:[\w.-]{0,64}/){1,20}[\w-]{1,64}\.[a-z]\w{0,7}\b"),
    _shape("folder", "fact", 2, r"(?<![\w/:.-])[~.]?/(?:[\w.-]{1,64}/){1,20}[\w.-]*"),
    _shape("address", "fact", 2, r"\b(?:https?|ssh|git|postgres)://[^\s<>\"']{4,}"),
    Cue("date", "event", 2, FULL_DATE),
    Cue("day", "event", 1, _phrases(rf"""
        \d{{1,2}}(?:st|nd|rd|th|\.)? (?:of )?(?:{MONTH})|(?:{MONTH}) \d{{1,2}}|{_DAY}
        \d{{1,2}}:\d\d|tomorrow|yesterday|morgen|gestern
        (?:next|nächste[nrs]?) (?:week|month|year|woche|monat|jahr)
        """)),
    Cue("amount", "fact", 1, _phrases(r"""
        \d[\d.,]* ?(?:[€%]|euros?|dollars?|usd|eur|gb|mb|ms|kg|km|degrees|grad)|[€$£¥] ?\d[\d.,]*
        \d[\d.,]* ?(?:hours?|days?|weeks?|months?|years?)
        \d[\d.,]* ?(?:stunden?|tage?n?|wochen?|monate?n?|jahre?n?)
        """)),
    Cue("number", "fact", 1, _phrases(r"""
        (?:number|nummer|port|room|raum|revision|version|no\.|nr\.) [\d.]+
        """)),
)  # fmt: skip

_HEDGE: Final = _phrases(r"""
    maybe|perhaps|probably|might|not (?:so |really )?sure|I guess|I suppose|I think|seems?
    vielleicht|vermutlich|wahrscheinlich|eventuell|glaube ich|ich glaube|könnte|wohl|wäre
    """)

# What a sentence may begin with before it comes to the point.
_OPENING: Final = (
    r"\A(?:(?:ok|okay|sure|great|perfect|thanks|thank you|yes|no|well|and|so|right|noted|got it"
    r"|understood|hi|hey|hello|please|gerne|klar|ja|nein|danke|bitte|alles klar|verstanden)"
    r"[,.!:–-]* )*"
)
# Talk that only holds for the moment, whoever says it.
_PASSING: Final = _phrases(
    r"""
    (?:I|we) (?:can|could|will|would|did|found|am going to|just)(?! (?:go with|use|never|always))
    (?:I|we)'(?:ll|ve|d)|I have (?!to|a|an|the)|I am happy|let me|let's|feel free
    happy to|glad to|here(?:'s| is| are)|hope you|lol|haha|list (?:all|every|the|my|our)
    (?:can|could|would|will|shall|should|do|does|did|is|are) (?:I|you|we|it|this|that|there|the)
    (?:what|how|why|who|where|which|when) (?:I|you|we|is|are|was|do|does|did|can|would)
    (?:good|nice|great|well|happy) (?:catch|one|work|job|idea|question|point|day|morning|evening)
    (?:run|show|fix|open|write(?! to)|create|generate|check|look|give|tell|explain|find|search)(?!-)
    (?:summari[sz]e|compare|read|add|remove|delete|update|translate|do it|go ahead|wait)(?!-)
    (?:all |the )?(?:\d+ )?(?:tests?|build) (?:pass|fail)|that (?:page|was|is|sounds|helps|looks)
    ich (?:kann|könnte|werde|habe)|soll(?:en)? (?:ich|wir)|(?:kann|könnt|möcht|würd|magst)e?st du
    was|wie|warum|wer|wo|welche[rs]?|lass(?: uns| mich)|guten (?:morgen|tag|abend)
    hier (?:ist|sind)|mache? (?:ich|das|es)|zeig|schau|erklär|schreib(?:e)? (?:mir|eine?n?)
    """,
    start=_OPENING,
)
# What an assistant says when somebody told it something: the fact is in the other's message.
_PROMISE: Final = _phrases(r"""
    (?:I'll|I will|will|shall) (?:remember|note|make a note|keep (?:that|this|it) in mind)
    (?:I|I have|I've) (?:remembered|noted)|ich (?:merke mir|werde mir)
    """)
# What even a passing remark is kept for.
_LASTING: Final = frozenset({"remember", "health", "change", "rule", "decide", "done", "prefer"})

_INJECTION: Final = _phrases(r"""
    (?:ignor(?:e|ing)|disregard|forget|override|bypass)(?: \w+){0,3} (?:instructions?|guidelines?)
    (?:ignor(?:e|ing)|disregard|override) (?:all|any|your|the|previous)(?: \w+){0,2} rules
    (?:ignor(?:e|ing)|disregard|forget) (?:\w+ ){0,2}(?:previous|prior|above)(?: \w+){0,2}
    (?:ignorier|vergiss|missacht)\w*(?: \w+){0,3} (?:anweisung|regel|instruktion|vorgabe)\w*
    (?:system|developer|hidden|initial) ?(?:prompt|message|override|instruction)s?
    new instructions?(?= ?:)|do not follow (?:the|your|any)|developer mode|jailbreak
    (?:do not|don't|never) (?:tell|inform|warn|alert|mention (?:this|it) to) the user
    (?:sag|verrat)\w* (?:dem|der) (?:be)?nutzer\w* nichts
    you are (?:now|no longer) (?:a|an|in|the|bound)|act as (?:if|though) you
    (?:run|execute|call|invoke) (?:this|(?:the )?following) (?:\w+ )?(?:tool|command|function)s?
    (?:send|forward|post|upload) (?:\w+ ){0,4}(?:passwords?|keys?|secrets?|credentials?|tokens?) to
    """)
_FAKE_MARKUP: Final = re.compile(
    r"<\|?/?(?:system|im_start|im_end|assistant|user|inst|[\w-]*memor(?:y|ies)|instructions?)\b"
    r"|\[/?INST\]",
    re.IGNORECASE,
)


def orders_the_reader(text: str) -> bool:
    """Tell whether `text` looks like an order to an assistant to break its rules.

    A courtesy layer: what holds is that memories are fenced, escaped and scoped when they are read.
    """
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    return bool(_INJECTION.search(text) or _FAKE_MARKUP.search(text))


def judge(sentence: str, *, by_assistant: bool = False) -> Verdict | None:
    """Return what the cues say of `sentence`, or None for one that is not worth keeping."""
    if is_question(sentence) or (by_assistant and _PROMISE.search(sentence)):
        return None
    hits = [cue for cue in (*CUES, *SHAPES) if cue.pattern.search(sentence)]
    if _PASSING.match(sentence) and not any(cue.name in _LASTING for cue in hits):
        return None
    hedged = bool(_HEDGE.search(sentence))
    strongest = max(hits, key=lambda cue: cue.weight, default=None)
    score = sum(cue.weight for cue in hits)
    score -= _ASSISTANT_MALUS * by_assistant + _HEDGE_MALUS * hedged
    if strongest is None or score < WORTH_KEEPING:
        return None
    return Verdict(
        score=score,
        kind=strongest.kind,
        importance=_importance(hits, score),
        confidence="low" if hedged else "medium" if by_assistant or score < 3 else "high",
    )


def _importance(hits: list[Cue], score: int) -> str:
    if any(cue.vital for cue in hits):
        return "vital"
    return "standard" if score > WORTH_KEEPING or hits[0].weight >= WORTH_KEEPING else "trivial"


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


def has_other_script(sentence: str) -> bool:
    """Tell whether `sentence` is mostly in a script that the table has no words of."""
    letters = [letter for letter in sentence if letter.isalpha()]
    return sum(ord(letter) > 0x24F for letter in letters) * 2 > len(letters)


def width(text: str) -> int:
    """Return the length of `text`, with ideographs and syllables counted twice."""
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text)
