"""What a client changes: many memories at once, and the keys of its account."""

import json

import httpx
import pytest

from memrelay.errors import ConfigError, NotGranted, TimedOut, UntrustedRelayer
from memrelay.models import Draft
from memrelay.operations.rotation import Operations
from memrelay.sealed.grants import read_grant
from memrelay.sealed.keys import Identity
from memrelay.sealed.objects import from_base64
from memrelay.webhooks import put_webhook
from tests.client.session_scene import IDS, NIL, fails, listed, owner, remembered, scene
from tests.relayers_part import read_join

__all__ = ["owner", "scene"]  # fixtures


# Many memories


def bulk(scene, first, count, **changes):
    ids = IDS[first : first + count]
    entry = {"status": "pending", "namespace": "team", "duplicate": False, "redacted": {}}
    answer = {
        "results": [{**entry, "id": one} for one in ids],
        "total": count,
        "receipts": [scene.receipt(seq=first + 1, ids=ids)],
    }
    return ("/v1/remember/bulk", 202, {**answer, **changes})


def test_many_memories_go_in_twenties_with_keys_of_their_own(scene):
    told = []
    results = scene.play(
        scene.client.remember_many(
            [f"text {n}" for n in range(45)], progress=lambda *now: told.append(now)
        ),
        *listed(scene, scene.grants()),
        bulk(scene, 0, 20),
        bulk(scene, 20, 20),
        bulk(scene, 40, 5),
    )
    assert [result.id for result in results] == IDS[:45]
    assert told == [(20, 45), (40, 45), (45, 45)]
    items = [item for send in scene.sends[2:] for item in json.loads(send.body)["items"]]
    assert len({item["idempotency_key"] for item in items}) == 45
    assert [item["text"] for item in items] == [f"text {n}" for n in range(45)]


def test_long_texts_go_alone_and_the_order_stays(scene):
    long = {"text": "x" * 70_000, "created_at": "2026-05-04T09:30:00Z"}
    results = scene.play(
        scene.client.remember_many(
            iter(["a", {"text": "b", "kind": "event"}, long, Draft(text="c"), "d"])
        ),
        *listed(scene, scene.grants()),
        bulk(scene, 0, 2),
        (
            "/v1/remember",
            202,
            remembered(scene, id=IDS[2], receipt=scene.receipt(seq=10, ids=[IDS[2]])),
        ),
        bulk(scene, 3, 2),
    )
    assert [result.id for result in results] == IDS[:5]
    items = json.loads(scene.sends[2].body)["items"]
    assert [item.get("kind") for item in items] == [None, "event"]
    assert "created_at" not in json.loads(scene.sends[3].body)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ("Anna prefers tea.", "items is a list"),
        ({"text": "Anna prefers tea."}, "items is a list"),
        ([{"text": "Anna prefers tea.", "tag": ["town"], "when": 1}], "no field tag, when"),
    ],
)
def test_what_would_be_stored_as_something_else_is_refused(scene, items, said):
    with pytest.raises(ValueError, match=said):
        scene.play(scene.client.remember_many(items), *listed(scene, scene.grants()))


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("ids", lambda client: client.status(IDS[0])),
        ("ids", lambda client: client.wait(IDS[0])),
        ("namespaces", lambda client: client.add_key(namespaces="team")),
        ("namespaces", lambda client: client.verify(namespaces="team")),
        ("revoke", lambda client: Operations(client.session).rotate(revoke="ab" * 32)),
        ("events", lambda client: put_webhook(client, "https://a.example", events="key.revoked")),
        ("namespaces", lambda client: put_webhook(client, "https://a.example", namespaces="team")),
    ],
)
def test_one_text_is_no_list_of_its_letters(scene, name, asked):
    with pytest.raises(ValueError, match=f"^{name} is a list"):
        scene.play(asked(scene.client))


