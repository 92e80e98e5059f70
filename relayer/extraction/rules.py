"""Facts from rules, where no language model is configured: sentences worth keeping, word for word.

It does not own telling messages and sentences apart (`conversation.py`), what is worth keeping
(`judge.py`), dates (`dates.py`), nor what makes a fact useless whoever found it (`facts.py`).
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from relayer.extraction.conversation import Message, heard, messages, own_words, sentences
from relayer.extraction.dates import event_time_ms
from relayer.extraction.facts import FACT_CHARS_MAX, FACTS_MAX, Excerpt, Fact, distinct
from relayer.extraction.judge import Verdict, is_declarative, is_question, judge
from relayer.extraction.language import is_foreign

_JOINED_CHARS_MAX: Final = 300


class SentenceExtractor:
    """Keeps the sentences worth keeping.

    Deterministic, and a message yields the same facts in every window it is sent in, so that
    sending it again stores nothing new:

    1. Messages are told apart (numbers, roles, names) and read one by one. One whose author orders
       the reader to break rules yields nothing: its other sentences are what it wants stored.
    2. Quotes, code, tool output and XML are cut out; the rest is split into sentences.
    3. Each sentence is judged by its cues. One that starts with "it" or "that" takes the sentence
       before it along; a name before a message stands before each of its facts.
    4. Scripts and languages that the table has no words of: plain statements are kept with low
       confidence. So is a text without any label or cue, because somebody sent just that.
    5. The best `FACTS_MAX`, in their order.
    """

    async def extract(self, excerpt: Excerpt) -> list[Fact]:
        """Return the facts of `excerpt`, at most `FACTS_MAX`."""
        return await asyncio.to_thread(self._extract, excerpt)  # 64 KiB take about 0.25 s

    def _extract(self, excerpt: Excerpt) -> list[Fact]:
        alone = len(messages(excerpt.text)) == 1
        scored = [pair for said in heard(excerpt.text) for pair in _judged(said, alone=alone)]
        scores = {fact.text: score for score, fact in reversed(scored)}
        facts = distinct(fact for _, fact in scored)
        order = sorted(range(len(facts)), key=lambda n: -scores[facts[n].text])
        return [
            replace(facts[n], event_time_ms=event_time_ms(facts[n].text, excerpt.occurred_at))
            for n in sorted(order[:FACTS_MAX])
        ]


_REFERS_BACK: Final = re.compile(
    r"(?:it|its|this|that|these|those|they|he|she|his|her|their|there|the reason|es|er|diese[rs]?"
    r"|das (?:ist|sind|war|wird|hat|geht)|der grund)\b",
    re.IGNORECASE,
)
_IMPORTANCE_SCORE: Final = {"vital": 100, "standard": 0, "trivial": 0}


def _judged(message: Message, *, alone: bool) -> list[tuple[int, Fact]]:
    """Return (score, fact) for each sentence of `message` worth keeping, in order."""
    prefix = f"{message.speaker}: " if message.speaker else ""
    room = FACT_CHARS_MAX - len(prefix)
    said = [s for s in sentences(own_words(message.text)) if len(s) <= room]
    by = {"by_assistant": message.role == "assistant", "by_user": message.role == "user"}
    verdicts = [judge(s, **by) for s in said]
    if not any(verdicts):
        verdicts = [_plain(s, message, alone=alone) for s in said]
    return [
        (
            verdict.score + _IMPORTANCE_SCORE[verdict.importance],
            Fact(prefix + text, verdict.kind, verdict.importance, verdict.confidence),
        )
        for text, verdict in _joined(said, verdicts, room)
    ]


def _plain(sentence: str, message: Message, *, alone: bool) -> Verdict | None:
    """Return a low verdict for a statement without cues where that is all there is to go by."""
    sent = alone and message.role == "unknown"
    foreign = message.role != "assistant" and is_foreign(sentence)
    if not ((sent or foreign) and is_declarative(sentence)):
        return None
    return Verdict(score=1, kind="fact", importance="trivial", confidence="low")


def _joined(
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
            joined = refers and not is_question(before)
            pending = (f"{before} {sentence}" if joined else sentence, verdict)
        before = sentence
    if pending:
        yield pending


def _score(verdict: Verdict) -> int:
    return verdict.score
