"""Facts from a language model: what it is asked, and what of its answer is believed.

It does not own the connection (`llm.py`), what is a message (`conversation.py`), redaction (the
text comes redacted), nor what makes a fact useless whoever found it (`facts.py`).

- What a model returns is data from outside: only checked values leave this module.
- Messages of tools and systems, memories that were injected, and messages that order their reader
  to break rules are not shown to it.
- A time, and a year in a fact's text, is believed only where something shown to it names one or
  counts the years to it; an invented date at the end of a fact is cut off, elsewhere it costs it.
- An assistant's guess is no fact, and nothing that the user did not say is vital or certain.
"""

import asyncio
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from relayer.errors import Unavailable
from relayer.extraction.conversation import heard, transcript
from relayer.extraction.dates import MONTH
from relayer.extraction.facts import (
    CONFIDENCES,
    FACT_CHARS_MAX,
    FACTS_MAX,
    IMPORTANCES,
    KINDS,
    KNOWN_CHARS_MAX,
    Excerpt,
    Fact,
    distinct,
)
from relayer.llm import LanguageModel
from relayer.prompts import escape, fence, numbered, system_prompt

SPEAKERS: Final = ("user", "assistant", "other")
_READ_MAX: Final = 200  # items of an answer; many times what is kept of it
_READ_CHARS_MAX: Final = 2 * FACT_CHARS_MAX  # of an item; a longer one is no fact


class LlmExtractor:
    """Asks a language model once for all facts of an excerpt; `patient` where no request waits."""

    def __init__(self, *, model: LanguageModel, patient: bool = False) -> None:
        self._model = model
        self._patient = patient
        self._system = system_prompt("extract")

    async def extract(self, excerpt: Excerpt) -> list[Fact]:
        """Return the facts the model found, checked; the most important if they are too many.

        Nobody is asked about an excerpt in which nothing may be heard.

        Raises:
            Unavailable: the model is away (`llm.unavailable`) or its answer is not a list of facts
                (`llm.invalid_output`). The caller still has what was said and keeps it for later.
        """
        excerpt = await asyncio.to_thread(_shown, excerpt)
        if not excerpt.text:
            return []
        reply = await self._model.structured(
            system=self._system,
            user=_prompt(excerpt),
            schema_name="facts",
            schema=SCHEMA,
            patient=self._patient,
        )
        facts = await asyncio.to_thread(lambda: distinct(_facts(reply, excerpt)))
        order = sorted(range(len(facts)), key=lambda n: IMPORTANCES.index(facts[n].importance))
        return [facts[n] for n in sorted(order[:FACTS_MAX])]


_PROPERTIES: Final[dict[str, object]] = {
    "text": {"type": "string"},
    "said_by": {"type": "string", "enum": list(SPEAKERS)},
    "kind": {"type": "string", "enum": list(KINDS)},
    "importance": {"type": "string", "enum": list(IMPORTANCES)},
    "confidence": {"type": "string", "enum": list(CONFIDENCES)},
    "event_time": {"type": ["string", "null"]},
    "contradicts": {"type": ["integer", "null"]},
}
SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["facts"],
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": list(_PROPERTIES),
                "properties": _PROPERTIES,
            },
        }
    },
}


def _shown(excerpt: Excerpt) -> Excerpt:
    """Return what the model is shown of `excerpt`, beside its time."""
    return replace(excerpt, text=transcript(heard(excerpt.text)))


def _prompt(excerpt: Excerpt) -> str:
    occurred_at = excerpt.occurred_at.isoformat() if excerpt.occurred_at else "unknown"
    known = numbered([text[:KNOWN_CHARS_MAX] for text in excerpt.related])
    return "\n\n".join(
        (
            f"<occurred_at>{escape(occurred_at)}</occurred_at>",
            fence("known_memories", known or "(none)"),
            fence("conversation", excerpt.text),
        )
    )


