"""Facts worth remembering from a stretch of conversation: by a language model, or by rules.

It does not own the model (`llm.py`), the rules (`conversation.py`, `cues.py`, `dates.py`),
redaction (the text comes redacted), nor storing: its fingerprint tells whether a fact is new.

- What a model returns is data from outside: only checked values leave this module.
- A text that orders its reader to break rules is never a fact.
- A time is given only where the text says one.
"""

import asyncio
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from relayer.errors import Unavailable
from relayer.extraction import cues
from relayer.extraction.conversation import Message, messages, own_words, sentences
from relayer.extraction.dates import event_time_ms
from relayer.llm import LanguageModel, escape, fence, numbered, system_prompt

KINDS: Final = ("fact", "preference", "decision", "event", "procedural")
IMPORTANCES: Final = ("vital", "standard", "trivial")
CONFIDENCES: Final = ("high", "medium", "low")

FACTS_MAX: Final = 20
_FACT_WIDTH_MIN: Final = 11  # ten characters and fewer say nothing by themselves
_FACT_CHARS_MAX: Final = 1000  # longer is a copy of the conversation, not a fact taken from it
_JOINED_CHARS_MAX: Final = 300


@dataclass(frozen=True)
class Turn:
    """What facts are taken from: text, its time if known, and memories that are known already."""

    text: str
    occurred_at: datetime | None = None
    related: Sequence[str] = ()


@dataclass(frozen=True)
class Fact:
    """One thing to remember; `kind`, `importance` and `confidence` come from the closed lists."""

    text: str
    kind: str = "fact"
    importance: str = "standard"
    confidence: str = "medium"
    event_time_ms: int | None = None


class Extractor(Protocol):
    """Something that finds facts in a turn: `LlmExtractor` or `SentenceExtractor`."""

    async def extract(self, turn: Turn) -> list[Fact]:
        """Return the facts of `turn` in its order, none of them in `turn.related`."""
        ...


def normalised(text: str) -> str:
    """Return `text` for comparing: letters and digits alone, folded, one blank between words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.findall(r"\w+", folded))


def _distinct(facts: Iterable[Fact], related: Sequence[str]) -> list[Fact]:
    """Return the facts that are of use: sane length, no order to the reader, not known yet."""
    seen = {normalised(text) for text in related}
    kept = []
    for fact in facts:
        key = normalised(fact.text)
        usable = cues.width(key) >= _FACT_WIDTH_MIN and len(fact.text) <= _FACT_CHARS_MAX
        if usable and key not in seen and not cues.orders_the_reader(fact.text):
            seen.add(key)
            kept.append(fact)
    return kept


class LlmExtractor:
    """Asks a language model once for all facts of a turn."""

    def __init__(self, *, model: LanguageModel, facts_max: int = FACTS_MAX) -> None:
        self._model = model
        self._facts_max = facts_max
        self._system = system_prompt("extract")

    async def extract(self, turn: Turn) -> list[Fact]:
        """Return the facts the model found, checked; the most important if they are too many.

        Raises:
            Unavailable: the model is away (`llm.unavailable`) or its answer is not a list of facts
                (`llm.invalid_output`). The caller still has the turn and keeps it for later.
        """
        reply = await self._model.structured(
            system=self._system, user=_prompt(turn), schema_name="facts", schema=_SCHEMA
        )
        facts = _distinct(_facts(reply, turn), turn.related)
        order = sorted(range(len(facts)), key=lambda n: IMPORTANCES.index(facts[n].importance))
        return [facts[n] for n in sorted(order[: self._facts_max])]


_SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["facts"],
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["text", "kind", "importance", "confidence", "event_time"],
                "properties": {
                    "text": {"type": "string"},
                    "kind": {"type": "string", "enum": list(KINDS)},
                    "importance": {"type": "string", "enum": list(IMPORTANCES)},
                    "confidence": {"type": "string", "enum": list(CONFIDENCES)},
                    "event_time": {"type": ["string", "null"]},
                },
            },
        }
    },
}


def _prompt(turn: Turn) -> str:
    occurred_at = turn.occurred_at.isoformat() if turn.occurred_at else "unknown"
    return "\n\n".join(
        (
            f"<occurred_at>{escape(occurred_at)}</occurred_at>",
            fence("known_memories", numbered(turn.related) or "(none)"),
            fence("conversation", turn.text),
        )
    )


class _Reply(msgspec.Struct):
    facts: list[Any]


def _facts(reply: bytes, turn: Turn) -> list[Fact]:
    """Return every item of `reply` that has a text; wrong values in other fields get the default.

    Small models miss an enum now and then: losing the fact for it would be worse.
    """
    try:
        items = msgspec.json.decode(reply, type=_Reply).facts
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        items = [None]
    facts = [
        _fact(item, turn)
        for item in items
        if isinstance(item, dict) and isinstance(item.get("text"), str)
    ]
    if items and not facts:
        raise Unavailable("The language model gave no usable answer.", code="llm.invalid_output")
    return facts


def _fact(item: dict[str, Any], turn: Turn) -> Fact:
    return Fact(
        text=_clean(item["text"]),
        kind=_one_of(KINDS, item.get("kind"), "fact"),
        importance=_one_of(IMPORTANCES, item.get("importance"), "standard"),
        confidence=_one_of(CONFIDENCES, item.get("confidence"), "medium"),
        event_time_ms=_stated_time_ms(item.get("event_time"), turn),
    )


def _clean(text: str) -> str:
    """Return `text` on one line, without control characters."""
    line = " ".join(text.split())
    return "".join(char for char in line if unicodedata.category(char) != "Cc").strip()


def _one_of(allowed: Sequence[str], value: object, default: str) -> str:
    return value if isinstance(value, str) and value in allowed else default


def _stated_time_ms(value: object, turn: Turn) -> int | None:
    """Return an RFC 3339 time in ms; without `occurred_at` only if the text names its year."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        if not 1 < time.year < 9999:  # beyond, converting between time zones overflows
            return None
        stated = turn.occurred_at is not None or f"{time.year:04}" in turn.text
        return int(time.timestamp() * 1000) if stated else None
    except (ValueError, OverflowError):
        return None


