"""A request has one time, and its change another one: how often the clock is read, held.

The clock is read once where the headers come, so that no body is read for what is too old; once
when the body is there, which is the request's time; and once under the account's lock, which is the
change's. Times that only measure how long something took are monotonic, and none of these.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from relayer import clock
from relayer.app import build_app
from relayer.sealed.keys import account_text
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.signing import Signer, client_of

READ, CHANGED = 2, 3


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """Every time that was taken from the clock of the relayer."""
    taken: list[datetime] = []

    class Counted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            taken.append(datetime.now(tz))
            return taken[-1]

    monkeypatch.setattr(clock, "datetime", Counted)
    return taken


async def test_how_often_a_request_reads_the_clock(
    storage: Storage, lean: Settings, managed: NewKey, reads: list[datetime]
) -> None:
    # Without an index in memory, which is brought up to date beside requests.
    app = build_app(storage, replace(lean, index_memory_bytes=0))
    relayer_key = {"relayer": storage.identity.public_key.hex()}
    signer = Signer(identity=managed.identity, account=account_text(managed.account))
    async with client_of(app, signer) as client:

        async def ask(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
            reads.clear()
            answer = await client.request(method, path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

        async def remember(text: str) -> Any:
            said = relayer_key | {"text": text, "namespace": "team"}
            return await ask("POST", "/v1/remember", said)

        first = await remember("Bob rents a flat in Oslo.")  # the namespace begins with it
        path = f"/v1/memories/{first['id']}"
        await remember("Anna prefers green tea.")
        assert len(reads) == CHANGED
        await ask("PATCH", path, relayer_key | {"text": "Bob rents a house in Oslo."})
        assert len(reads) == CHANGED
        await ask("POST", f"{path}/state", relayer_key | {"pinned": True})
        assert len(reads) == CHANGED
        query = {"query": "Where does Bob live?", "namespaces": ["team"]}
        await ask("POST", "/v1/recall", query)
        assert len(reads) == READ
        await ask("GET", path)
        assert len(reads) == READ
