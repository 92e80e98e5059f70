"""Reading files one after the other, and counting how what they hold fares.

It does not own the formats (`formats.py`), storing memories (`storing.py`) or having conversations
analyzed (`analyzing.py`).

- Memories are read as they are stored. Conversations wait until all files are read: they are
  analyzed in the order in which they took place, so that what was said later counts.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from memrelay.errors import ConfigError
from memrelay.importing.conversations import Conversation, Part, parts
from memrelay.importing.drafts import OTHERS, Entry, Fault, Omission, Page, guess_field
from memrelay.importing.formats import format_of, has_logs, read
from memrelay.importing.sources import File

UNKNOWN_MAX = 20  # members of a file that are told by name
_QUEUE_BYTES_MAX: Final = 1 << 30  # of parts of conversations, compressed


@dataclass
class Unknown:
    """A member that no memory has: the place where it stood first, and in how many entries."""

    member: str
    place: str
    entries: int = 0


@dataclass
class Tally:
    """The counts of one file's entries and conversations; `failed` ones were reported.

    `unknown` are members that were left out; the last one stands for all beyond the first 20.
    `omitted` counts what is no memory, by the reason (`found.OMITTED`). `superseded` ones are among
    the entries: they were stored as history. Of conversations, `parts` are analyzed: facts of them
    are `stored` or `known`. Some parts are `pending` at the relayer; those of earlier runs are
    `skipped`. `extractors` counts the others by who found their facts, `causes` the pending
    ones by why the language model did not.
    """

    file: str
    format: str
    entries: int = 0
    conversations: int = 0
    messages: int = 0
    parts: int = 0
    begin: str | None = None  # the days of the first and the last part
    end: str | None = None
    stored: int = 0
    edited: int = 0
    known: int = 0
    pending: int = 0
    skipped: int = 0
    expired: int = 0
    failed: int = 0
    superseded: int = 0
    redacted: int = 0  # secrets that the relayer took out of what was stored
    omitted: dict[str, int] = field(default_factory=dict)
    extractors: dict[str, int] = field(default_factory=dict)
    causes: dict[str, int] = field(default_factory=dict)
    page: Page | None = None  # what it is one of, if it is
    unknown: list[Unknown] = field(default_factory=list)

    def leave_out(self, entry: Entry) -> None:
        """Count what an entry has that no memory has, an entry once for each that is told."""
        left = {id(one): one for one in (self._get_unknown(name, entry) for name in entry.unknown)}
        for one in left.values():
            one.entries += 1

    def _get_unknown(self, name: str, entry: Entry) -> Unknown:
        for one in self.unknown:
            if one.member == name:
                return one
        if len(self.unknown) <= UNKNOWN_MAX:
            member = name if len(self.unknown) < UNKNOWN_MAX else OTHERS
            self.unknown.append(Unknown(member, entry.place))
        return self.unknown[-1]

    def omit(self, reason: str) -> None:
        """Count what was left out because it is no memory."""
        self.omitted[reason] = self.omitted.get(reason, 0) + 1

    def add(self, part: Part) -> None:
        """Count a part of a conversation."""
        self.parts += 1
        self.messages += part.messages
        if part.time is not None:
            day = part.time.date().isoformat()
            self.begin = min(self.begin or day, day)
            self.end = max(self.end or day, day)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Item:
    """An entry, and the tally of its file."""

    entry: Entry
    tally: Tally


@dataclass(frozen=True, slots=True)
class QueuedPart:
    """A part of a conversation that waits until all files are read, and the tally of its file."""

    tally: Tally
    place: str
    conversation: str
    time: datetime | None
    messages: int
    identity: str
    packed: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The messages as a relayer reads them."""
        return zlib.decompress(self.packed).decode()


Failed = Callable[[str, str, str], None]  # is told the file, the place in it and the reason


class Reading:
    """The entries and conversations of some files.

    `format` None lets each file tell its own; times without an offset are those of `zone`, UTC if
    it is None. Days of conversations are those of `zone`, or of this machine's. With `strict`, an
    entry with a member that no memory has fails. Of conversations, only what was said on the day
    `since` or after counts; what has no time counts.
    """

    def __init__(
        self,
        files: Iterable[File],
        failed: Failed,
        *,
        format: str | None,
        zone: tzinfo | None,
        strict: bool = False,
        since: datetime | None = None,
    ) -> None:
        self.tallies: list[Tally] = []
        self._files = tuple(files)
        self._failed = failed
        self._format = format
        self._zone = zone
        self._strict = strict
        self._since = since
        self._queue: list[QueuedPart] = []
        self._queue_bytes = 0

    def items(self) -> Iterator[Item]:
        """Yield the memories of the files, in order; keep the parts of conversations."""
        with_logs = has_logs(self._files)
        for file in self._files:
            format = self._format or format_of(file)
            tally = Tally(file.name, format)
            self.tallies.append(tally)
            for found in read(file, format, zone=self._zone or UTC, with_logs=with_logs):
                if isinstance(found, Conversation):
                    self._keep(tally, found)
                elif isinstance(found, Omission):
                    tally.omit(found.reason)
                elif isinstance(found, Page):
                    tally.page = found
                elif isinstance(found, Fault) and found.expired:
                    tally.expired += 1
                elif isinstance(found, Fault):
                    fail(tally, found, self._failed)
                elif found.unknown and self._strict:
                    names = ", ".join(map(member_told, found.unknown))
                    fail(tally, Fault(found.place, f"no memory has {names}"), self._failed)
                else:
                    tally.entries += 1 + len(found.earlier)
                    tally.superseded += len(found.earlier)
                    tally.leave_out(found)
                    yield Item(found, tally)

    def _keep(self, tally: Tally, conversation: Conversation) -> None:
        kept = False
        for part in parts(conversation, self._zone):
            if self._since and part.time is not None and part.time < self._since:
                continue
            kept = True
            tally.add(part)
            packed = zlib.compress(part.text.encode(), 1)
            self._queue_bytes += len(packed)
            if self._queue_bytes > _QUEUE_BYTES_MAX:
                raise ConfigError(
                    "These are more than 1 GiB of conversations, compressed: import fewer files"
                    " at a time, or what was said --since some day."
                )
            where = conversation.place, conversation.id
            self._queue.append(
                QueuedPart(tally, *where, part.time, part.messages, part.identity, packed)
            )
        tally.conversations += kept

    def queue(self) -> list[QueuedPart]:
        """Return the parts of all conversations in the order in which they took place."""
        return sorted(self._queue, key=lambda one: one.time or datetime.min.replace(tzinfo=UTC))


def member_told(name: str) -> str:
    """Return a member's name as people are told it, with what was meant by it."""
    if name == OTHERS:
        return "other members"
    meant = guess_field(name)
    return f'"{name}"' + (f' (did you mean "{meant}"?)' if meant else "")


def fail(tally: Tally, fault: Fault, failed: Failed) -> None:
    """Count what could not be imported, and tell whoever asked."""
    tally.failed += 1
    failed(tally.file, fault.place, fault.reason)
