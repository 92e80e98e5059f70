"""A session of the client without a relayer: what one would answer, signed, and a clock."""

import json
from urllib.parse import urlsplit

import httpx
import pytest
from nacl import bindings

from memrelay.config import Settings
from memrelay.exchange import Each, Keep, Send, Sleep
from memrelay.operations.keyholders import Keyholders
from memrelay.sealed.envelope import blob_id
from memrelay.sealed.grants import issue_grant
from memrelay.sealed.keys import account_text, hash_256
from memrelay.sealed.ledger import issue_revocation
from memrelay.sealed.objects import from_base64, read_claimed_member, sign_object, to_base64
from memrelay.sealed.receipts import NO_HEAD
from memrelay.session import Session
from tests.relayers_part import open_unlock

NOW_MS = 1_700_000_000_000
SECRET = bytes([5]) * 32
PUBLIC = bindings.crypto_scalarmult_base(SECRET)
NIL = "00000000-0000-0000-0000-000000000000"
IDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(100)]


FOUND = {"results": [], "total": 0, "dropped_count": 0, "degraded": False}


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

    def receipt_of(self, op, member, *, signer=None, **changes):
        """What answers a grant or a revocation that is sent: its receipt, beside these changes."""

        def answer(send):
            signed = from_base64(json.loads(send.body)[member], "object")
            item = [
                read_claimed_member(signed, "grant") if op == "grant" else NIL,
                0,
                blob_id(signed),
            ]
            said = {"items": [item], "namespace": None, "epoch": None}
            if signer is not None:
                said["relayer"] = signer.public_key.hex()
            receipt = self.receipt(op=op, signer=signer, **said)
            return {"receipt": receipt, **changes}

        return answer

    def play(self, operation, *replies):
        """Carry an operation out; each reply is (path, JSON), (path, status, JSON) or an error.

        A function in the place of the JSON is given what was sent, and returns it.
        """
        waiting = list(replies)

        def drive(running):
            try:
                step = next(running)
                while True:
                    if isinstance(step, Sleep):
                        self.monotonic_s += step.seconds
                        step = running.send(None)
                    elif isinstance(step, Keep):
                        step.work()
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
        return httpx.Response(status, json=body(send) if callable(body) else body)

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


def recall(scene, *before, **options):
    return scene.play(scene.client.recall("tea", **options), *before, ("/v1/recall", FOUND))


def fails(kind, code, scene, operation, *replies):
    with pytest.raises(kind) as caught:
        scene.play(operation, *replies)
    if code is not None:
        assert caught.value.code == code
    return caught.value


def listed(scene, answer):
    return [("/v1/relayer", scene.statement()), ("/v1/grants", answer)]


def path_of_account(scene):
    return f"/v1/accounts/{scene.settings.account_id}"


def account(scene, custody):
    return {"account_id": scene.settings.account_id, "custody": custody, "grant_serial": 2}


def chain(scene, length, start=1, prev=NO_HEAD, **changes):
    texts = []
    for seq in range(start, start + length):
        texts.append(scene.receipt(seq=seq, prev=prev, **changes))
        prev = hash_256(from_base64(texts[-1], "receipt"))
    return texts


def history(texts, seq, ends=None):
    head = NO_HEAD if ends is None else hash_256(from_base64(ends, "receipt"))
    return ("/v1/receipts", {"receipts": texts, "seq": seq, "head": head.hex()})
