"""Facts from real small models: kept, junk and invented, calls a turn, answers lost to their form.

Not here: the models and their server (`model_server.py`), the conversations (`extraction.py`).

- The models are far too small to be good. They loop, stop too early and fill fields with anything,
  which is what this part is for: no answer may be lost to its form, and nothing that a conversation
  does not say may be stored as if it did.
- Each window of ten messages is one question to the model, through the relayer's own extractor.
- An answer is lost to its form if nothing of it can be read. Very small models also write an answer
  of the right form that only repeats their prompt ("the user"). The relayer asks the rules then.
- A marked fact is kept if a stored one has half of its words. A stored fact is junk if it has half
  of its words from no marked one. Invented is a stored fact with a number, or a name within its
  sentence, that the window does not have; what waits for review is not stored for recall, and is
  counted apart.
- The models live in `.venv-models` (`make bench BENCH=models` builds it).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from bench.extraction import CONVERSATIONS, WINDOW, lines, numbered
from bench.figures import Bounds, Figure, Report
from bench.model_server import MODELS
from bench.running import Scale, Site, listening
from relayer.errors import Unavailable
from relayer.extraction.facts import Excerpt, Fact
from relayer.extraction.model import LlmExtractor
from relayer.llm import LanguageModel

PYTHON: Final = Path(".venv-models/bin/python")
CALL_S_MAX: Final = 900.0  # two slow cores; how long a call takes is not what is measured
MEASURED: Final = ("demo", "held out")
INVENTED: Final = Bounds(must=0.02, aim=0.0)
LOST: Final = Bounds(must=0, aim=0)
_SHARE: Final = 0.5
_WORD: Final = re.compile(r"\w+")
_NUMBER: Final = re.compile(r"\d+")
_NAME: Final = re.compile(r"(?<=[\w,;] )[A-ZÀ-Þ][\w'’-]+")


@dataclass
class Outcome:
    """The facts that a model found in one conversation, and its failures."""

    windows: int = 0
    lost: int = 0  # windows whose answer could not be read
    repeated: int = 0  # windows whose answer has the form and only repeats the prompt
    stored: list[Fact] = field(default_factory=list)
    waiting: list[Fact] = field(default_factory=list)  # for review
    invented: list[str] = field(default_factory=list)  # of the stored ones


class Counts(NamedTuple):
    """How often a model was asked, and how many of its answers were no JSON."""

    requests: int
    malformed: int


async def measure(site: Site, scale: Scale) -> Report:
    """Return the part's report; without their environment only how to make it."""
    if not PYTHON.exists():
        return Report(notes=[f"left out: there is no {PYTHON}; make bench BENCH=models builds it"])
    report = Report()
    for name in MODELS:
        arguments = ["bench.model_server", name]
        async with listening(arguments, site.folder, python=str(PYTHON)) as server:
            for conversation in MEASURED[:1] if scale.quick else MEASURED:
                turns, marked = map(lines, CONVERSATIONS[conversation])
                before = await _counts(server.url)
                outcome = await _extract(server.url, turns, limit=1 if scale.quick else None)
                calls = (await _counts(server.url)).requests - before.requests
                sentences = [fact["sentence"] for fact in marked]
                _report(report, f"{name}, {conversation}", outcome, sentences, calls)
    return report


async def _counts(url: str) -> Counts:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{url}/requests")
    return Counts(**answer.json())


async def _extract(url: str, turns: list[dict[str, Any]], *, limit: int | None) -> Outcome:
    """Ask the model for the facts of every window, of the first `limit` ones if it is given."""
    model = LanguageModel(base_url=url, api_key=None, model="small", timeout_s=CALL_S_MAX)
    extractor = LlmExtractor(model=model)
    outcome = Outcome()
    try:
        for window in list(_windows(turns))[:limit]:
            outcome.windows += 1
            said_at = datetime.fromisoformat(window[-1]["at"])
            text = numbered(window)
            before = await _counts(url)
            try:
                facts = await extractor.extract(Excerpt(text, said_at))
            except Unavailable as error:
                is_malformed = (await _counts(url)).malformed > before.malformed
                outcome.lost += is_malformed
                outcome.repeated += not is_malformed
                print(f"{error.code} ({error.cause}), malformed: {is_malformed}")
                continue
            for fact in facts:
                (outcome.waiting if fact.is_unsupported else outcome.stored).append(fact)
            believed = [fact.text for fact in facts if not fact.is_unsupported]
            outcome.invented += [fact for fact in believed if _invents(fact, text, said_at)]
    finally:
        await model.close()
    return outcome


def _windows(turns: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for _, session in groupby(turns, key=lambda turn: turn["session"]):
        messages = list(session)
        yield from (messages[at : at + WINDOW] for at in range(0, len(messages), WINDOW))


def _invents(fact: str, text: str, said_at: datetime) -> bool:
    """Return whether a fact has a number or a name that the window and its time do not have.

    A year beside the window's may be counted from it, and no other number.
    """
    source = f"{text} {said_at.isoformat()}".casefold()
    numbers = set(_NUMBER.findall(source)) | {str(said_at.year + n) for n in (-1, 1)}
    names = [name.removesuffix("'s").removesuffix("’s") for name in _NAME.findall(fact)]
    return not numbers.issuperset(_NUMBER.findall(fact)) or any(
        name.casefold() not in source for name in names
    )


def _report(report: Report, name: str, outcome: Outcome, marked: Sequence[str], calls: int) -> None:
    stored = [_words(fact.text) for fact in outcome.stored]
    wanted = [_words(sentence) for sentence in marked]
    kept = sum(any(_covers(fact, one) for fact in stored) for one in wanted)
    junk = sum(not any(_covers(one, fact) for one in wanted) for fact in stored)
    count = max(len(stored), 1)
    report.figures += [
        _share(f"{name}: kept, of {len(marked)} marked", kept / len(marked)),
        _share(f"{name}: junk, of {len(stored)} stored", junk / count),
        _share(f"{name}: invented, of what is stored", len(outcome.invented) / count, INVENTED),
        Figure(name=f"{name}: wait for review", value=len(outcome.waiting), unit="facts"),
        Figure(name=f"{name}: calls a turn", value=calls / outcome.windows, unit="calls"),
        Figure(name=f"{name}: answers lost to form", value=outcome.lost, unit="", bounds=LOST),
        Figure(name=f"{name}: answers that repeat the prompt", value=outcome.repeated, unit=""),
    ]
    report.notes += [f"{name}, invented: {text}" for text in outcome.invented]


def _share(name: str, value: float, bounds: Bounds | None = None) -> Figure:
    return Figure(name=name, value=value, unit="share", bounds=bounds)


def _words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text) if len(word) > 2)


def _covers(words: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether `words` hold enough of `other`."""
    return bool(other) and len(words & other) >= _SHARE * len(other)
