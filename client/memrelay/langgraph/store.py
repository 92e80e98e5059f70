"""A LangGraph store on a namespace of the memory; needs the extra `memrelay[langgraph]`.

It does not own filters (`matching.py`) or the memory (`sync_client.py`, `async_client.py`).

- An item is one memory. Its text is the path and what is to be searched. Its value stands in the
  metadata, where nothing is replaced; one that finds no room there stands in the text.
- Tags are digests of the path and of each part of it, so that an item is found without a search.
- Of two writers at once the last one wins; what the other one made is erased with the next put.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from unicodedata import normalize

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)

from memrelay.answers import rfc3339
from memrelay.async_client import MemoryClient
from memrelay.either_client import PAGE_LIMIT, Procedure, call, list_all, run_async, run_blocking
from memrelay.errors import ConfigError, Conflict
from memrelay.langgraph.matching import fits, matches
from memrelay.models import Memory, relevance_percent, secrets_in
from memrelay.sync_client import SyncMemoryClient

_VALUE_CHARS_MAX = 7_000  # of the 8 KiB that a memory's metadata may have as JSON
_DEPTH_MAX = 28  # of the 32 tags that a memory may have
_log = logging.getLogger(__name__)


class MemoryStore(BaseStore):
    """A store whose items are sealed memories of one namespace; give it a namespace of its own.

    Synchronous methods need `client`, asynchronous ones `async_client`. A search is by meaning and
    by words. Its `score` is the relevance from 0 to 1. It is None where nothing was searched for,
    or where some memories could be searched by words only.
    """

    __slots__ = ("_async_client", "_client", "_lock", "_namespace")

    def __init__(
        self,
        client: SyncMemoryClient | None = None,
        async_client: MemoryClient | None = None,
        *,
        namespace: str | None = None,
    ) -> None:
        self._client, self._async_client = client, async_client
        self._namespace = namespace
        self._lock = threading.Lock()  # a blocking client is for one thread at a time

    @classmethod
    def from_profile(
        cls, profile: str | Path | None = None, *, namespace: str | None = None
    ) -> Self:
        """Return a store with clients of the environment, completed by a profile file."""
        blocking = SyncMemoryClient.from_profile(profile)
        return cls(blocking, MemoryClient.from_profile(profile), namespace=namespace)

    async def aclose(self) -> None:
        """Close both clients."""
        if self._client is not None:
            self._client.close()
        if self._async_client is not None:
            await self._async_client.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry operations out: what reads first, then what writes, the last put of a key alone."""
        if self._client is None:
            raise ConfigError("This store has no blocking client: give it `client`.")
        with self._lock:
            return run_blocking(self._client, self._batch(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry operations out, as `batch` does."""
        if self._async_client is None:
            raise ConfigError("This store has no asynchronous client: give it `async_client`.")
        return await run_async(self._async_client, self._batch(list(ops)))

    def _batch(self, ops: Sequence[Op]) -> Procedure[list[Result]]:
        results: list[Result] = []
        puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
        for op in ops:
            validate_op_namespace(op)
            result: Result = None
            match op:
                case GetOp():
                    found = yield from self._find(op.namespace, op.key)
                    read = _read(found[0]) if found else None
                    result = None if read is None else Item(**read)
                case SearchOp():
                    result = yield from self._search(op)
                case ListNamespacesOp():
                    result = yield from self._list_namespaces(op)
                case PutOp():
                    puts[op.namespace, op.key] = op
            results.append(result)
        for op in puts.values():
            yield from self._put(op)
        return results

    def _find(self, namespace: tuple[str, ...], key: str) -> Procedure[list[Memory]]:
        """Return the memories of an item, newest first: more than one after a race of writers."""
        tags = [_tag("item", *namespace, key)]
        page = yield from call("list", namespace=self._namespace, tags=tags, limit=10)
        return list(page.memories)

    def _put(self, op: PutOp) -> Procedure[None]:
        found = yield from self._find(op.namespace, op.key)
        keeps = 0
        if op.value is not None:
            keeps = 1 if found and (yield from self._edit(found[0], op)) else 0
            if not keeps:
                created_at = _created_at(found[0]) if found else None
                draft = _draft(op, created_at)
                done = yield from call("remember", namespace=self._namespace, **draft)
                _tell_secrets(done.redacted)
        for memory in found[keeps:]:
            yield from call("forget", memory.id)

    def _edit(self, memory: Memory, op: PutOp) -> Procedure[bool]:
        """Return whether a memory has a new value; it may have too many revisions for another."""
        draft = _draft(op, _created_at(memory))
        changes = {name: draft[name] for name in ("text", "metadata")}
        try:
            done = yield from call("edit", memory.id, namespace=self._namespace, **changes)
        except Conflict as error:
            if error.code not in {"memory.revisions", "memory.superseded"}:
                raise
            return False
        _tell_secrets(done.redacted)
        return True

    def _search(self, op: SearchOp) -> Procedure[list[SearchItem]]:
        tags = [_tag("below", *op.namespace_prefix)]
        end = op.offset + op.limit
        scored: list[tuple[Memory, float | None]]
        if not op.query:
            memories = yield from list_all(namespace=self._namespace, tags=tags)
            scored = [(memory, None) for memory in memories]
        else:
            # Filters are applied to what comes back, so as much as may come is asked for.
            found = yield from call(
                "recall",
                op.query,
                namespace=self._namespace,
                tags=tags,
                limit=PAGE_LIMIT if op.filter else min(PAGE_LIMIT, max(1, end)),
                min_relevance=None,
            )
            scored = [(one, None if found.degraded else _score(one)) for one in found.results]
        items = [SearchItem(**r, score=s) for m, s in scored if (r := _read(m)) is not None]
        return [i for i in items if fits(i.value, op.filter or {})][op.offset : end]

    def _list_namespaces(self, op: ListNamespacesOp) -> Procedure[list[tuple[str, ...]]]:
        memories = yield from list_all(namespace=self._namespace, tags=[_tag("below")])
        found = {read["namespace"] for memory in memories if (read := _read(memory)) is not None}
        wanted = op.match_conditions or ()
        fitting = {one[: op.max_depth] for one in found if all(matches(one, c) for c in wanted)}
        return sorted(fitting)[op.offset : op.offset + op.limit]


def _tag(kind: str, *path: str) -> str:
    """Return the tag of an item, or of all below a path: both may be longer than a tag may be."""
    digest = hashlib.blake2b(json.dumps([kind, *path]).encode(), digest_size=16)
    return f"langgraph:{digest.hexdigest()}"


def _draft(op: PutOp, created_at: str | None) -> dict[str, Any]:
    """Return the arguments of `remember` for an item.

    Raises:
        ValueError: its path is too deep, or its value finds no room beside what is searched.
    """
    if len(op.namespace) > _DEPTH_MAX:
        raise ValueError(f"A namespace has at most {_DEPTH_MAX} parts.")
    value = json.dumps(op.value, ensure_ascii=False)
    path = f"{'.'.join(op.namespace)}/{op.key}"
    # Two texts are one memory if they differ by blanks or by a form of Unicode alone.
    if (normal := " ".join(normalize("NFC", path).split())) != path:
        path = f"{normal} {_tag('item', *op.namespace, op.key)}"
    metadata = {"namespace": ".".join(op.namespace), "key": op.key}
    if created_at is not None:
        metadata["created_at"] = created_at
    if len(json.dumps({**metadata, "value": value}).encode()) <= _VALUE_CHARS_MAX:
        metadata["value"] = value
    elif op.index is not None:
        raise ValueError("A value this long is searched as a whole: leave `index` out.")
    below = [_tag("below", *op.namespace[:depth]) for depth in range(len(op.namespace) + 1)]
    return {
        "text": f"{path}\n{_searched(op, value)}".strip(),
        "tags": [_tag("item", *op.namespace, op.key), *below],
        "metadata": metadata,
        "source": "langgraph",
    }


def _searched(op: PutOp, value: str) -> str:
    if op.index is None:
        return value
    paths = op.index or []
    return "\n".join(t for path in paths for t in get_text_at_path(op.value, tokenize_path(path)))


def _read(memory: Memory) -> dict[str, Any] | None:
    """Return the members of an item, None if the memory is none of ours."""
    metadata = memory.metadata or {}
    try:
        return {
            "namespace": tuple(metadata["namespace"].split(".")),
            "key": metadata["key"],
            "value": json.loads(metadata.get("value") or (memory.text or "").partition("\n")[2]),
            "created_at": _created_at(memory),
            "updated_at": memory.updated_at or memory.created_at,
        }
    except (KeyError, ValueError):
        return None


def _created_at(memory: Memory) -> str:
    assert memory.created_at is not None
    return str((memory.metadata or {}).get("created_at") or rfc3339(memory.created_at))


def _score(memory: Memory) -> float | None:
    return None if memory.distance is None else relevance_percent(memory.distance) / 100


def _tell_secrets(redacted: Mapping[str, Any] | None) -> None:
    if secrets_in(redacted):
        _log.warning("Secrets were taken out of the searched text of an item.")
