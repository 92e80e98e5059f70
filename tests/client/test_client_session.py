"""Trust, unlocking and receipts, played step by step without a relayer."""

import json
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from nacl import bindings

from memrelay.config import Settings
from memrelay.errors import (
    BadRequest,
    ConfigError,
    NotAllowed,
    NotGranted,
    ServerError,
    TimedOut,
    UntrustedGrant,
    UntrustedRelayer,
)
from memrelay.exchange import Each, Send, Sleep
from memrelay.keyholders import Keyholders
from memrelay.models import Draft
from memrelay.sealed.grants import issue_grant, read_grant
from memrelay.sealed.keys import Identity, account_text, hash_256
from memrelay.sealed.ledger import issue_revocation
from memrelay.sealed.objects import from_base64, read_join, sign_object, to_base64
from memrelay.sealed.receipts import NO_HEAD
from memrelay.sealed.unlock import open_unlock
from memrelay.session import Session

NOW_MS = 1_700_000_000_000
SECRET = bytes([5]) * 32
PUBLIC = bindings.crypto_scalarmult_base(SECRET)
IDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(100)]


class Scene:
    """A session, the clock it reads, and the signed objects that a relayer would hold."""

    def __init__(self, example, holder, tmp_path, **settings):
        self.example = example
        self.now_ms = NOW_MS
        self.monotonic_s = 0.0
        self.sends = []
        self.unlock_secrets = {hash_256(PUBLIC)[:8]: SECRET}
        self.objects = [
            self.grant(1, example.founder, "owner", [example.root]),
            self.grant(2, example.agent, "writer", [example.team]),
        ]
        self.settings = Settings(
            url="https://memory.example/prefix",
            account_id=account_text(example.account),
            private_key=holder.seed_hex(),
            **{
                "namespace": "team",
                "relayer_key": example.relayer.public_key.hex(),
                "custody": "sealed",
                "seen_path": tmp_path / "seen.json",
                **settings,
            },
        )
        self.restart()

    def restart(self):
        """A new process of the same client."""
        self.session = Session(
            self.settings,
            clock=lambda: self.now_ms / 1000,
            monotonic=lambda: self.monotonic_s,
        )
        self.client = Keyholders(self.session)

    def grant(self, serial, recipient, role, keys):
        return issue_grant(
            self.example.founder,
            account=self.example.account,
            serial=serial,
            recipient=recipient.public_key,
            role=role,
            keys=keys,
            created_ms=NOW_MS,
        )

    def statement(self, *, signer=None, issued=None, key=PUBLIC):
        signer = signer or self.example.relayer
        entry = {"kid": hash_256(key)[:8].hex(), "key": key.hex(), "not_after": NOW_MS + 10**9}
        payload = {
            "relayer": signer.public_key.hex(),
            "issued": self.now_ms if issued is None else issued,
            "unlock_keys": [entry],
        }
        return {"statement": to_base64(sign_object("relayer", payload, signer))}

    def withdrawn(self):
        """The agent's revocation, as the next object."""
        return issue_revocation(
            self.example.founder,
            account=self.example.account,
            serial=3,
            recipient=self.example.agent.public_key,
            created_ms=NOW_MS,
        )

    def grants(self, objects=None, serial=None):
        objects = self.objects if objects is None else objects
        listed = [
            {
                "kind": "grant" if b'"role"' in data else "revoke",
                "serial": number,
                "object": to_base64(data),
                "label": "",
            }
            for number, data in enumerate(objects, 1)
        ]
        return {"grants": listed, "grant_serial": len(objects) if serial is None else serial}

    def receipt(self, *, seq=1, prev=NO_HEAD, ids=(IDS[0],), signer=None, **changes):
        payload = {
            "relayer": self.example.relayer.public_key.hex(),
            "account": account_text(self.example.account),
            "seq": seq,
            "prev": prev.hex(),
            "time": NOW_MS,
            "op": "remember",
            "actor": self.session.identity.public_key.hex(),
            "namespace": "team",
            "epoch": 1,
            "items": [[one, 1, "blob"] for one in ids],
            "serial": 2,
        }
        data = sign_object("receipt", {**payload, **changes}, signer or self.example.relayer)
        return to_base64(data)

    def play(self, operation, *replies):
        """Carry an operation out; each reply is (path, JSON), (path, status, JSON) or an error."""
        waiting = list(replies)

        def drive(running):
            try:
                step = next(running)
                while True:
                    if isinstance(step, Sleep):
                        self.monotonic_s += step.seconds
                        step = running.send(None)
                    elif isinstance(step, Each):
                        step = running.send([drive(one) for one in step.operations])
                    else:
                        step = running.send(self.reply(step, waiting))
            except StopIteration as done:
                return done.value

        result = drive(operation)
        assert not waiting, "the client asked less than expected"
        return result

    def reply(self, send, waiting):
        assert isinstance(send, Send)
        self.sends.append(send)
        assert waiting, f"unexpected {send.method} {send.target}"
        path, *rest = waiting.pop(0)
        assert urlsplit(send.target).path == path
        status, body = rest if len(rest) == 2 else (200, rest[0])
        return httpx.Response(status, json=body)

    def unlocked(self, send):
        """The payload of a request's unlock header, as the relayer opens it."""
        return open_unlock(
            send.headers["x-memrelay-unlock"],
            unlock_secrets=self.unlock_secrets,
            relayer=self.example.relayer.public_key,
            account=self.example.account,
            sender=self.session.identity.public_key,
            now_ms=self.now_ms,
        )


