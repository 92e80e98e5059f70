"""What a relayer answers a client: JSON to every operation, and a stream of events.

Not here: what it signs (`sealed.py`, `chains.py`).

- A client returns something that can be written as JSON, or says that the relayer is at fault.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from memrelay import answers, events, session, verification, webhooks
from memrelay.errors import ConfigError, Invalid, MemrelayError, ServerError
from memrelay.events import EventReader, parse_place
from memrelay.operations import (
    archives,
    audit,
    consolidation,
    decryption,
    deletion,
    reads,
    writes,
)
from memrelay.sealed.envelope import blob_id
from memrelay.sealed.keys import account_text
from tests import hostile
from tests.fuzz.loop import Parser

ID = "0b5e9f3c-2d1a-4c8b-9e7f-112233445566"
KEY = hostile.FOUNDER.public_key.hex()
AT = "2026-05-08T09:30:00.000Z"
PAGE = {"part": "memories", "cursor": "1"}
OPERATIONS: Mapping[str, hostile.Asked] = {
    "account": lambda c: c.account(),
    "account_settings": lambda c: c.account_settings(),
    "add_key": lambda c: c.add_key(namespaces=["team"]),
    "analyze": lambda c: c.analyze("Anna prefers tea."),
    "ask": lambda c: c.ask("What?"),
    "checkpoint": lambda c: c.checkpoint(),
    "close_account": lambda c: c.close_account(),
    "consolidate": consolidation.consolidate,
    "consolidation": lambda c: consolidation.consolidation(c, ID),
    "consolidations": consolidation.consolidations,
    "counts": lambda c: c.counts(["2026-05-04T00:00:00Z"]),
    "create_account": lambda c: c.create_account(),
    "edit": lambda c: c.edit(ID, text="Anna prefers coffee."),
    "episode": lambda c: c.episode(ID),
    "episodes": lambda c: c.episodes(),
    "export_page": lambda c: archives.export_page(c, "memories", cursor="1"),
    "forget": lambda c: c.forget(ID),
    "forget_many": lambda c: c.forget_many([ID]),
    "forget_namespace": lambda c: c.forget_namespace("team"),
    "forgettable": lambda c: c.forgettable(),
    "found_again": lambda c: archives.found_account(c, grant=hostile.GRANT, label=""),
    "get": lambda c: c.get(ID),
    "opened": lambda c: decryption.open_memory(c, ID),
    "grants": lambda c: c.grants(),
    "health": lambda c: c.health(),
    "history": lambda c: c.history(ID),
    "import_page": lambda c: archives.import_page(c, {"memories": []}),
    "keys": lambda c: c.keys(),
    "list": lambda c: c.list(),
    "namespaces": lambda c: c.namespaces(),
    "recall": lambda c: c.recall("tea"),
    "receipts": lambda c: c.receipts(),
    "remember": lambda c: c.remember("Anna prefers tea."),
    "remember_many": lambda c: c.remember_many(["Anna prefers tea.", "Ben likes rain."]),
    "review": lambda c: c.review(),
    "revoke_key": lambda c: c.revoke_key(KEY),
    "rotate": lambda c: c.rotate(),
    "rotation": lambda c: c.rotation(lend=True),
    "set_state": lambda c: c.set_state(ID, pinned=True),
    "set_ttl": lambda c: c.set_ttl("team", 3600),
    "stats": lambda c: c.stats(),
    "statement": lambda c: c.statement(),
    "status": lambda c: c.status([ID]),
    "undo_consolidation": lambda c: consolidation.undo_consolidation(c, ID),
    "usage": lambda c: c.usage(),
    "verify": lambda c: c.verify(open_all=True),
    "wait": lambda c: c.wait([ID], timeout_s=-1.0),
    "webhooks": webhooks.list_webhooks,
}
NAMES = tuple(OPERATIONS)
# What is answered to a client that asks for nothing else.
_GOOD = {"grants": hostile.GOOD["/v1/grants"], "statement": hostile.GOOD["/v1/relayer"]}
_RECEIPTS = {
    "analyze": "analyze",
    "close_account": "close",
    "edit": "edit",
    "forget": "forget",
    "forget_many": "forget",
    "forget_namespace": "forget",
    "import_page": "import",
    "remember": "remember",
    "remember_many": "remember",
    "revoke_key": "revoke",
    "set_state": "state",
    "undo_consolidation": "state",
}

_MEMORY: dict[str, Any] = {
    "id": ID, "namespace": "team", "text": "Anna prefers tea.", "status": "done", "revision": 1,
    "created_at": AT, "tags": ["a"], "metadata": {"a": "b"}, "seq": 1, "distance": 0.5,
    "reason": "pending", "others": [], "relation": "same", "blob_id": blob_id(b"x"),
    "kind": "fact", "event_time": None, "expires_at": None, "score": 1, "duplicate": False,
}  # fmt: skip
_ITEM: dict[str, Any] = {
    "id": ID, "type": "memory", "revision": 1, "format": "sealed", "namespace": "team", "epoch": 1,
    "blob_id": blob_id(b"x"), "size": 1, "seq": 1, "earlier": False, "pinned": False,
    "review": None, "stale": False, "superseded_at": None, "superseded_by": None,
}  # fmt: skip
_NONE = "total merged summaries procedures fact_count matched erased undone skipped done remaining"
# Members that are unknown are ignored: one answer holds what almost any operation reads.
RICH: dict[str, Any] = {
    **_MEMORY,
    **dict.fromkeys(_NONE.split(), 0),
    **dict.fromkeys(("memory_count", "storage_bytes", "epoch", "grant_serial", "serial"), 1),
    **{name: [_MEMORY] for name in ("results", "memories", "revisions", "facts")},
    **dict.fromkeys(("waiting_for_keys", "older", "changed", "memories_used", "stale"), 0),
    **dict.fromkeys(("pinned", "closed", "unchanged", "unrestored"), True),
    "account_id": account_text(hostile.ACCOUNT), "custody": "sealed", "actor": KEY,
    "relayer_key": hostile.RELAYER.public_key.hex(), "public_key": KEY, "recipient": KEY,
    "actions": [{"action": "merge", "memory_id": ID}], "state": "active", "name": "team",
    "blobs": [{"blob_id": blob_id(b"x"), "data": "eA==", "problem": None}], "answer": "Tea.",
    "checkpoint": "AAAA", "consolidations": [], "head": "00" * 32, "items": [_ITEM],
    "episodes": [{"id": ID, "namespace": "team", "state": "kept"}], "records": [{"id": ID}],
    "keys": [{"public_key": KEY, "role": "owner", "namespaces": None}], "more": False,
    "links": [{"relation": "same", "memory_id": ID, "other_id": ID}], "next": None,
    "namespaces": [{"name": "team", "total": 1, "done": 0, "remaining": 1}], "next_cursor": None,
    "settings": {"redact": True, "contradictions": "flag", "low_confidence": "keep",
                 "keep_turns": False, "consolidate_every_h": 0},
    "started_at": AT, "finished_at": None, "webhooks": [],
}  # fmt: skip
WORDS = (
    *(b'"next_cursor":"1"', b'"more":true', b'"receipts":', b'"results":[', b'"items":[', b"null"),
    *(b'"0001-01-01T00:00:00-14:00"', b"9007199254740992", b"1e999", b"-1", b'"\\ud800"', b"{}"),
    *(b'"namespace":"\\u202e"', b'"id":""', b"[[[[", b'"size":-1', b"NaN", b"\n", b'"seq":2'),
)


def is_about_the_relayer(error: Exception) -> bool:
    """Whether an error says who is at fault: a plain `Invalid` is about an argument."""
    return not isinstance(error, ConfigError) and type(error) is not Invalid


def _answer(data: bytes) -> None:
    """The first byte chooses the operation; then an answer a line."""
    name = NAMES[data[0] % len(NAMES)] if data else NAMES[0]
    lines = data[1:].split(b"\n")
    try:
        hostile.plain(hostile.asked(OPERATIONS[name], lines, good=name not in _GOOD))
    except hostile.Gone:
        return  # an answer may always say that there is more
    except MemrelayError as error:
        refused = error
    else:
        return
    assert is_about_the_relayer(refused), f"{name} blames its caller: {refused!r}"


def _answer_seeds() -> Iterator[bytes]:
    for at, name in enumerate(NAMES):
        yield bytes([at]) + json.dumps({**RICH, **_suited(name)}).encode()
    signed = {**RICH, **_suited("receipts")}
    following = signed | {"receipts": []}
    for name in ("receipts", "verify"):
        pages = [signed, following, following, signed]
        yield bytes([NAMES.index(name)]) + b"\n".join(json.dumps(page).encode() for page in pages)


def _suited(name: str) -> Mapping[str, Any]:
    """What an operation wants otherwise than others."""
    if name in _GOOD:
        return _GOOD[name]
    signed = hostile.receipt(op=_RECEIPTS.get(name, "grant"), items=[[ID, 1, "b"]])
    found: dict[str, Any] = {"receipt": signed, "receipts": [signed]}
    if name == "remember_many":
        found["results"] = [_MEMORY, _MEMORY]
    if name in {"forget", "set_state", "get"}:
        found |= {"erased": True, "stale": False}
    return found


PARSER = Parser(
    (answers, session, reads, audit, verification, archives, writes, deletion, consolidation),
    _answer_seeds,
    _answer,
    WORDS,
)

_EVENT = {
    "id": "1", "type": "memory.written", "account_id": "0x", "time": AT, "namespace": None,
    "ids": [ID], "receipt_seq": 1,
}  # fmt: skip


def _stream(data: bytes) -> None:
    """The first byte says in pieces of which size the stream comes."""
    size = 1 + data[0] if data else 1
    reader, rest = EventReader(None), data[1:]
    reader.request()
    with contextlib.suppress(ServerError):
        for at in range(0, len(rest), size):
            for event in reader.read(rest[at : at + size]):
                hostile.plain(event)
    assert reader.place is None or parse_place(reader.place)
    reader.request()


def _stream_seeds() -> Iterator[bytes]:
    told = json.dumps(_EVENT).encode()
    for size in (0, 7, 255):
        for line in (b"\n", b"\r\n"):
            event = line.join([b"id: 3", b"event: memory.written", b"data: " + told, b"", b""])
            yield bytes([size]) + b": beat" + line + line + event + event


STREAM = Parser(
    (events, answers),
    _stream_seeds,
    _stream,
    (
        b"data:",
        b"data: {\n",
        b"id: ",
        b"id: 9",
        b"place: 9-0f",
        b"\n\n",
        b"\r",
        b": beat\n",
        b"9" * 50,
        b"event:",
    ),
)
