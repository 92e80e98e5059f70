"""Lists memories, a memory's history, what waits for review, and kept conversations.

It does not own recall (`reads.py`) or what changes memories (`writes.py`, `corrections.py`).

Source: SPEC.md §11, §13.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from memrelay.answers import onward, rfc3339
from memrelay.errors import NotGranted
from memrelay.exchange import ANSWER_BYTES_MAX, LONG_ANSWER_BYTES_MAX, Operation, memories_bytes_max
from memrelay.models import Memory, Page
from memrelay.operations.reads import Moment, Reads, drop_unset, segment, to_json_list
from memrelay.outcomes import Episode, EpisodePage, History, ReviewPage
from memrelay.sealed.keys import normalise_namespace
from memrelay.session import Call, parse_namespace

UNLOCK_NAMES_MAX = 16  # surely fit into one header


class Filters(TypedDict, total=False):
    """The filters of a list: a memory must fit all that are given.

    `tags`: it has each of them. `after`, `before`: as for a recall. `state`: `active` unless said.
    """

    kind: str | None
    tags: Iterable[str] | None
    source: str | None
    writer: str | None
    after: Moment | None
    before: Moment | None
    state: str | None
    pinned: bool | None


class Lists(Reads):
    """The operations that show what there is, without a query."""

    def list(
        self,
        *,
        namespace: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
        never_recalled: bool = False,
        **filters: Unpack[Filters],
    ) -> Operation[Page]:
        """Return a page of memories, newest first; `filters` are those of `Filters`.

        Only an account that counts recalls knows which were `never_recalled`.
        """
        answer = yield from self._page(
            "/v1/memories",
            namespace,
            limit,
            cursor,
            _query(filters) | ({"never_recalled": "true"} if never_recalled else {}),
            answer_bytes_max=memories_bytes_max(limit),
        )
        return Page.from_json(answer)

    def review(
        self, *, namespace: str | None = None, limit: int = 20, cursor: str | None = None
    ) -> Operation[ReviewPage]:
        """Return a page of the memories that somebody should look at, and why."""
        # With each come all that it contradicts.
        answer = yield from self._page(
            "/v1/review", namespace, limit, cursor, {}, answer_bytes_max=LONG_ANSWER_BYTES_MAX
        )
        return ReviewPage.from_json(answer)

    def episodes(
        self, *, namespace: str | None = None, limit: int = 20, cursor: str | None = None
    ) -> Operation[EpisodePage]:
        """Return a page of the conversations that were kept, without their texts."""
        answer = yield from self._page("/v1/episodes", namespace, limit, cursor, {})
        return EpisodePage.from_json(answer)

    def _page(
        self,
        path: str,
        namespace: str | None,
        limit: int,
        cursor: str | None,
        filters: Mapping[str, Any],
        *,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Operation[Any]:
        name = self.namespace_of(namespace)
        query = drop_unset({"namespace": name, "limit": limit, "cursor": cursor, **filters})
        call = Call(
            method="GET",
            path=path,
            query=query,
            unlock=[name],
            repeatable=True,
            answer_bytes_max=answer_bytes_max,
        )
        return (yield from self.session.call(call))

    def get(
        self, memory_id: str, *, namespace: str | None = None, revision: int | None = None
    ) -> Operation[Memory]:
        """Return one memory, or an earlier revision of it.

        Without a namespace, the keys of several of one's own are sent.
        """
        path = f"/v1/memories/{segment(memory_id)}"
        answer = yield from self._one(path, namespace, drop_unset({"revision": revision}))
        return Memory.from_json(answer)

    def history(self, memory_id: str, *, namespace: str | None = None) -> Operation[History]:
        """Return all revisions of a memory, newest first."""
        path = f"/v1/memories/{segment(memory_id)}/history"
        revisions: list[Memory] = []
        cursor: str | None = None
        while True:
            answer = yield from self._one(path, namespace, drop_unset({"cursor": cursor}))
            found = History.from_json(answer)
            revisions += found.revisions
            cursor = onward(cursor, found.next_cursor)
            if cursor is None:
                return replace(found, revisions=tuple(revisions))

    def episode(self, episode_id: str, *, namespace: str | None = None) -> Operation[Episode]:
        """Return a conversation that was kept, with its text."""
        path = f"/v1/episodes/{segment(episode_id)}"
        return Episode.from_json((yield from self._one(path, namespace, {})))

    def _one(self, path: str, namespace: str | None, query: Mapping[str, Any]) -> Operation[Any]:
        names = yield from self.likely_names(namespace)
        call = Call(method="GET", path=path, query=query, unlock=names, repeatable=True)
        return (yield from self.session.call(call))

    def likely_names(self, namespace: str | None) -> Operation[tuple[str, ...]]:
        """Return the namespaces whose keys go out with a memory's id: the one, if it is known."""
        if namespace:
            return (namespace,)
        default = normalise_namespace(self.session.settings.namespace)
        if not (yield from self.session.is_sealed()):
            return (default,)
        keyring = yield from self.session.keyring()
        names = keyring.names
        if keyring.whole_account:
            infos = yield from self.namespaces()
            told = (parse_namespace(info.name) for info in infos)
            # Of a new account none is told yet, and still no memory is a plain answer.
            names = tuple(dict.fromkeys((*names, *told))) or (default,)
        ordered = sorted(names, key=lambda name: name != default)[:UNLOCK_NAMES_MAX]
        if not ordered:
            raise NotGranted("This key holds no namespace.")
        return tuple(ordered)


def _query(filters: Filters) -> dict[str, Any]:
    query = build_filters(filters)
    if "pinned" in query:
        query["pinned"] = str(query["pinned"]).lower()
    return {{"tags": "tag"}.get(name, name): value for name, value in query.items()}


def build_filters(filters: Filters) -> dict[str, Any]:
    """Return filters as members of a body."""
    after, before = filters.get("after"), filters.get("before")
    return drop_unset(
        {
            **filters,
            "tags": to_json_list("tags", filters.get("tags"))
            or None,  # none of them narrow nothing
            "after": None if after is None else rfc3339(after),
            "before": None if before is None else rfc3339(before),
        }
    )