@pytest.fixture
def scene(example, tmp_path):
    return Scene(example, example.agent, tmp_path)


@pytest.fixture
def owner(example, tmp_path):
    return Scene(example, example.founder, tmp_path)


def remembered(scene, **changes):
    answer = {
        "id": IDS[0],
        "status": "pending",
        "namespace": "team",
        "duplicate": False,
        "redacted": {},
        "receipt": scene.receipt(),
    }
    return {**answer, **changes}


FOUND = {"results": [], "total": 0, "dropped_count": 0, "degraded": False}


def recall(scene, *before, **options):
    return scene.play(scene.client.recall("tea", **options), *before, ("/v1/recall", FOUND))


def fails(kind, code, scene, operation, *replies):
    with pytest.raises(kind) as caught:
        scene.play(operation, *replies)
    if code is not None:
        assert caught.value.code == code
    return caught.value


# Unlocking


def test_a_write_sends_just_the_key_that_it_needs(scene):
    result = scene.play(
        scene.client.remember("Anna prefers tea.", tags=["a"]),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/remember", 202, remembered(scene)),
    )
    assert result.id == IDS[0]
    statement, grants, write = scene.sends
    assert (statement.signed, grants.signed, write.signed) == (False, True, True)
    assert "x-memrelay-unlock" not in {**statement.headers, **grants.headers}
    unlock = scene.unlocked(write)
    assert unlock.keys == (scene.example.team,)
    assert unlock.hold_s == 300
    body = json.loads(write.body)
    assert body.pop("idempotency_key")
    assert body == {
        "text": "Anna prefers tea.",
        "namespace": "team",
        "tags": ["a"],
        "relayer": scene.example.relayer.public_key.hex(),
    }


def test_a_root_never_leaves_even_an_owners_client(owner):
    recall(
        owner,
        ("/v1/relayer", owner.statement()),
        ("/v1/grants", owner.grants()),
        namespace="other",
    )
    keys = owner.unlocked(owner.sends[-1]).keys
    assert [key.name for key in keys] == ["other"]
    assert keys[0] == owner.example.root.namespace_key(owner.example.account, "other")


