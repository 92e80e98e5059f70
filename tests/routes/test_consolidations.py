"""The routes of consolidation: what a run did, as it is described.

Not here: what runs do (`tests/memories/test_consolidation.py`).
"""

import dataclasses

from relayer.app import build_app
from tests.consolidating import TEA, TEA_AGAIN, consolidated, said
from tests.services import Bench
from tests.signing import client_of, signer_of


async def test_an_action_says_how_it_was_taken_back(hybrid: Bench) -> None:
    key = await hybrid.account()
    caller = await hybrid.caller(key)
    await said(hybrid, caller, TEA)
    await said(hybrid, caller, TEA_AGAIN)
    run, _ = await consolidated(hybrid, caller)
    app = build_app(hybrid.storage, dataclasses.replace(hybrid.settings, embedder="none"))
    path = f"/v1/consolidations/{run['run_id']}"
    relayer = {"relayer": hybrid.storage.identity.public_key.hex()}
    async with client_of(app, signer_of(key)) as client:
        [merge] = (await client.get(path)).json()["actions"]
        assert (merge["action"], merge["undone"]) == ("merge", None)
        assert (await client.post(f"{path}/undo", json=relayer)).json()["undone"] == 1
        [merge] = (await client.get(path)).json()["actions"]
        assert merge["undone"] == "undone"