class SentenceExtractor:
    """Keeps the sentences worth keeping, word for word, by the table in `cues.py`.

    Used where no language model is configured. Deterministic, and a message yields the same facts
    in every window it is sent in, so that sending it again stores nothing new:

    1. Messages are told apart (numbers, roles, names) and read one by one. One that orders its
       reader to break rules yields nothing at all: its other sentences are what it wants stored.
    2. Quotes, code, tool output and XML are cut out; the rest is split into sentences.
    3. Each sentence is judged by its cues. One that starts with "it" or "that" takes the sentence
       before it along; a name before a message stands before each of its facts.
    4. Scripts the table has no words of: plain statements are kept with low confidence. So is a
       text that is one single message without any cue, because somebody sent just that.
    5. The best `facts_max`, in their order.
    """

    def __init__(self, *, facts_max: int = FACTS_MAX) -> None:
        self._facts_max = facts_max

    async def extract(self, turn: Turn) -> list[Fact]:
        """Return the facts of `turn`, at most `facts_max`, none of them in `turn.related`."""
        return await asyncio.to_thread(self._extract, turn)  # 64 KiB take about 0.15 s

    def _extract(self, turn: Turn) -> list[Fact]:
        said = messages(turn.text)
        scored = [pair for message in said for pair in _judged(message, alone=len(said) == 1)]
        scores = {fact.text: score for score, fact in reversed(scored)}
        facts = _distinct((fact for _, fact in scored), turn.related)
        order = sorted(range(len(facts)), key=lambda n: -scores[facts[n].text])
        return [
            replace(facts[n], event_time_ms=event_time_ms(facts[n].text, turn.occurred_at))
            for n in sorted(order[: self._facts_max])
        ]


_REFERS_BACK: Final = re.compile(
    r"(?:it|its|this|that|these|those|they|he|she|his|her|their|there|the reason|es|er|diese[rs]?"
    r"|das (?:ist|sind|war|wird|hat|geht)|der grund)\b",
    re.IGNORECASE,
)
_IMPORTANCE_SCORE: Final = {"vital": 100, "standard": 0, "trivial": 0}


def _judged(message: Message, *, alone: bool) -> list[tuple[int, Fact]]:
    """Return (score, fact) for each sentence of `message` worth keeping, in order."""
    if message.role == "other" or cues.orders_the_reader(message.text):
        return []
    said = [s for s in sentences(own_words(message.text)) if len(s) <= _FACT_CHARS_MAX]
    verdicts = [cues.judge(s, by_assistant=message.role == "assistant") for s in said]
    if not any(verdicts):
        verdicts = [_plain(s, message, alone=alone) for s in said]
    prefix = f"{message.speaker}: " if message.speaker else ""
    return [
        (
            verdict.score + _IMPORTANCE_SCORE[verdict.importance],
            Fact(prefix + text, verdict.kind, verdict.importance, verdict.confidence),
        )
        for text, verdict in _joined(said, verdicts)
    ]


def _plain(sentence: str, message: Message, *, alone: bool) -> cues.Verdict | None:
    """Return a low verdict for a statement without cues where that is all there is to go by."""
    eligible = message.role != "assistant" and (alone or cues.has_other_script(sentence))
    if not (eligible and cues.is_declarative(sentence)):
        return None
    return cues.Verdict(score=1, kind="fact", importance="trivial", confidence="low")


def _joined(
    said: Sequence[str], verdicts: Sequence[cues.Verdict | None]
) -> Iterator[tuple[str, cues.Verdict]]:
    """Yield (text, verdict), a sentence that refers back together with the one before it."""
    pending: tuple[str, cues.Verdict] | None = None
    before = ""
    for sentence, verdict in zip(said, verdicts, strict=True):
        short = len(before) + len(sentence) < _JOINED_CHARS_MAX
        refers = bool(before) and short and _REFERS_BACK.match(sentence) is not None
        if verdict and refers and pending and pending[0].endswith(before):
            pending = (f"{pending[0]} {sentence}", max(pending[1], verdict, key=_score))
        elif verdict:
            if pending:
                yield pending
            joined = refers and not cues.is_question(before)
            pending = (f"{before} {sentence}" if joined else sentence, verdict)
        before = sentence
    if pending:
        yield pending


def _score(verdict: cues.Verdict) -> int:
    return verdict.score
