"""Facts from rules, where no language model is configured: sentences worth keeping, word for word.

It does not own telling messages and sentences apart (`conversation.py`), what is worth keeping
(`judge.py`), dates (`dates.py`), nor what makes a fact useless whoever found it (`facts.py`).
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from relayer.extraction.clauses import Form, clauses, form_of, has_statement
from relayer.extraction.conversation import messages, select_messages
from relayer.extraction.dates import event_time_ms
from relayer.extraction.english import introduces_text
from relayer.extraction.facts import FACT_CHARS_MAX, FACTS_MAX, RULES, Excerpt, Fact, distinct
from relayer.extraction.judge import (
    STATED,
    Verdict,
    is_declarative,
    is_question,
    judge,
    judge_user,
)
from relayer.extraction.language import is_foreign
from relayer.extraction.lists import Statement
from relayer.extraction.material import own_words
from relayer.extraction.message import Message
from relayer.extraction.moments import settle_zone
from relayer.extraction.pasted import without_pasted
from relayer.extraction.sentences import statements

_JOINED_CHARS_MAX: Final = 300


class SentenceExtractor:
    """Keeps the sentences worth keeping.

    Deterministic, and a message yields the same facts in every window it is sent in, so that
    sending it again stores nothing new:

    1. Messages are told apart (numbers, roles, names) and read one by one. One whose author orders
       the reader to break rules yields nothing: its other sentences are what it wants stored.
    2. Quotes, code, tool output, XML and pasted texts are cut out; the rest is split into
       sentences.
    3. What a user states is kept; talk, questions, orders and what holds for the moment are not.
       Cues put some before others. Of an assistant, and where nobody says who speaks, only what has
       cues is kept; so is a text without any label, because somebody sent just that.
    4. A sentence that starts with "it" or "that" takes the one before it along; a name before a
       message stands before each of its facts.
    5. The best `FACTS_MAX`, in their order.
    """

    name: Final = RULES

    async def extract(self, excerpt: Excerpt) -> list[Fact]:
        """Return the facts of `excerpt`, at most `FACTS_MAX`."""
        return await asyncio.to_thread(self._extract, excerpt)  # 64 KiB take about 0.3 s

    def _extract(self, excerpt: Excerpt) -> list[Fact]:
        alone = len(messages(excerpt.text)) == 1
        scored = [
            pair
            for said in select_messages(excerpt.text)
            for pair in _judge_sentences(said, excerpt.occurred_at, alone=alone)
        ]
        scores = {fact.text: score for score, fact in reversed(scored)}
        facts = distinct(fact for _, fact in scored)
        order = sorted(range(len(facts)), key=lambda n: -scores[facts[n].text])
        return [facts[n] for n in sorted(order[:FACTS_MAX])]


_REFERS_BACK: Final = re.compile(
    r"(?:it|its|this|that|these|those|they|he|she|his|her|their|there|the reason|es|er|diese[rs]?"
    r"|das (?:ist|sind|war|wird|hat|geht)|der grund)\b",
    re.IGNORECASE,
)
_IMPORTANCE_SCORE: Final = {"vital": 100, "standard": 0, "trivial": 0}


def _judge_sentences(
    message: Message, occurred_at: datetime | None, *, alone: bool
) -> list[tuple[int, Fact]]:
    """Return (score, fact) for each sentence of `message` worth keeping, in order."""
    prefix = f"{message.speaker}: " if message.speaker else ""
    room = FACT_CHARS_MAX - len(prefix)
    found = [s for s in statements(without_pasted(own_words(message.text))) if len(s.text) <= room]
    said = [statement.text for statement in found]
    if message.role == "user":
        verdicts = _of_user(found)
    else:
        by_assistant = message.role == "assistant"
        verdicts = [
            judge(s.text, by_assistant=by_assistant)
            or judge(_in_full(s), by_assistant=by_assistant)
            for s in found
        ]
        if message.role == "unknown" and not any(verdicts):
            verdicts = [_of_somebody(s, alone=alone) for s in said]
    return [
        (
            verdict.score + _IMPORTANCE_SCORE[verdict.importance],
            Fact(
                prefix + text,
                verdict.kind,
                verdict.importance,
                verdict.confidence,
                event_time_ms(text, _said_at(message, occurred_at)),
            ),
        )
        for text, verdict in _join_sentences(said, verdicts, room)
    ]


def _said_at(message: Message, occurred_at: datetime | None) -> datetime | None:
    """Return when a message was said, in the zone in which its days count."""
    if message.said_at is None:
        return occurred_at
    zone = occurred_at and occurred_at.tzinfo
    return settle_zone(message.said_at, zone) if zone else message.said_at


def _in_full(statement: Statement) -> str:
    """Return a statement as a sentence: a heading such as "My servers:" states what they are."""
    if not statement.lead:
        return statement.text
    return f"{statement.lead.rstrip(':：')} is{statement.text.removeprefix(statement.lead)}"


def _of_user(said: Sequence[Statement]) -> list[Verdict | None]:
    """Return a verdict on each sentence of a user.

    Behind an order to work on a text, and in a long one, none is surely theirs: only cues count.
    """
    verdicts, is_pasted = list[Verdict | None](), False
    for statement in said:
        refers_back = bool(verdicts and verdicts[-1]) and bool(_REFERS_BACK.match(statement.text))
        verdict = judge_user(statement.text, refers_back=refers_back)
        if verdict is None and statement.lead and not _asks(statement.lead):
            verdict = judge_user(_in_full(statement))
        is_pasted = is_pasted or introduces_text(statement.text, with_colon=False)
        verdicts.append(None if is_pasted and _is_plain(verdict) else verdict)
    is_long = sum(map(_is_plain, verdicts)) > FACTS_MAX
    return [None if is_long and _is_plain(verdict) else verdict for verdict in verdicts]


def _asks(lead: str) -> bool:
    """Tell whether a heading orders or asks something: "Run these:"."""
    return any(form_of(clause.words) in {Form.ORDER, Form.QUESTION} for clause in clauses(lead))


def _is_plain(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.score == STATED


def _of_somebody(sentence: str, *, alone: bool) -> Verdict | None:
    """Return a low verdict for a statement of which nobody says who made it.

    One in English may be an assistant's, unless somebody sent just that.
    """
    if not (alone or is_foreign(sentence)):
        return None
    if judge_user(sentence) is None and not (alone and is_declarative(sentence)):
        return None
    return Verdict(STATED, kind="fact", importance="trivial", confidence="low")


def _join_sentences(
    said: Sequence[str], verdicts: Sequence[Verdict | None], room: int
) -> Iterator[tuple[str, Verdict]]:
    """Yield (text, verdict), a sentence that refers back together with the one before it.

    No text grows past `room`; the sentence that would not fit starts anew.
    """
    pending: tuple[str, Verdict] | None = None
    before = ""
    for sentence, verdict in zip(said, verdicts, strict=True):
        short = len(before) + len(sentence) < _JOINED_CHARS_MAX
        refers = bool(before) and short and _REFERS_BACK.match(sentence) is not None
        fits = pending is not None and len(pending[0]) + 1 + len(sentence) <= room
        if verdict and refers and pending and fits and pending[0].endswith(before):
            pending = (f"{pending[0]} {sentence}", max(pending[1], verdict, key=_score))
        elif verdict:
            if pending:
                yield pending
            joined = refers and not is_question(before) and has_statement(before)
            pending = (f"{before} {sentence}" if joined else sentence, verdict)
        before = sentence
    if pending:
        yield pending


def _score(verdict: Verdict) -> int:
    return verdict.score
