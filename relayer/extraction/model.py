"""Facts from a language model: what it is asked, and what of its answer is believed.

It does not own the connection (`llm.py`), the form of an answer (`items.py`), what is a message
(`conversation.py`), redaction (the text comes redacted), nor what makes a fact useless whoever
found it (`facts.py`).

- What a model returns is data from outside: only checked values leave this module.
- Messages of tools and systems, memories that were injected, and messages that order their reader
  to break rules are not shown to it.
- A fact whose names, numbers or dates do not stand in what was shown is of low confidence and waits
  for review (`support.py`). So much a year is worth (`times.py`) is cut off or costs the fact.
- An assistant's guess is no fact, and nothing that the user did not say is vital or certain.
"""

import asyncio
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from relayer.extraction.conversation import select_messages, transcript
from relayer.extraction.empty_texts import says_nothing
from relayer.extraction.facts import (
    CONFIDENCES,
    FACT_CHARS_MAX,
    FACTS_MAX,
    IMPORTANCES,
    KINDS,
    KNOWN_CHARS_MAX,
    MODEL,
    Excerpt,
    Fact,
    distinct,
)
from relayer.extraction.items import Item, read_choice, read_items, read_place
from relayer.extraction.message import Message
from relayer.extraction.support import Evidence, count_shared_terms
from relayer.extraction.times import collect_years, cut_invented_date, read_time_ms
from relayer.llm import LanguageModel
from relayer.prompts import escape, fence, number_lines, system_prompt

SPEAKERS: Final = ("user", "assistant", "other")
TEXT_CHARS_MAX: Final = 400  # that a grammar lets a model write; the prompt says 300
_READ_MAX: Final = 200  # items of an answer; many times what is kept of it
_READ_CHARS_MAX: Final = 2 * FACT_CHARS_MAX  # of an item; a longer one is no fact


class LlmExtractor:
    """Asks a language model once for all facts of an excerpt; `patient` where no request waits."""

    name: Final = MODEL

    def __init__(self, *, model: LanguageModel, patient: bool = False) -> None:
        self._model = model
        self._patient = patient
        self._system = system_prompt("extract")
        self._told = " ".join(self._system.split())

    async def extract(self, excerpt: Excerpt) -> list[Fact]:
        """Return the facts the model found, checked; the most important if they are too many.

        Nobody is asked about an excerpt in which nothing may be heard.

        Raises:
            Unavailable: the model is away (`llm.unavailable`) or its answer is not a list of facts
                (`llm.invalid_output`). The caller still has what was said and keeps it for later.
        """
        said = await asyncio.to_thread(select_messages, excerpt.text)
        excerpt = replace(excerpt, text=transcript(said))
        if not excerpt.text:
            return []
        items = await self._model.ask_structured(
            system=self._system,
            user=_prompt(excerpt),
            schema_name="facts",
            schema=SCHEMA,
            fit=self._read,
            patient=self._patient,
        )
        facts = await asyncio.to_thread(_facts, items, excerpt, said)
        order = sorted(range(len(facts)), key=lambda n: IMPORTANCES.index(facts[n].importance))
        return [facts[n] for n in sorted(order[:FACTS_MAX])]

    def _read(self, value: Any) -> list[Item] | None:
        """Return the items of a value; None where it only repeats what the model was told.

        A very small model copies its prompt, with the form of an answer in it.
        """
        items = read_items(value)
        own = [i for i in items or () if " ".join(i["text"].split()) not in self._told]
        return None if items is None or (items and not own) else own


SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["facts"],
    "properties": {
        "facts": {
            "type": "array",
            "maxItems": FACTS_MAX,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["text"],
                "properties": {
                    "text": {"type": "string", "maxLength": TEXT_CHARS_MAX},
                    "said_by": {"type": "string", "enum": list(SPEAKERS)},
                    "kind": {"type": "string", "enum": list(KINDS)},
                    "importance": {"type": "string", "enum": list(IMPORTANCES)},
                    "confidence": {"type": "string", "enum": list(CONFIDENCES)},
                    "event_time": {"type": "string", "maxLength": 40},
                    "contradicts": {"type": "integer"},
                },
            },
        }
    },
}


