"""Reads as much of somebody's files as can be shown at once, and asks about what came of it.

It does not own reading them (`reader.py`), storing (`storing.py`, `analyzing.py`) or what people
are shown (`commands/trial.py`).

- The newest files and conversations come first: they say most about whoever looks.
- A question is made of a few words of a memory, the rarest among all that was found. So it is no
  proof of quality, and who shows it says where it comes from.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from memrelay.async_client import MemoryClient
from memrelay.errors import TimedOut
from memrelay.importing.analyzing import Analyzing
from memrelay.importing.reader import Failed, Item, QueuedPart, Reading
from memrelay.importing.sources import File
from memrelay.importing.storing import Storing
from memrelay.models import Memory, relevance_percent

FILES_MAX: Final = 500
BYTES_MAX: Final = 64 << 20  # the newest file is read however large it is
MEMORIES_MAX: Final = 400
PARTS_MAX: Final = 100
STORE_S: Final = 60.0
WAIT_S: Final = 60.0
_QUESTION_WORDS: Final = 4
_WORD: Final = re.compile(r"[^\W\d_]{3,24}")
_SCANNED_CHARS: Final = 2_000
T = TypeVar("T")


class Answered(NamedTuple):
    """A question, and the memory that a recall put first; None for nothing found."""

    question: str
    memory: Memory | None

    @property
    def relevance(self) -> int | None:
        """How near the memory is to the question, in per cent."""
        if self.memory is None or self.memory.distance is None:
            return None
        return relevance_percent(self.memory.distance)


@dataclass
class Sample:
    """The part of some files that is stored; the rest is counted."""

    items: list[Item]
    parts: list[QueuedPart]
    memories_left: int
    parts_left: int


@dataclass(frozen=True)
class Trial:
    """The memories that came of a sample, newest first, and the answers of recalls."""

    memories: Sequence[Memory]
    answers: Sequence[Answered]
    is_by_words: bool  # not all could be found by meaning in time


def choose_newest(files: Sequence[File]) -> tuple[list[File], int]:
    """Return the newest files that are read, in the given order, and how many others there are."""
    newest = sorted(files, key=_changed_at, reverse=True)
    chosen, total = set[File](), 0
    for file in newest[:FILES_MAX]:
        total += 0 if file.member else _size_of(file)
        if chosen and total > BYTES_MAX:
            break
        chosen.add(file)
    return [file for file in files if file in chosen], len(files) - len(chosen)


def read_sample(reading: Reading) -> Sample:
    """Read all files; keep as many memories, and as many of the newest parts, as are stored."""
    found = reading.items()
    items = list(islice(found, MEMORIES_MAX))
    memories_left = sum(1 for _ in found)  # conversations are read on the way
    queue = reading.queue()
    parts = queue[-PARTS_MAX:]
    return Sample(items, parts, memories_left, len(queue) - len(parts))


async def store_sample(client: MemoryClient, sample: Sample, failed: Failed) -> None:
    """Store a sample; what is not under way after a minute is counted as left."""
    until_s = time.monotonic() + STORE_S
    storing = Storing(client, namespace=None, failed=failed)
    analyzing = Analyzing(client, namespace=None, failed=failed)
    items = iter(sample.items)
    await storing.run(_until(items, until_s), progress=_pass_over)
    sample.memories_left += sum(1 for _ in items)
    for done, part in enumerate(sample.parts):
        if time.monotonic() > until_s:
            sample.parts_left += len(sample.parts) - done
            break
        await analyzing.run([part], progress=_pass_over)


async def try_recalls(client: MemoryClient) -> Trial:
    """Return what is stored, with some questions that recalls answer."""
    memories = [memory async for memory in client.memories()]
    is_by_words = False
    try:
        await client.wait([memory.id for memory in memories], timeout_s=WAIT_S)
    except TimedOut:
        is_by_words = True
    answers = []
    for question in choose_questions([memory.text or "" for memory in memories]):
        found = await client.recall(question, limit=1)
        is_by_words = is_by_words or bool(found.degraded)
        answers.append(Answered(question, found.results[0] if found.results else None))
    return Trial(memories, answers, is_by_words)


def choose_questions(texts: Sequence[str]) -> list[str]:
    """Return a question for the first, the middle and the last text that has words enough.

    It has the words that the fewest texts have, longer ones first, in the text's own order.
    """
    words = [_WORD.findall(text[:_SCANNED_CHARS]) for text in texts]
    texts_with = Counter(word for found in words for word in {one.casefold() for one in found})
    asked: dict[str, None] = {}
    for found in filter(lambda found: len(found) > 1, words):
        unique = list({word.casefold(): word for word in reversed(found)}.values())[::-1]
        rare = sorted(unique, key=lambda word: (texts_with[word.casefold()], -len(word)))
        chosen = set(rare[:_QUESTION_WORDS])
        asked.setdefault(" ".join(word for word in unique if word in chosen))
    return spread(list(asked))


def spread(every: Sequence[T]) -> list[T]:
    """Return the first, the middle and the last one, as far as these differ."""
    places = {0, len(every) // 2, len(every) - 1} if every else set[int]()
    return [every[place] for place in sorted(places)]


def _until(items: Iterator[Item], until_s: float) -> Iterator[Item]:
    while time.monotonic() <= until_s:
        try:
            yield next(items)
        except StopIteration:
            return


def _pass_over(done: int, of: int | None = None) -> None:
    """Tell nobody: the whole takes little more than a minute."""


def _changed_at(file: File) -> float:
    try:
        return file.path.stat().st_mtime
    except OSError:
        return 0.0


def _size_of(file: File) -> int:
    try:
        return file.path.stat().st_size
    except OSError:
        return 0