def test_nothing_is_sent_for_nothing(scene):
    before = listed(scene, scene.grants())
    assert scene.play(scene.client.remember_many([]), *before) == ()


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"results": []}, "results"), ({"receipts": ["!"]}, "base64")],
)
def test_a_false_bulk_answer_is_refused(scene, changes, code):
    before = listed(scene, scene.grants())
    reply = bulk(scene, 0, 2, **changes)
    fails(UntrustedRelayer, code, scene, scene.client.remember_many(["a", "b"]), *before, reply)


def test_receipts_of_a_bulk_cover_every_new_memory(scene):
    reply = bulk(scene, 0, 2, receipts=[scene.receipt(ids=IDS[:1])])
    fails(
        UntrustedRelayer,
        "receipt",
        scene,
        scene.client.remember_many(["a", "b"]),
        *listed(scene, scene.grants()),
        reply,
    )


def states(*pairs):
    return ("/v1/memories/status", {"results": [{"id": i, "status": s} for i, s in pairs]})


def test_waiting_asks_ever_less_often_and_only_for_what_is_open(scene):
    result = scene.play(
        scene.client.wait(IDS[:2]),
        states((IDS[0], "pending"), (IDS[1], "done")),
        states((IDS[0], "uploaded")),
        states((IDS[0], "done")),
    )
    assert [entry.status for entry in result] == ["done", "done"]
    assert [json.loads(send.body)["ids"] for send in scene.sends] == [IDS[:2], IDS[:1], IDS[:1]]
    assert scene.monotonic_s == pytest.approx(0.25)


def test_waiting_ends(scene):
    fails(
        TimedOut,
        None,
        scene,
        scene.client.wait(IDS[:1], timeout_s=0.05),
        states((IDS[0], "pending")),
    )
    done = scene.play(scene.client.wait(IDS[:1], until_uploaded=True), states((IDS[0], "uploaded")))
    assert done[0].status == "uploaded"
    assert scene.play(scene.client.wait([])) == ()


# Keys of the account


def test_founding_a_sealed_account_gives_nobody_else_the_root(owner):
    relayer = owner.example.relayer.public_key.hex()
    answer = {
        "account_id": owner.settings.account_id,
        "public_key": owner.example.founder.public_key.hex(),
        "custody": "sealed",
        "relayer_key": relayer,
        "label": "",
        "receipts": [],
    }
    account = owner.play(owner.client.create_account(), ("/v1/accounts", 201, answer))
    assert account.private_key == owner.example.founder.seed_hex()
    body = json.loads(owner.sends[0].body)
    grants = [read_grant(from_base64(text, "grant")) for text in body["grants"]]
    assert [(g.serial, g.role, g.recipient) for g in grants] == [
        (1, "owner", owner.example.founder.public_key)
    ]
    assert body["relayer"] == relayer
    for change in (
        {"custody": "managed"},
        {"account_id": "0x" + "ab" * 32},
        {"relayer_key": "ab" * 32},
    ):
        operation = owner.client.create_account()
        reply = ("/v1/accounts", 201, {**answer, **change})
        fails(UntrustedRelayer, "account", owner, operation, reply)


def test_only_a_caller_makes_a_custodian(owner):
    answer = {
        "account_id": owner.settings.account_id,
        "public_key": owner.example.founder.public_key.hex(),
        "custody": "managed",
        "relayer_key": owner.example.relayer.public_key.hex(),
    }
    owner.play(owner.client.create_account(custody="managed"), ("/v1/accounts", 201, answer))
    grants = [
        read_grant(from_base64(text, "grant")) for text in json.loads(owner.sends[0].body)["grants"]
    ]
    assert [(g.serial, g.role) for g in grants] == [(1, "owner"), (2, "custodian")]
    assert grants[1].recipient == owner.example.relayer.public_key
    with pytest.raises(ConfigError):
        owner.play(owner.client.create_account(custody="shared"))
    with pytest.raises(ConfigError):
        owner.play(owner.client.add_key(namespaces=None, role="custodian"))


def test_an_account_is_founded_by_its_founder(scene):
    with pytest.raises(ConfigError):
        scene.play(scene.client.create_account())


