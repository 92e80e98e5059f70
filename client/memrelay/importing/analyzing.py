"""Having conversations analyzed, part by part, in the order in which they took place.

It does not own reading them (`reader.py`), finding facts, which the relayer does, or what people
are told (`commands/imports.py`).

- A part is sent once the one before it was answered: of two statements, the later one counts.
- What was analyzed is noted at once. So an import that was killed goes on where it was, and a part
  that was under way is known again by its idempotency key.
- A part that is refused is told, and does not stop the rest.
"""

from collections.abc import Callable, Sequence
from uuid import uuid4

from memrelay.async_client import MemoryClient
from memrelay.errors import BadRequest, Conflict, TooLarge
from memrelay.extraction import is_pending
from memrelay.importing.drafts import Fault, source_of
from memrelay.importing.journal import Journal
from memrelay.importing.reader import Failed, QueuedPart, Tally, fail
from memrelay.models import Analysis, secrets_in
from memrelay.sealed.keys import normalise_namespace

_OTHER_TEXT = "idempotency.conflict"
_REFUSED = (BadRequest, TooLarge, Conflict)


class Analyzing:
    """One import's conversations: sends their parts, and keeps the ids of facts when asked to.

    With `again`, what was analyzed in earlier runs is analyzed once more.
    """

    def __init__(
        self,
        client: MemoryClient,
        *,
        namespace: str | None,
        failed: Failed,
        again: bool = False,
        keep_ids: bool = False,
    ) -> None:
        self.ids: list[str] = []
        settings = client.settings
        self._client = client
        self._namespace = namespace or settings.namespace
        self._failed = failed
        self._keep_ids = keep_ids
        self._run = uuid4().hex if again else ""
        self._journal = Journal(settings.identity, settings.seen_path)

    async def run(
        self, queue: Sequence[QueuedPart], *, progress: Callable[[int, int | None], None]
    ) -> None:
        """Have all parts analyzed, each once.

        Raises:
            MemrelayError: the relayer could not be reached, or refused more than single parts.
        """
        sent = set[str]()
        for done, part in enumerate(queue, 1):
            text = part.text
            name = self._journal.name(normalise_namespace(self._namespace), part.identity, text)
            if name in sent or (name in self._journal and not self._run):
                part.tally.skipped += 1
            else:
                sent.add(name)
                await self._send(part, text, name)
            progress(done, len(queue))

    async def _send(self, part: QueuedPart, text: str, name: str) -> None:
        try:
            await self._analyze(part, text, name)
        except _REFUSED as error:
            if error.code == _OTHER_TEXT:  # the relayer's rules of redaction have changed
                part.tally.skipped += 1
            else:
                fail(part.tally, Fault(part.place, f"refused: {error}"), self._failed)
        else:
            self._journal.add(name)

    async def _analyze(self, part: QueuedPart, text: str, name: str) -> None:
        analysis = await self._client.analyze(
            text,
            namespace=self._namespace,
            occurred_at=part.time,
            source=source_of(part.tally.file, part.conversation),
            idempotency_key=f"{name}{self._run}",
        )
        self._count(part.tally, analysis)

    def _count(self, tally: Tally, analysis: Analysis) -> None:
        new = [fact for fact in analysis.facts if not fact.duplicate]
        tally.stored += len(new)
        tally.known += len(analysis.facts) - len(new) + len(analysis.reinforced)
        tally.pending += analysis.episode_id is not None
        if is_pending(analysis):
            _add_one(tally.causes, analysis.failure or "")
        elif analysis.extractor is not None:
            _add_one(tally.extractors, analysis.extractor)
        tally.redacted += secrets_in(analysis.redacted)
        if self._keep_ids:
            self.ids += [fact.id for fact in analysis.facts]


def _add_one(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
