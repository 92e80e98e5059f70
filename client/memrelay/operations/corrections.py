"""Corrects texts, states, what waits for review, and the account's settings.

It does not own storing (`writes.py`) or erasing (`deletion.py`).

- An edit names the revision it was made from, so that nobody's newer words are lost by it.
- A state that is so already is left alone, and gives no receipt: repeating does no harm.
- Every receipt that comes with an answer is verified before the answer is returned.

Source: SPEC.md §13.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from memrelay.answers import Answer, rfc3339
from memrelay.errors import UntrustedRelayer
from memrelay.exchange import Operation
from memrelay.models import Analysis
from memrelay.operations.reads import Moment, drop_unset, segment, to_json_list
from memrelay.operations.writes import Writes
from memrelay.outcomes import AccountSettings, Edited, StateChanged
from memrelay.session import Call

CLEARABLE = ("tags", "source", "event_time", "metadata", "expires_at")
_EMPTY: Mapping[str, Any] = {"tags": [], "metadata": {}}


@dataclass(frozen=True, kw_only=True)
class ChosenSettings(Answer):
    """The settings that an account has chosen."""

    settings: AccountSettings


class Corrections(Writes):
    """The operations that change what is stored, and all that store and read."""

    def edit(
        self,
        memory_id: str,
        *,
        text: str | None = None,
        kind: str | None = None,
        tags: Iterable[str] | None = None,
        source: str | None = None,
        event_time: Moment | None = None,
        metadata: Mapping[str, Any] | None = None,
        importance: str | None = None,
        confidence: str | None = None,
        expires_at: Moment | None = None,
        clear: Iterable[str] = (),
        revision: int | None = None,
        namespace: str | None = None,
        idempotency_key: str | None = None,
    ) -> Operation[Edited]:
        """Correct a memory; what is not given stays, and its earlier revision stays as history.

        `clear` names what it shall have no more: `tags`, `source`, `event_time`, `metadata`,
        `expires_at`. `revision` is the one that was seen; `namespace` the one it is in, which
        saves sending the keys of others.

        Raises:
            Conflict: `memory.revision`, it has another revision by now; `memory.duplicate`,
                another memory says this already.
            ValueError: it cannot be without something that is to be cleared, or tags are a text.
        """
        changes = drop_unset(
            {
                "text": text,
                "kind": kind,
                "tags": to_json_list("tags", tags),
                "source": source,
                "event_time": None if event_time is None else rfc3339(event_time),
                "metadata": None if metadata is None else dict(metadata),
                "importance": importance,
                "confidence": confidence,
                "expires_at": None if expires_at is None else rfc3339(expires_at),
                "revision": revision,
            }
        )
        body = {
            **changes,
            **_clear_fields(clear),
            "idempotency_key": idempotency_key or str(uuid4()),
        }
        names = yield from self.likely_names(namespace)
        path = f"/v1/memories/{segment(memory_id)}"
        asked = self.session.note_request()
        answer = yield from self._change("PATCH", path, body, unlock=names)
        result = Edited.from_json(answer)
        check_same_id(memory_id, result.id)
        if not result.unchanged:
            receipt = yield from self.session.note_receipt(result.receipt, op="edit", asked=asked)
            if (result.id, result.revision) not in {item[:2] for item in receipt.items}:
                raise UntrustedRelayer("receipt", "A receipt is for another revision.")
        return result

    def pin(self, memory_id: str) -> Operation[StateChanged]:
        """Protect a memory from being superseded by rule, merged, or expired by its namespace."""
        return (yield from self.set_state(memory_id, pinned=True))

    def unpin(self, memory_id: str) -> Operation[StateChanged]:
        """Take a memory's protection away."""
        return (yield from self.set_state(memory_id, pinned=False))

    def approve(self, memory_id: str) -> Operation[StateChanged]:
        """Let a memory that waits be recalled, or one that is doubted stand beside the others."""
        return (yield from self.set_state(memory_id, review="approved"))

    def reject(self, memory_id: str) -> Operation[StateChanged]:
        """Keep a memory out of recall; it stays known, so that it is not stored again."""
        return (yield from self.set_state(memory_id, review="rejected"))

    def supersede(self, memory_id: str, *, by: str) -> Operation[StateChanged]:
        """Let another memory take the place of this one, which stays as history."""
        return (yield from self._set_state(memory_id, {"superseded_by": by}))

    def reinstate(self, memory_id: str) -> Operation[StateChanged]:
        """Bring a superseded memory back into recall.

        Raises:
            Conflict: another memory says the same by now.
        """
        return (yield from self._set_state(memory_id, {"superseded_by": None}))

    def set_state(
        self,
        memory_id: str,
        *,
        pinned: bool | None = None,
        review: str | None = None,
        stale: bool | None = None,
    ) -> Operation[StateChanged]:
        """Change what is said about a memory, not what it says; `review`: approved or rejected."""
        changes = drop_unset({"pinned": pinned, "review": review, "stale": stale})
        return (yield from self._set_state(memory_id, changes))

    def _set_state(self, memory_id: str, changes: Mapping[str, Any]) -> Operation[StateChanged]:
        path = f"/v1/memories/{segment(memory_id)}/state"
        asked = self.session.note_request()
        answer = yield from self._change("POST", path, changes)
        result = StateChanged.from_json(answer)
        check_same_id(memory_id, result.id)
        if result.receipt is not None:
            yield from self.session.note_receipt(
                result.receipt, op="state", ids=[result.id], asked=asked
            )
        return result

    def resolve(self, memory_id: str, *, others: Iterable[str]) -> Operation[StateChanged]:
        """Let a doubted memory take the place of the others, which it speaks against."""
        for other in to_json_list("others", others) or ():
            yield from self.supersede(other, by=memory_id)
        return (yield from self.approve(memory_id))

    def analyze_episode(
        self, episode_id: str, *, namespace: str | None = None
    ) -> Operation[Analysis]:
        """Find the facts of a kept conversation again; known ones are not stored twice."""
        names = yield from self.likely_names(namespace)
        path = f"/v1/episodes/{segment(episode_id)}/analyze"
        asked = self.session.note_request()
        answer = yield from self._change("POST", path, {}, unlock=names)
        return (yield from self.note_analysis(answer, asked))

    def account_settings(self) -> Operation[AccountSettings]:
        """Return what the account has chosen."""
        call = Call(method="GET", path="/v1/settings", repeatable=True)
        return ChosenSettings.from_json((yield from self.session.call(call))).settings

    def change_settings(
        self,
        *,
        redact: bool | None = None,
        contradictions: str | None = None,
        low_confidence: str | None = None,
        keep_turns: bool | None = None,
        count_recalls: bool | None = None,
        consolidate_every_h: int | None = None,
    ) -> Operation[AccountSettings]:
        """Choose anew for the account; what is not given stays. Owners only."""
        changes = drop_unset(
            {
                "redact": redact,
                "contradictions": contradictions,
                "low_confidence": low_confidence,
                "keep_turns": keep_turns,
                "count_recalls": count_recalls,
                "consolidate_every_h": consolidate_every_h,
            }
        )
        return ChosenSettings.from_json(
            (yield from self._change("PATCH", "/v1/settings", changes))
        ).settings

    def _change(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        *,
        unlock: Iterable[str] | None = None,
    ) -> Operation[Any]:
        call = Call(
            method=method,
            path=path,
            body=body,
            unlock=unlock,
            repeatable=True,
            names_relayer=True,
        )
        return (yield from self.session.call(call))


def check_same_id(asked: str, told: str) -> None:
    """Return when an answer is about the memory that it was asked for, however its id is written.

    Raises:
        UntrustedRelayer: `id`, when it is another one's: with it, an older receipt would pass.
    """
    if asked.replace("-", "").lower() != told.replace("-", "").lower():
        raise UntrustedRelayer("id", "The relayer answered for another memory than asked.")


def _clear_fields(names: Iterable[str]) -> dict[str, Any]:
    wanted = to_json_list("clear", names) or []
    wrong = set(wanted).difference(CLEARABLE)
    if wrong:
        raise ValueError(f"Only {', '.join(CLEARABLE)} can be cleared.")
    return {name: _EMPTY.get(name) for name in wanted}