def test_adding_a_key_grants_just_its_namespaces(owner):
    sent = {}

    def answer(send):
        sent["body"] = json.loads(send.body)
        sent["grant"] = read_grant(from_base64(sent["body"]["grant"], "grant"))
        return httpx.Response(201, json=owner.receipt_of("grant", "grant")(send))

    operation = owner.client.add_key(namespaces=[" team "], label="agent", role="reader")
    assert next(operation).target == "/v1/relayer"
    step = operation.send(httpx.Response(200, json=owner.statement()))
    assert step.target == "/v1/grants"
    kept = operation.send(httpx.Response(200, json=owner.grants()))
    step = operation.send(kept.work())
    with pytest.raises(StopIteration) as done:
        operation.send(operation.send(answer(step)).work())
    key = done.value.value
    grant = sent["grant"]
    assert (grant.serial, grant.role, key.namespaces) == (3, "reader", ("team",))
    assert [entry.key_id for entry in grant.scope] == [owner.example.team.key_id]
    holder = Identity.from_hex(key.private_key)
    assert grant.recipient == holder.public_key
    joined = read_join(
        from_base64(sent["body"]["join"], "join"),
        account=owner.example.account,
        issuer=owner.example.founder.public_key,
        relayer=owner.example.relayer.public_key,
    )
    assert joined == holder.public_key
    assert sent["body"]["label"] == "agent"


def test_a_taken_serial_is_tried_anew(owner):
    third = owner.grant(3, Identity(bytes([9]) * 32), "writer", [owner.example.team])
    replies = [
        ("/v1/grants", owner.grants()),
        ("/v1/revocations", 409, {"code": "grant.serial", "message": "Taken."}),
        ("/v1/grants", owner.grants([*owner.objects, third])),
        ("/v1/revocations", 201, withdrawn(owner)),
    ]
    agent = owner.example.agent.public_key.hex()
    assert owner.play(owner.client.revoke_key(agent), *replies).serial == 4


def withdrawn(owner, **changes):
    answer = {"recipient": owner.example.agent.public_key.hex(), "serial": 4, **changes}
    return owner.receipt_of("revoke", "revocation", **answer)


def test_a_revocation_is_believed_by_its_own_receipt_only(owner):
    """Every revocation has the same id: one that was withheld comes with the receipt of an older
    one, or with the word that it was another key's."""
    agent = owner.example.agent.public_key.hex()
    older = owner.receipt(op="revoke", items=[[NIL, 0, "blob"]], namespace=None, epoch=None)
    for code, answer in (
        ("receipt", withdrawn(owner, receipt=older)),
        ("recipient", withdrawn(owner, recipient=owner.example.founder.public_key.hex())),
    ):
        owner.restart()
        replies = (("/v1/grants", owner.grants()), ("/v1/revocations", 201, answer))
        fails(UntrustedRelayer, code, owner, owner.client.revoke_key(agent), *replies)


def test_a_grant_is_believed_by_the_receipt_of_its_own_bytes(owner):
    def other(send):
        grant = read_grant(from_base64(json.loads(send.body)["grant"], "grant"))
        return {"receipt": owner.receipt(op="grant", ids=[grant.grant])}

    operation = owner.client.add_key(namespaces=["team"])
    replies = (*listed(owner, owner.grants()), ("/v1/grants", 201, other))
    fails(UntrustedRelayer, "receipt", owner, operation, *replies)


def test_only_owners_change_keys(scene):
    operation = scene.client.add_key(namespaces=["team"])
    replies = [("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants())]
    fails(NotGranted, None, scene, operation, *replies)


def test_owners_hold_the_whole_account_and_keys_hold_something(owner):
    with pytest.raises(ConfigError):
        owner.play(owner.client.add_key(namespaces=["team"], role="owner"))
    with pytest.raises(ConfigError):
        owner.play(
            owner.client.add_key(namespaces=[]),
            ("/v1/relayer", owner.statement()),
            ("/v1/grants", owner.grants()),
        )