def _prompt(excerpt: Excerpt) -> str:
    occurred_at = excerpt.occurred_at.isoformat() if excerpt.occurred_at else "unknown"
    known = number_lines([text[:KNOWN_CHARS_MAX] for text in excerpt.related])
    return "\n\n".join(
        (
            f"<occurred_at>{escape(occurred_at)}</occurred_at>",
            fence("known_memories", known or "(none)"),
            fence("conversation", excerpt.text),
        )
    )


@dataclass(frozen=True)
class _Context:
    """The texts that a model was shown, as its facts are compared with them."""

    evidence: Evidence
    years: set[str]
    said: Sequence[Message]
    related_count: int
    occurred_at: datetime | None


def _facts(items: Sequence[Item], excerpt: Excerpt, said: Sequence[Message]) -> list[Fact]:
    """Return every item of the first ones that has a text and is believed."""
    texts = [excerpt.text, *(text[:KNOWN_CHARS_MAX] for text in excerpt.related)]
    years = collect_years(texts, excerpt.occurred_at)
    evidence = Evidence(texts, excerpt.occurred_at, years)
    context = _Context(evidence, years, said, len(excerpt.related), excerpt.occurred_at)
    found = (_fact(item, context) for item in items[:_READ_MAX])
    return distinct(fact for fact in found if fact is not None)


def _fact(item: Item, context: _Context) -> Fact | None:
    """Return what `item` says, or None for what says nothing and for an assistant's guess.

    Wrong values in other fields get the default: small models miss an enum now and then, and losing
    the fact for it would be worse.
    """
    text = cut_invented_date(_clean(item["text"][:_READ_CHARS_MAX]), context.years)
    if says_nothing(text) or _is_cut(text):
        return None
    speaker = _speaker(item, text, context.said)
    importance = read_choice(IMPORTANCES, item.get("importance"), "standard")
    confidence = read_choice(CONFIDENCES, item.get("confidence"), "medium")
    if speaker == "assistant" and confidence == "low":
        return None
    if speaker != "user":
        importance = "standard" if importance == "vital" else importance
        confidence = "low" if speaker == "other" else "medium"
    is_unsupported = not context.evidence.supports(text)
    return Fact(
        text=text,
        kind=read_choice(KINDS, item.get("kind"), "fact"),
        importance=importance,
        confidence="low" if is_unsupported else confidence,
        event_time_ms=read_time_ms(item.get("event_time"), context.years, context.occurred_at),
        contradicts=read_place(item.get("contradicts"), context.related_count),
        is_unsupported=is_unsupported,
    )


def _speaker(item: Item, text: str, said: Sequence[Message]) -> str:
    """Return who said it: as the model says, else in whose messages most of its words stand."""
    if item.get("said_by") is not None:
        return read_choice(SPEAKERS, item["said_by"], "other")
    by_assistant = [message.text for message in said if message.role == "assistant"]
    if not by_assistant:
        return "user"
    others = [message.text for message in said if message.role != "assistant"]
    more = count_shared_terms(text, by_assistant) > count_shared_terms(text, others)
    return "assistant" if more else "user"


# What is left of a value's end where a model forgot to escape a quote in it.
_TAIL: Final = re.compile(r"[\"'`]\s*[}\]][}\],\s]*\Z")


def _clean(text: str) -> str:
    """Return `text` on one line, without control characters and marks of what was around it."""
    line = " ".join(_TAIL.sub("", text).split())
    return "".join(char for char in line if unicodedata.category(char) != "Cc").strip()


def _is_cut(text: str) -> bool:
    """Return whether a grammar ended `text` at its limit, in the middle of a sentence."""
    return len(text) == TEXT_CHARS_MAX and not text.endswith((".", "!", "。", "।", '"', ")"))
