"""Bodies of requests: decoded into their forms, and the domain objects made of these.

Not here: what services do with them (`tests/refusals/` asks a real relayer).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from relayer.errors import RelayerError
from relayer.http import bodies
from relayer.memories import manual
from relayer.preferences import AccountSettings
from relayer.routes import (
    accounts,
    archives,
    consolidation,
    corrections,
    deletion,
    events,
    keys,
    memories,
    memwal,
    memwal_manual,
    namespaces,
    proof,
    recall,
)
from relayer.settings import Limits
from tests.fuzz.loop import Parser
from tests.routes_scene import OUR_BODIES

NOW = datetime(2026, 5, 8, 9, 30, tzinfo=UTC)
MADE: Mapping[Any, Callable[[Any], object]] = {
    memories.RememberBody: lambda b: memories.draft_of(b, bytes_max=Limits.text_bytes_max, now=NOW),
    memories.BulkBody: lambda b: memories.drafts_of(b.items, NOW),
    memories.AnalyzeBody: memories.conversation_of,
    recall.RecallBody: lambda b: recall.query_of(b, NOW),
    recall.AskBody: lambda b: recall.question_of(b, NOW),
    corrections.EditBody: lambda b: corrections.edit_of(b, NOW),
    corrections.StateBody: corrections.change_of,
    deletion.ForgetBody: deletion.filter_of,
    accounts.AccountBody: repr,
    accounts.SettingsBody: lambda b: accounts.settings_of(b, AccountSettings()),
    keys.RotationBody: keys.reseal_of,
    keys.GrantBody: repr,
    events.WebhookBody: events._parse_wanted,
    archives.ImportBody: archives.arrival_of,
    namespaces.NamespaceBody: repr,
    consolidation.ConsolidateBody: lambda b: bodies.namespace_of(b.namespace),
    proof.BlobsBody: lambda b: proof.blob_names(b.blob_ids),
    memwal.MemwalRecallBody: repr,
    memwal.MemwalBulkBody: repr,
    memwal_manual.ManualBody: lambda b: manual._unit(np.array(b.vector)),
}
_FORMS = tuple(MADE)
WORDS = (
    *(b'"relayer":', b'"text":', b'"namespace":', b'"namespaces":[', b'"tags":["a"]', b"null"),
    *(
        b'"event_time":"2026-05-08T09:30:00Z"',
        b'"limit":1',
        b'"mode":"keyword"',
        b'"kinds":["fact"]',
    ),
    *(b'"0001-01-01T00:00:00-14:00"', b'"9999-12-31T23:59:60+14:00"', b"1e308", b"-0.0", b"1e-320"),
    *(b'"aliases":{"a":["b"]}', b'"metadata":{"a":"b"}', b'"ids":["x"]', b'"vector":[1]'),
)


def _body(data: bytes) -> None:
    """The first byte chooses the form; what is refused is the sender's fault."""
    form = _FORMS[data[0] % len(_FORMS)] if data else _FORMS[0]
    try:
        MADE[form](bodies.decode(data[1:], form))
    except RelayerError as error:
        refused = error
    else:
        return
    assert 400 <= refused.status < 500


def _seeds() -> Iterator[bytes]:
    named = {"relayer": "ab" * 32}
    rich = {
        "query": "tea", "namespaces": ["team"], "kinds": ["fact"], "tags": ["a"], "mode": "hybrid",
        "after": "2026-05-01T00:00:00Z", "before": "2026-05-08T00:00:00+02:00", "limit": 5,
        "vector_weight": 1, "text_weight": 0.5, "goal": "shop", "aliases": {"Anna": ["Ann"]},
        "scoring_weights": {"recency": 1}, "max_tokens": 100, "explain": True,
    }  # fmt: skip
    told = {
        "text": "Anna prefers tea.", "kind": "working", "tags": ["a", "a"], "source": "chat",
        "event_time": "2026-05-08T09:30:00Z", "metadata": {"a": "b"}, "importance": "vital",
        "expires_at": "2027-05-08T09:30:00Z", "idempotency_key": "k",
    }  # fmt: skip
    vector = {"vector": [0.5, -1, 1e-3], "encrypted_data": "AAAA"}
    hook = {"url": "https://a.example", "events": ["memory.written"]}
    bodies_ = [*OUR_BODIES.values(), rich, told, vector, hook, {"ttl_s": 60}, {"items": [told]}]
    for at in range(len(_FORMS)):
        for body in bodies_:
            for sent in (body, named | body):
                yield bytes([at]) + json.dumps(sent).encode()


PARSER = Parser(
    (bodies, memories, recall, corrections, deletion, keys, accounts, events, proof, archives),
    _seeds,
    _body,
    WORDS,
)