class _Reply(msgspec.Struct):
    facts: list[Any]


def _facts(reply: bytes, excerpt: Excerpt) -> list[Fact]:
    """Return every item of `reply` that has a text and is believed, of the first ones.

    Wrong values in other fields get the default: small models miss an enum now and then, and losing
    the fact for it would be worse.
    """
    try:
        items = msgspec.json.decode(reply, type=_Reply).facts[:_READ_MAX]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        items = [None]
    readable = [
        item for item in items if isinstance(item, dict) and isinstance(item.get("text"), str)
    ]
    if items and not readable:
        raise Unavailable("The language model gave no usable answer.", code="llm.invalid_output")
    years = _years_shown(excerpt)
    facts = [_fact(item, excerpt, years) for item in readable]
    return [fact for fact in facts if fact is not None]


def _fact(item: dict[str, Any], excerpt: Excerpt, years: set[str]) -> Fact | None:
    """Return what `item` says, or None for talk about the talk and for an assistant's guess."""
    text = _dated(_clean(item["text"][:_READ_CHARS_MAX]), years)
    speaker = _one_of(SPEAKERS, item.get("said_by"), "other")
    importance = _one_of(IMPORTANCES, item.get("importance"), "standard")
    confidence = _one_of(CONFIDENCES, item.get("confidence"), "medium")
    if _ABOUT_THE_TALK.match(text) or (speaker == "assistant" and confidence == "low"):
        return None
    if speaker != "user":
        importance = "standard" if importance == "vital" else importance
        confidence = "low" if speaker == "other" else "medium"
    return Fact(
        text=text,
        kind=_one_of(KINDS, item.get("kind"), "fact"),
        importance=importance,
        confidence=confidence,
        event_time_ms=_stated_time_ms(item.get("event_time"), years),
        contradicts=_place(item.get("contradicts"), len(excerpt.related)),
    )


# What models write when there was nothing to remember.
_TALKED_TO: Final = (
    "ai|assistant|agent|bot|answer|response|reply|message|information|explanation|suggestion|help"
    "|greeting|receipt|instruction"
)
# What asks for good, gives a reason or tells something beside is more than talk.
_MORE: Final = (
    "from now on|always|never|every|each|only|whenever|because|since|due to|as (?:he|she|they|it)"
    "|mention(?:s|ed|ing)|(?:says?|said|saying|state[sd]|stating|explain(?:s|ed|ing)) that"
)
_ABOUT_THE_TALK: Final = re.compile(
    r"(?:the )?(?:ai )?assistant (?:will|would|can|could|is going to|(?:offer|promis|suggest|propos"
    r"|recommend|ask|said|greet|thank|think|thought|believ|guess|assum|not(?:e|ing)|acknowledg"
    r"|confirm|respond|repl|underst[ao]{1,2}nd)\w*)\b"
    rf"|(?:the )?user (?!.*\b(?:{_MORE})\b)"
    r"(?:(?:greet|thank|acknowledg)\w*"
    rf"(?=\W*\Z| (?:back|for|(?:the |an? |its |this |that )?(?:{_TALKED_TO})s?)\b)"
    r"|said (?:hello|hi|thanks|goodbye|ok)"
    r"|(?:asked|is asking|asks|want(?:s|ed) to know) (?:whether|if|about|for|what|how|why|when"
    r"|where|who|which|a question)|(?:is|was) having a conversation)\b",
    re.IGNORECASE,
)


def _clean(text: str) -> str:
    """Return `text` on one line, without control characters."""
    line = " ".join(text.split())
    return "".join(char for char in line if unicodedata.category(char) != "Cc").strip()


def _one_of(allowed: Sequence[str], value: object, default: str) -> str:
    return value if isinstance(value, str) and value in allowed else default


def _place(number: object, count: int) -> int | None:
    """Return the index that a model's number of a known memory stands for, if there is one."""
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return number - 1 if 1 <= number <= count else None


