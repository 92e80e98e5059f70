"""Has memories consolidated: begins a run, shows what runs did, takes one back.

It does not own other changes to memories (`corrections.py`, `deletion.py`).

- A run works in the background; on a sealed account with the keys that were lent with its request.
- Beginning again while a run is unfinished gives that run; undoing again changes nothing.
- Every receipt that comes with an answer is verified before the answer is returned.

Source: SPEC.md §19.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from memrelay.answers import Answer, make_malformed_error, onward, sometimes
from memrelay.exchange import Operation
from memrelay.operations.keyholders import Keyholders
from memrelay.operations.reads import drop_unset, segment
from memrelay.session import Call

_PATH = "/v1/consolidations"
_UNDOING = frozenset({"state", "forget"})  # bringing back, and erasing what was made


@dataclass(frozen=True, kw_only=True)
class ConsolidationAction(Answer):
    """One thing that a run did, or would do; what it would make has no id yet.

    `merge`: the others were superseded by the memory; `stale`: it may no longer hold; `summary`,
    `procedure`: it was made of the others. `undone` is undone, skipped, outdated
    (it was erased since, for what it was made of was corrected) or None.
    """

    action: str
    memory_id: str | None
    other_ids: tuple[str, ...] = ()
    created_at: datetime | None = None
    undone: str | None = None


@dataclass(frozen=True, kw_only=True)
class Consolidation(Answer):
    """A run: queued, running, waiting (for the language model or for room), done or undone.

    Refused is one whose key may no longer write. `actor` is the public key that asked for it, the
    relayer's own for one by schedule.
    """

    id: str
    namespace: str
    state: str
    actor: str
    started_at: datetime
    finished_at: datetime | None
    merged: int
    stale: int
    summaries: int
    procedures: int
    actions: tuple[ConsolidationAction, ...] | None = sometimes()
    next_cursor: str | None = sometimes()


@dataclass(frozen=True, kw_only=True)
class ConsolidationPage(Answer):
    """Runs, newest first; `next_cursor` leads to the next page."""

    consolidations: tuple[Consolidation, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class ConsolidationPlan(Answer):
    """The actions that a run would take now, as far as was looked."""

    namespace: str
    actions: tuple[ConsolidationAction, ...]
    more: bool = False


@dataclass(frozen=True, kw_only=True)
class ConsolidationUndone(Consolidation):
    """A run that was taken back: how much of it, and how much had been changed since."""

    undone: int
    skipped: int
    more: bool = False
    receipts: tuple[str, ...] = ()


def consolidate(
    operations: Keyholders, *, namespace: str | None = None
) -> Operation[Consolidation]:
    """Begin to merge, flag and summarise a namespace's memories, in the background."""
    call = _make_begin_call(operations, namespace, dry_run=False)
    return Consolidation.from_json((yield from operations.session.call(call)))


def plan_consolidation(
    operations: Keyholders, *, namespace: str | None = None
) -> Operation[ConsolidationPlan]:
    """Return what a run would do now, without what a language model would find."""
    call = _make_begin_call(operations, namespace, dry_run=True)
    return ConsolidationPlan.from_json((yield from operations.session.call(call)))


def _make_begin_call(operations: Keyholders, namespace: str | None, *, dry_run: bool) -> Call:
    name = operations.namespace_of(namespace)
    return Call(
        method="POST",
        path="/v1/consolidate",
        body={"namespace": name, "dry_run": dry_run},
        unlock=[name],
        names_relayer=True,
        repeatable=True,
    )


def consolidations(
    operations: Keyholders,
    *,
    namespace: str | None = None,
    limit: int = 20,
    cursor: str | None = None,
) -> Operation[ConsolidationPage]:
    """Return a page of runs, newest first; without a namespace, of all that may be read."""
    query = drop_unset({"namespace": namespace, "limit": limit, "cursor": cursor})
    call = Call(method="GET", path=_PATH, query=query, repeatable=True)
    return ConsolidationPage.from_json((yield from operations.session.call(call)))


def consolidation(operations: Keyholders, run_id: str) -> Operation[Consolidation]:
    """Return one run, with all that it did."""
    actions: list[ConsolidationAction] = []
    cursor: str | None = None
    while True:
        call = Call(
            method="GET",
            path=f"{_PATH}/{segment(run_id)}",
            query=drop_unset({"limit": 200, "cursor": cursor}),
            repeatable=True,
        )
        found = Consolidation.from_json((yield from operations.session.call(call)))
        actions += found.actions or ()
        cursor = onward(cursor, found.next_cursor)
        if cursor is None:
            return replace(found, actions=tuple(actions))


def undo_consolidation(operations: Keyholders, run_id: str) -> Operation[ConsolidationUndone]:
    """Take back what a run did, and end it; what was changed since is skipped, and counted."""
    call = Call(
        method="POST",
        path=f"{_PATH}/{segment(run_id)}/undo",
        body={},
        names_relayer=True,
        repeatable=True,
    )
    undone = skipped = 0
    receipts: list[str] = []
    while True:
        found = ConsolidationUndone.from_json((yield from operations.session.call(call)))
        for receipt in found.receipts:
            yield from operations.session.note_receipt(receipt, op=_UNDOING)
        undone, skipped = undone + found.undone, skipped + found.skipped
        receipts += found.receipts
        if found.more and not found.undone + found.skipped:
            raise make_malformed_error("a part that did nothing")
        if not found.more:
            return replace(found, undone=undone, skipped=skipped, receipts=tuple(receipts))