def test_a_header_is_reused_for_240_seconds_and_no_longer(scene):
    recall(scene, ("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants()))
    scene.now_ms += 240_000
    recall(scene)
    first, second = (send.headers for send in scene.sends[-2:])
    assert first == second
    scene.now_ms += 1
    recall(scene)
    assert scene.sends[-1].headers != first


def test_a_header_ends_with_the_grants_that_its_keys_are_from(scene):
    recall(scene, ("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants()))
    now = ("/v1/grants", scene.grants([*scene.objects, scene.withdrawn()]))
    fails(NotGranted, None, scene, scene.client.recall("tea", namespace="other"), now)
    fails(NotGranted, None, scene, scene.client.recall("tea"), now)


def test_statement_and_grants_are_fetched_again_after_ten_minutes(scene):
    recall(scene, ("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants()))
    scene.now_ms += 600_001
    recall(scene, ("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants()))


def test_an_unknown_unlock_key_is_cured_once_with_the_same_idempotency_key(scene):
    other = bindings.crypto_scalarmult_base(bytes([6]) * 32)
    unknown = {"code": "unlock_key_unknown", "message": "No."}
    scene.play(
        scene.client.remember("x"),
        ("/v1/relayer", scene.statement(key=other)),
        ("/v1/grants", scene.grants()),
        ("/v1/remember", 421, unknown),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/remember", 202, remembered(scene)),
    )
    assert scene.sends[2].body == scene.sends[5].body
    assert scene.unlocked(scene.sends[5])


def test_a_second_refusal_is_final(scene):
    rejected = {"code": "unlock_rejected", "message": "No."}
    fails(
        NotAllowed,
        "unlock_rejected",
        scene,
        scene.client.recall("tea"),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/recall", 403, rejected),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/recall", 403, rejected),
    )


def test_a_namespace_without_a_grant_is_looked_for_once_and_never_asked_for(scene):
    fails(
        NotGranted,
        None,
        scene,
        scene.client.recall("tea", namespace="other"),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/grants", scene.grants()),
    )


def test_a_missing_unlock_is_explained(scene):
    error = fails(
        NotAllowed,
        "unlock_required",
        scene,
        scene.client.recall("tea"),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
        ("/v1/recall", 403, {"code": "unlock_required", "message": "No."}),
    )
    assert "proxy" in str(error)


# Custody


def account(scene, custody):
    return {"account_id": scene.settings.account_id, "custody": custody, "grant_serial": 2}


def path_of_account(scene):
    return f"/v1/accounts/{scene.settings.account_id}"


def test_a_managed_account_sends_no_keys(example, tmp_path):
    scene = Scene(example, example.agent, tmp_path, custody="managed")
    recall(scene)
    assert "x-memrelay-unlock" not in scene.sends[0].headers


def test_a_managed_client_is_told_when_its_account_is_sealed(example, tmp_path):
    scene = Scene(example, example.agent, tmp_path, custody="managed")
    error = fails(
        NotAllowed,
        "unlock_required",
        scene,
        scene.client.recall("tea"),
        ("/v1/recall", 403, {"code": "unlock_required", "message": "No."}),
    )
    assert "set custody to sealed" in str(error)


def test_custody_is_asked_once_and_sealed_stays_sealed(example, tmp_path):
    scene = Scene(example, example.agent, tmp_path, custody="auto")
    recall(
        scene,
        (path_of_account(scene), account(scene, "sealed")),
        ("/v1/relayer", scene.statement()),
        ("/v1/grants", scene.grants()),
    )
    recall(scene)
    scene.session.save()
    scene.restart()
    recall(scene, ("/v1/relayer", scene.statement()), ("/v1/grants", scene.grants()))
    assert scene.unlocked(scene.sends[-1])


def test_an_owner_believes_custody_only_with_the_grant(example, tmp_path):
    scene = Scene(example, example.founder, tmp_path, custody="auto")
    claim = (path_of_account(scene), account(scene, "managed"))
    fails(
        UntrustedRelayer,
        "custody",
        scene,
        scene.client.recall("tea"),
        claim,
        ("/v1/grants", scene.grants()),
        ("/v1/relayer", scene.statement()),  # the pinned relayer may have another key by now
    )
    scene.objects.append(scene.grant(3, example.relayer, "custodian", [example.root]))
    scene.restart()
    recall(scene, claim, ("/v1/grants", scene.grants()))
    assert "x-memrelay-unlock" not in scene.sends[-1].headers


def test_an_account_that_became_sealed_is_unlocked_from_then_on(example, tmp_path):
    scene = Scene(example, example.agent, tmp_path, custody="auto")
    recall(
        scene,
        (path_of_account(scene), account(scene, "managed")),
        ("/v1/grants", scene.grants()),
        ("/v1/recall", 403, {"code": "unlock_required", "message": "No."}),
        ("/v1/relayer", scene.statement()),
    )
    assert scene.unlocked(scene.sends[-1])


# The relayer's identity


def test_another_relayer_is_refused(scene):
    fails(
        UntrustedRelayer,
        "pin",
        scene,
        scene.client.recall("tea"),
        ("/v1/relayer", scene.statement(signer=scene.example.agent)),
    )


def test_the_first_relayer_is_pinned_and_stays_so(example, tmp_path):
    scene = Scene(example, example.agent, tmp_path, relayer_key=None)
    scene.play(scene.client.statement(), ("/v1/relayer", scene.statement()))
    scene.restart()
    other = scene.statement(signer=example.founder)
    fails(UntrustedRelayer, "pin", scene, scene.client.statement(), ("/v1/relayer", other))


def test_a_stale_statement_is_refused(scene):
    stale = scene.statement(issued=NOW_MS - 600_001)
    fails(UntrustedRelayer, "stale", scene, scene.client.statement(), ("/v1/relayer", stale))


@pytest.mark.parametrize("answer", [{}, {"statement": 5}, {"statement": "x"}, {"statement": ""}])
def test_a_malformed_statement_is_refused(scene, answer):
    with pytest.raises((UntrustedRelayer, ServerError)):
        scene.play(scene.client.statement(), ("/v1/relayer", answer))


# Grants


def listed(scene, answer):
    return [("/v1/relayer", scene.statement()), ("/v1/grants", answer)]


def test_a_shorter_history_is_refused_even_after_a_restart(scene):
    recall(scene, *listed(scene, scene.grants()))
    scene.restart()
    fails(
        UntrustedRelayer,
        "rollback",
        scene,
        scene.client.recall("tea"),
        *listed(scene, scene.grants(serial=1)),
    )


def test_an_owner_notices_a_withheld_grant(owner):
    for answer in (
        owner.grants(serial=3),
        owner.grants(owner.objects[:1], serial=2),
        owner.grants(
            [owner.objects[0], owner.grant(3, owner.example.agent, "writer", [owner.example.team])],
            serial=3,
        ),
    ):
        owner.restart()
        fails(UntrustedRelayer, "rollback", owner, owner.client.recall("x"), *listed(owner, answer))


def test_grants_of_a_stranger_are_refused(scene):
    stranger = issue_grant(
        scene.example.relayer,
        account=scene.example.account,
        serial=3,
        recipient=scene.example.agent.public_key,
        role="writer",
        keys=[scene.example.root.namespace_key(scene.example.account, "trap")],
        created_ms=NOW_MS,
    )
    answer = scene.grants([*scene.objects, stranger])
    fails(UntrustedGrant, "issuer", scene, scene.client.recall("x"), *listed(scene, answer))


def test_a_revoked_key_has_nothing_to_send(scene):
    answer = scene.grants([*scene.objects, scene.withdrawn()])
    again = ("/v1/grants", answer)
    fails(NotGranted, None, scene, scene.client.recall("x"), *listed(scene, answer), again)


def one_grant(**members):
    return {"grants": [{"kind": "grant", "serial": 1, **members}], "grant_serial": 2}


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (ServerError, {"grants": 5, "grant_serial": 2}),
        (ServerError, {"grants": [5], "grant_serial": 2}),
        (ServerError, one_grant()),
        (ServerError, one_grant(object="AAAA", serial="1")),
        (ServerError, {"grants": [], "grant_serial": "2"}),
        (ServerError, {"grants": [], "grant_serial": 2**64}),
        (UntrustedRelayer, one_grant(object="A")),
        (UntrustedGrant, one_grant(object="AAAA")),
        (UntrustedGrant, one_grant(object="", kind="gift")),
    ],
)
def test_a_malformed_list_of_grants_is_refused(scene, kind, answer):
    fails(kind, None, scene, scene.client.recall("x"), *listed(scene, answer))


# Receipts


def test_a_false_receipt_makes_the_write_untrusted(scene):
    lies = {
        "signature": scene.receipt(signer=scene.example.agent),
        "receipt": scene.receipt(op="forget"),
        "base64": "!",
    }
    before = listed(scene, scene.grants())
    for code, receipt in lies.items():
        scene.restart()
        reply = ("/v1/remember", 202, remembered(scene, receipt=receipt))
        fails(UntrustedRelayer, code, scene, scene.client.remember("x"), *before, reply)
    for receipt in (
        scene.receipt(ids=[IDS[1]]),
        scene.receipt(actor=scene.example.founder.public_key.hex()),
    ):
        scene.restart()
        reply = ("/v1/remember", 202, remembered(scene, receipt=receipt))
        fails(UntrustedRelayer, "receipt", scene, scene.client.remember("x"), *before, reply)


def test_a_known_memory_needs_no_new_receipt(scene):
    reply = remembered(scene, duplicate=True, receipt=None)
    result = scene.play(
        scene.client.remember("x"),
        *listed(scene, scene.grants()),
        ("/v1/remember", 202, reply),
    )
    assert result.duplicate


@pytest.mark.parametrize("receipt", [None, "absent"])
def test_a_new_memory_needs_its_receipt(scene, receipt):
    answer = remembered(scene, receipt=receipt)
    if receipt == "absent":
        del answer["receipt"]
    reply = ("/v1/remember", 202, answer)
    before = listed(scene, scene.grants())
    fails(UntrustedRelayer, "receipt", scene, scene.client.remember("x"), *before, reply)


def chain(scene, length, start=1, prev=NO_HEAD, **changes):
    texts = []
    for seq in range(start, start + length):
        texts.append(scene.receipt(seq=seq, prev=prev, **changes))
        prev = hash_256(from_base64(texts[-1], "receipt"))
    return texts


def history(texts, seq):
    return ("/v1/receipts", {"receipts": texts, "seq": seq, "head": ""})


def test_history_is_followed_from_where_it_was_left(scene):
    texts = chain(scene, 3)
    relayer = ("/v1/relayer", scene.statement())
    first = scene.play(scene.client.receipts(), relayer, history(texts[:2], 2), history([], 2))
    assert [receipt.seq for receipt in first] == [1, 2]
    scene.restart()
    later = scene.play(scene.client.receipts(), relayer, history(texts[2:], 3), history([], 3))
    assert [receipt.seq for receipt in later] == [3]
    assert parse_qs(urlsplit(scene.sends[-2].target).query)["after"] == ["2"]


def test_rewritten_withheld_and_forked_history_is_noticed(scene):
    texts = chain(scene, 3)
    other = chain(scene, 3, epoch=2)
    write = ("/v1/remember", 202, remembered(scene, receipt=texts[1]))
    scene.play(scene.client.remember("x"), *listed(scene, scene.grants()), write)
    fails(
        UntrustedRelayer,
        "fork",
        scene,
        scene.client.receipts(),
        history(other, 3),
    )
    fails(
        UntrustedRelayer,
        "rollback",
        scene,
        scene.client.receipts(),
        history(texts[:1], 1),
        history([], 1),
    )
    fails(UntrustedRelayer, "chain", scene, scene.client.receipts(), history(texts[1:], 3))
    fails(
        UntrustedRelayer,
        "rollback",
        scene,
        scene.client.receipts(),
        history(texts[:2], 3),
        history([], 3),
    )
    assert len(scene.play(scene.client.receipts(), history(texts, 3), history([], 3))) == 3
    # A relayer that was set back has nothing behind what was followed, and says so itself.
    fails(UntrustedRelayer, "rollback", scene, scene.client.receipts(), history([], 2))


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
    long = {"text": "x" * 70_000, "unknown": 1}
    results = scene.play(
        scene.client.remember_many(
            iter(["a", {"text": "b", "kind": "event"}, long, Draft(text="c"), "d"])
        ),
        *listed(scene, scene.grants()),
        bulk(scene, 0, 2),
        ("/v1/remember", 202, remembered(scene, id=IDS[2], receipt=scene.receipt(ids=[IDS[2]]))),
        bulk(scene, 3, 2),
    )
    assert [result.id for result in results] == IDS[:5]
    items = json.loads(scene.sends[2].body)["items"]
    assert [item.get("kind") for item in items] == [None, "event"]
    assert "unknown" not in json.loads(scene.sends[3].body)


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
        ids = [sent["grant"].grant]
        return httpx.Response(201, json={"receipt": owner.receipt(op="grant", ids=ids)})

    operation = owner.client.add_key(namespaces=[" team "], label="agent", role="reader")
    assert next(operation).target == "/v1/relayer"
    step = operation.send(httpx.Response(200, json=owner.statement()))
    assert step.target == "/v1/grants"
    step = operation.send(httpx.Response(200, json=owner.grants()))
    with pytest.raises(StopIteration) as done:
        operation.send(answer(step))
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
        (
            "/v1/revocations",
            201,
            {
                "recipient": owner.example.agent.public_key.hex(),
                "serial": 4,
                "receipt": owner.receipt(op="revoke"),
            },
        ),
    ]
    agent = owner.example.agent.public_key.hex()
    assert owner.play(owner.client.revoke_key(agent), *replies).serial == 4


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


# A relayer's next key

NEXT = Identity(bytes([21]) * 32)
AFTER_NEXT = Identity(bytes([22]) * 32)


def named(relayer, following, signer=None):
    payload = {
        "relayer": relayer.public_key.hex(),
        "next": following.public_key.hex(),
        "created": NOW_MS,
    }
    return to_base64(sign_object("relayer-next", payload, signer or relayer))


def succeeded(scene, *succession, signer=NEXT):
    return ("/v1/relayer", scene.statement(signer=signer) | {"succession": list(succession)})


def test_a_successor_named_by_the_pinned_key_is_followed_for_good(scene):
    first = named(scene.example.relayer, NEXT)
    scene.play(scene.client.statement(), succeeded(scene, first))
    assert scene.session.pinned() == NEXT.public_key
    scene.restart()
    assert scene.session.pinned() == NEXT.public_key
    both = (first, named(NEXT, AFTER_NEXT))
    scene.play(scene.client.statement(), succeeded(scene, *both, signer=AFTER_NEXT))
    assert scene.session.pinned() == AFTER_NEXT.public_key
    # Who stole the first key can name another heir, and is not believed any more.
    thief = Identity(bytes([23]) * 32)
    heir = succeeded(scene, named(scene.example.relayer, thief), signer=thief)
    scene.restart()
    fails(UntrustedRelayer, "pin", scene, scene.client.statement(), heir)
    fails(UntrustedRelayer, "pin", scene, scene.client.statement(), succeeded(scene, first))


@pytest.mark.parametrize("succession", ["none", "of another", "unsigned", "gap", "twice"])
def test_a_relayer_that_the_pinned_key_does_not_name_is_refused(scene, succession):
    relayer = scene.example.relayer
    objects = {
        "none": [],
        "of another": [named(AFTER_NEXT, NEXT)],
        "unsigned": [named(relayer, NEXT, NEXT)],
        "gap": [named(relayer, AFTER_NEXT)],
        "twice": [named(relayer, NEXT), named(relayer, NEXT)],
    }
    code = {"none": "pin", "of another": "pin", "unsigned": "signature"}
    reply = succeeded(scene, *objects[succession])
    operation = scene.client.statement()
    fails(UntrustedRelayer, code.get(succession, "succession"), scene, operation, reply)
    assert scene.session.pinned() == relayer.public_key


def test_a_change_signed_for_an_earlier_key_is_signed_again_once(owner):
    agent = owner.example.agent.public_key.hex()
    other = ("/v1/revocations", 400, {"code": "relayer.other", "message": "Another relayer."})
    receipt = owner.receipt(op="revoke", relayer=NEXT.public_key.hex(), signer=NEXT)
    done = {"recipient": agent, "serial": 3, "receipt": receipt}
    owner.play(
        owner.client.revoke_key(agent),
        ("/v1/grants", owner.grants()),
        other,
        succeeded(owner, named(owner.example.relayer, NEXT)),
        ("/v1/revocations", 201, done),
    )
    bodies = [json.loads(send.body) for send in owner.sends if send.method == "POST"]
    assert [body["relayer"] for body in bodies] == [
        owner.example.relayer.public_key.hex(),
        NEXT.public_key.hex(),
    ]
    assert bodies[0]["revocation"] == bodies[1]["revocation"]


def test_a_relayer_that_wants_another_ones_changes_gets_none(owner):
    """It refuses the pinned key's name and shows no successor: nothing is signed for it."""
    agent = owner.example.agent.public_key.hex()
    other = ("/v1/revocations", 400, {"code": "relayer.other", "message": "Another relayer."})
    same = ("/v1/relayer", owner.statement())
    grants = ("/v1/grants", owner.grants())
    fails(BadRequest, "relayer.other", owner, owner.client.revoke_key(agent), grants, other, same)
    stranger = succeeded(owner)
    fails(UntrustedRelayer, "pin", owner, owner.client.revoke_key(agent), grants, other, stranger)


def test_custody_passed_on_needs_the_object_that_names_the_successor(example, tmp_path):
    scene = Scene(example, example.founder, tmp_path, custody="auto")
    scene.objects.append(scene.grant(3, example.relayer, "custodian", [example.root]))
    handed = issue_grant(
        example.relayer,
        account=example.account,
        serial=4,
        recipient=NEXT.public_key,
        role="custodian",
        keys=[example.root],
        created_ms=NOW_MS,
    )
    scene.objects.append(handed)
    claim, grants = (path_of_account(scene), account(scene, "managed")), scene.grants()
    operation = scene.client.recall("tea")
    fails(UntrustedGrant, "role", scene, operation, claim, ("/v1/grants", grants))
    proven = ("/v1/grants", grants | {"succession": [named(example.relayer, NEXT)]})
    scene.session.forget_grants()
    recall(scene, claim, proven)


# One memory


def test_a_memory_is_asked_for_with_the_keys_that_are_held(scene):
    memory = {"id": IDS[0], "namespace": "team", "text": "x"}
    scene.play(
        scene.client.get(IDS[0]),
        *reversed(listed(scene, scene.grants())),
        (f"/v1/memories/{IDS[0]}", memory),
    )
    assert [key.name for key in scene.unlocked(scene.sends[-1]).keys] == ["team"]


@pytest.mark.parametrize("memory_id", ["", "../keys", "a/b", "a?b", "a%2fb", "a b"])
def test_an_id_cannot_lead_elsewhere(scene, memory_id):
    with pytest.raises(ValueError, match="memory id"):
        scene.play(scene.client.forget(memory_id))
    with pytest.raises(ValueError, match="memory id"):
        scene.play(scene.client.get(memory_id, namespace="team"))


def test_erasing_names_the_relayer_in_the_query(scene):
    answer = {
        "id": IDS[0],
        "erased": True,
        "pending": False,
        "receipt": scene.receipt(op="forget"),
    }
    result = scene.play(scene.client.forget(IDS[0]), (f"/v1/memories/{IDS[0]}", answer))
    assert result.erased
    query = parse_qs(urlsplit(scene.sends[0].target).query)
    assert query == {"relayer": [scene.example.relayer.public_key.hex()]}
    assert scene.sends[0].method == "DELETE"