_YEAR: Final = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_COUNTED: Final = re.compile(
    r"(?<![\w.,])(\d{1,3}|[a-zäöüß]{1,8})[ -](?:years?|jahre?n?)\b", re.IGNORECASE
)
_NUMBERS: Final = {
    word: n
    for words in (
        "one two three four five six seven eight nine ten eleven twelve",
        "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    )
    for n, word in enumerate(words.split(), start=1)
} | {"a": 1, "fifteen": 15, "twenty": 20, "thirty": 30, "fünfzehn": 15, "zwanzig": 20}
_UNIT: Final = (
    r"euros?|dollars?|pounds?|francs?|usd|eur|gbp|chf|metres|meters|miles|km|m|kg|g|gb|mb|ms|people|rows|users|items"
    r"|words|tokens|characters|steps|times|hours|days|weeks|months|years|jahre?n?|stunden|tagen?"
)
_IN: Final = (
    "in|on|since|by|until|till|from|before|after|around|im|am|seit|bis|ab|vor|nach|born|geboren"
    "|spring|summer|autumn|winter|frühling|sommer|herbst|q[1-4]"
)
_DAY: Final = r"\d{1,2}(?:st|nd|rd|th|\.)?"
# A year where a date stands. An amount is none, nor is the number of a room or a model.
_DATE: Final = re.compile(
    rf"(?P<lead>(?:^|,? )(?:{_IN})(?: the| dem)?(?: year| jahr)?)?"
    rf"(?: \(?(?:{_DAY} )?(?:of )?(?:{MONTH})\.?,?| (?:{MONTH})\.? {_DAY},?"
    rf"| \d{{1,2}}[./-]\d{{1,2}}[./-](?=\d{{4}})| (?=\d{{4}}-\d\d)| \((?=\d{{4}}\))|(?(lead)|(?!)))"
    rf" ?(?P<year>(?:19|20)\d\d)(?:-\d\d){{0,2}}\)?(?![\w€%]|[.,]\d| (?:{_UNIT})\b)",
    re.IGNORECASE,
)
_NEEDS_MORE: Final = re.compile(
    r"(?:^|\s)(?:is|are|was|were|be|due|it's|ist|sind|war|waren|wird|am|in|on)$", re.IGNORECASE
)


def _dated(text: str, years: set[str]) -> str:
    """Return `text` without an invented date at its end; nothing if it is worth nothing then."""
    invented = [match for match in _DATE.finditer(text) if match["year"] not in years]
    if not invented:
        return text
    first = invented[0]
    rest, end = text[: first.start()], text[first.end() :]
    whole = bool(first["lead"]) and not _NEEDS_MORE.search(rest)
    return rest + end if whole and not end.strip(".!") else ""


def _years_shown(excerpt: Excerpt) -> set[str]:
    """Return the years that a fact may name.

    Those in what is shown, those next to the excerpt's, and those that "ten years" counts up to.
    """
    texts = [excerpt.text, *(text[:KNOWN_CHARS_MAX] for text in excerpt.related)]
    years = {year for text in texts for year in _YEAR.findall(text)}
    if excerpt.occurred_at is not None:
        counted = {0}.union(*(map(_counted, _COUNTED.findall(text)) for text in texts))
        spans = {sign * n + near for n in counted for sign in (-1, 1) for near in (-1, 0, 1)}
        years |= {str(excerpt.occurred_at.year + span) for span in spans}
    return years


def _counted(word: str) -> int:
    return int(word) if word.isdecimal() else _NUMBERS.get(word.casefold(), 0)


def _stated_time_ms(value: object, years: set[str]) -> int | None:
    """Return an RFC 3339 time in ms, if its year is one that a fact may name."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        if not 1 < time.year < 9999:  # beyond, converting between time zones overflows
            return None
        return int(time.timestamp() * 1000) if str(time.year) in years else None
    except (ValueError, OverflowError):
        return None
