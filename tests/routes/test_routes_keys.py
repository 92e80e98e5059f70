"""Whose key reaches what: foreign is not found, a role does what it may, owners give keys."""

import os
import uuid
from typing import Any

import httpx
import pytest
from litestar.types import ASGIApp

from relayer.clock import to_ms, utc_now
from relayer.sealed.grants import issue_grant, issue_revocation, open_grant, sign_join
from relayer.sealed.keys import Identity, Namespace, Root, account_text
from relayer.sealed.primitives import to_base64
from relayer.storage import Storage
from relayer.upkeep import provision
from relayer.upkeep.provision import NewKey
from tests.routes_scene import OUR_BODIES, Answer, client, key_of, named
from tests.signing import client_of, signer_of

__all__ = ["client", "named"]  # fixtures


async def test_what_is_somebody_elses_is_not_found(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    """Ids of another account, absent ids and nonsense answer alike."""
    other = await provision.create_account(storage, label="other", custody="managed", clock=utc_now)
    stored = await client.post("/v1/remember", json={"text": "Anna prefers tea."} | named)
    ids = [stored.json()["id"], str(uuid.uuid4()), "nonsense", stored.json()["id"].upper() + "x"]
    accounts = [account_text(managed.account), "0x" + "00" * 32, "nonsense"]
    async with client_of(app, signer_of(other)) as foreign:
        answers = [
            *[await foreign.get(f"/v1/memories/{i}") for i in ids],
            *[await foreign.delete(f"/v1/memories/{i}", params=named) for i in ids],
            *[await foreign.get(f"/api/remember/{i}") for i in ids],
            *[await foreign.get(f"/v1/accounts/{a}") for a in accounts],
            *[await foreign.get(f"/v1/owners/{a}/namespaces") for a in accounts],
        ]
        states = await foreign.post("/v1/memories/status", json={"ids": ids})
        jobs = await foreign.post("/api/remember/bulk/status", json={"job_ids": ids})
    assert {a.status_code for a in answers} == {404}
    assert {a.json()["code"] for a in answers} == {"not_found"}
    assert len({a.json()["message"] for a in answers[:8]}) == 1
    assert {a.json()["message"] for a in answers[8:12]} == {"No such job."}
    assert states.json() == {"results": [{"id": i, "status": "not_found"} for i in ids]}
    assert jobs.json() == {"results": [{"job_id": i, "status": "not_found"} for i in ids]}
    assert (await client.get(f"/v1/memories/{ids[0]}")).status_code == 200


async def test_another_namespace_of_ones_own_account_is_not_found_either(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    """capability 0.33: what is recalled and captured stays in its namespace.
    capability 0.34: every route filters by the namespace.
    """
    body = {"text": "Anna prefers tea.", "namespace": "anna"} | named
    stored = (await client.post("/v1/remember", json=body)).json()["id"]
    agent = await key_of(storage, managed, "writer", "bob")
    async with client_of(app, signer_of(agent)) as bob:
        assert (await bob.get(f"/v1/memories/{stored}")).status_code == 404
        assert (await bob.delete(f"/v1/memories/{stored}", params=named)).status_code == 404
        assert (await bob.get(f"/api/remember/{stored}")).status_code == 404
        states = await bob.post("/v1/memories/status", json={"ids": [stored]})
        recalled = await bob.post("/v1/recall", json={"query": "tea", "namespace": "bob"})
        listed = await bob.get("/v1/namespaces")
    assert states.json()["results"][0]["status"] == "not_found"
    assert recalled.json()["results"] == []
    assert listed.json()["namespaces"] == []


async def test_a_key_without_the_namespace_is_not_allowed(
    app: ASGIApp, storage: Storage, named: Answer, managed: NewKey
) -> None:
    """capability 0.34: the server filters by the key's own grant, whatever the request names."""
    agent = await key_of(storage, managed, "writer", "bob")
    asked: list[tuple[str, Answer]] = [
        ("/v1/remember", {"text": "a"} | named),
        ("/v1/recall", {"query": "a"}),
        ("/v1/analyze", {"text": "I prefer tea."} | named),
        ("/v1/restore", named),
        ("/api/remember", {"text": "a"}),
        ("/api/remember/bulk", {"items": [{"text": "a"}, {"text": "b", "namespace": "anna"}]}),
        ("/api/recall", {"query": "a"}),
        ("/api/analyze", {"text": "I prefer tea."}),
        ("/api/restore", {}),
        ("/api/remember/manual", {"encrypted_data": "AAAA", "vector": [1.0]}),
        ("/api/recall/manual", {"vector": [1.0]}),
        ("/api/forget", {}),
        ("/api/stats", {}),
    ]
    async with client_of(app, signer_of(agent)) as bob:
        for path, body in asked:
            answer = await bob.post(path, json=body | {"namespace": "anna"})
            assert (answer.status_code, path) == (403, path)
            assert answer.json()["code"] in ("auth.not_allowed", "unlock_required")
        assert (await bob.get("/v1/memories", params={"namespace": "anna"})).status_code == 403
        assert (await bob.get("/v1/stats", params={"namespace": "anna"})).status_code == 403
        assert (await bob.get("/v1/receipts")).status_code == 403


async def test_a_reader_reads(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    stored = (await client.post("/v1/remember", json={"text": "Anna prefers tea."} | named)).json()
    agent = await key_of(storage, managed, "reader", "default")
    async with client_of(app, signer_of(agent)) as reader:
        allowed = [
            await reader.get(f"/v1/memories/{stored['id']}"),
            await reader.post("/v1/recall", json={"query": "tea"}),
            await reader.get("/v1/memories"),
            await reader.get("/v1/stats"),
            await reader.get("/v1/keys"),
            await reader.get("/v1/grants"),
            await reader.get("/v1/usage"),
        ]
        refused = [
            await reader.delete(f"/v1/memories/{stored['id']}", params=named),
            await reader.post("/v1/remember", json={"text": "a"} | named),
            await reader.post("/v1/analyze", json={"text": "I prefer tea."} | named),
            await reader.post("/v1/restore", json=named),
            await reader.post("/api/forget", json={}),
        ]
    assert [a.status_code for a in allowed] == [200] * len(allowed)
    assert [a.status_code for a in refused] == [403] * len(refused)
    assert [len(a.json()["results"]) for a in allowed[1:2]] == [1]
    assert (await client.get(f"/v1/memories/{stored['id']}")).status_code == 200


@pytest.mark.parametrize("role", ["writer", "reader"])
async def test_only_owners_give_and_take_keys(
    app: ASGIApp, storage: Storage, named: Answer, managed: NewKey, role: str
) -> None:
    agent = await key_of(storage, managed, role)
    async with client_of(app, signer_of(agent)) as client:
        for path in ("/v1/grants", "/v1/revocations", "/v1/rotations"):
            answer = await client.post(path, json=OUR_BODIES[path] | named)
            assert (answer.status_code, answer.json()["code"]) == (403, "auth.not_allowed")
        keys = (await client.get("/v1/keys")).json()["keys"]
    assert [k["public_key"] for k in keys] == [agent.identity.public_key.hex()]


async def test_an_owner_gives_and_takes_a_key_over_http(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    agent = NewKey(managed.account, Identity(os.urandom(32)), "managed")
    recipient, now_ms = agent.identity.public_key, to_ms(utc_now())
    own = await storage.accounts.chain(managed.account)
    [root] = open_grant(own.grants[managed.identity.public_key][0], managed.identity)
    assert isinstance(root, Root)
    signed = issue_grant(
        managed.identity,
        account=managed.account,
        serial=3,
        recipient=recipient,
        role="writer",
        keys=[root.namespace_key(managed.account, Namespace("agent"))],
        created_ms=now_ms,
    )
    join = sign_join(
        agent.identity,
        account=managed.account,
        issuer=managed.identity.public_key,
        relayer=storage.identity.public_key,
    )
    revocation = issue_revocation(
        managed.identity,
        account=managed.account,
        serial=4,
        recipient=recipient,
        created_ms=now_ms,
    )
    body = {"grant": to_base64(signed), "join": to_base64(join), "label": "agent"} | named
    taking = {"revocation": to_base64(revocation)} | named
    async with client_of(app, signer_of(agent)) as added:
        before = await added.get("/v1/keys")
        given = await client.post("/v1/grants", json=body)
        again = await client.post("/v1/grants", json=body)
        during = await added.get("/v1/keys")
        taken = await client.post("/v1/revocations", json=taking)
        after = await added.get("/v1/keys")
    assert [a.status_code for a in (before, during, after)] == [401, 200, 401]
    assert (given.status_code, given.json()["serial"]) == (201, 3)
    assert (again.status_code, again.json()["code"]) == (409, "grant.serial")
    assert (taken.status_code, taken.json()["serial"]) == (201, 4)
    assert during.json()["keys"][0]["namespaces"] == ["agent"]
    listed = (await client.get("/v1/grants")).json()
    assert [g["kind"] for g in listed["grants"]] == ["grant", "grant", "grant", "revoke"]


async def test_a_sealed_account_asks_for_the_unlock_header(
    app: ASGIApp, named: Answer, sealed: NewKey
) -> None:
    async with client_of(app, signer_of(sealed)) as client:
        missing = await client.post("/v1/recall", json={"query": "tea"})
        wrong = await client.post(
            "/v1/recall", json={"query": "tea"}, headers={"x-memrelay-unlock": "AQ"}
        )
        memwal = await client.post("/api/remember", json={"text": "tea"})
    assert (missing.status_code, missing.json()["code"]) == (403, "unlock_required")
    assert (wrong.status_code, wrong.json()["code"]) == (403, "unlock_rejected")
    assert (memwal.status_code, memwal.json()["code"]) == (403, "unlock_required")


async def test_the_beginning_of_an_id_leads_to_ones_own_ids_alone(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    other = await provision.create_account(storage, label="other", custody="managed", clock=utc_now)
    ids = []
    for namespace in ("anna", "bob"):
        body = {"text": f"{namespace} prefers tea.", "namespace": namespace} | named
        ids.append((await client.post("/v1/remember", json=body)).json()["id"])
    edited = {"text": "Anna prefers water."} | named
    assert (await client.patch(f"/v1/memories/{ids[0]}", json=edited)).status_code == 200
    asked = [
        *(ids[0][:13], ids[0].replace("-", "").upper()[:31]),
        *(ids[0][:7], ids[0], "0" * 8, "g" * 8, f"{ids[0]}0"),
    ]

    async def matches(of: httpx.AsyncClient) -> list[Any]:
        answer = await of.post("/v1/memories/status", json={"ids": asked})
        results = answer.json()["results"]
        assert [one["id"] for one in results] == asked
        return [one.get("matches") for one in results]

    found = await matches(client)
    assert set(found[0]) <= set(ids)
    assert found[1:] == [[ids[0]], None, None, [], None, None]
    async with client_of(app, signer_of(await key_of(storage, managed, "reader", "bob"))) as bob:
        assert ids[0] not in (await matches(bob))[0]
        assert (await matches(bob))[1] == []
    async with client_of(app, signer_of(other)) as foreign:
        assert (await matches(foreign))[:2] == [[], []]
