"""What the vectors of signed objects and unlock headers are about (SPEC §2, §4, §6).

It does not own files (`generate_vectors.py`) or formulas (`reference.py`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nacl import bindings

from tests import reference as ref
from tests.scenarios import (
    ACCOUNT,
    AGENT,
    FOUNDER,
    MEMORY,
    NOW,
    OTHER_ACCOUNT,
    RELAYER,
    SECOND,
    STRANGER,
    THIRD,
    Json,
    Scenario,
)

UNLOCK_SECRETS = [ref.drawn("unlock key 0"), ref.drawn("unlock key 1")]
UNLOCK_KEYS = [bindings.crypto_scalarmult_base(secret) for secret in UNLOCK_SECRETS]
CONTENT_KEY = ref.drawn("content key")


def strict_json() -> Iterator[Scenario]:
    accepted = {
        "small": b'{"a":1}',
        "empty": b"{}",
        "white-space": b' { "a" : [ 1 , null , true ] }\n',
        "greatest-integers": b'{"a":9007199254740991,"b":-9007199254740991}',
        "depth-6": b'{"a":[[[[[]]]]]}',
        "brackets-in-text": b'{"a":"[[[[[[[[\\"[[[{{{{"}',
        "escaped-pair": b'{"a":"\\ud83c\\udf75"}',
        "64-kib": b'{"a":"' + b"x" * (64 * 1024 - 8) + b'"}',
    }
    for name, payload in accepted.items():
        value = json.loads(payload)
        output = {"value": value if len(payload) < 1000 else {"a": len(value["a"])}}
        yield Scenario(f"json-{name}", "json", "§2", _json_input(payload, value), output=output)
    refused = {
        "duplicate": b'{"a":1,"a":1}',
        "duplicate-inside": b'{"a":{"b":1,"b":2}}',
        "duplicate-by-escape": b'{"a":1,"\\u0061":1}',
        "float": b'{"a":1.0}',
        "exponent": b'{"a":1e2}',
        "nan": b'{"a":NaN}',
        "infinity": b'{"a":-Infinity}',
        "integer-too-great": b'{"a":9007199254740992}',
        "integer-too-small": b'{"a":-9007199254740992}',
        "integer-of-5000-digits": b'{"a":' + b"9" * 5000 + b"}",
        "depth-7": b'{"a":[[[[[[]]]]]]}',
        "depth-bomb": b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        "byte-order-mark": b'\xef\xbb\xbf{"a":1}',
        "utf-16": '{"a":1}'.encode("utf-16-le"),
        "invalid-utf-8": b'{"a":"\xff"}',
        "overlong-utf-8": b'{"a":"\xc0\xaf"}',
        "raw-surrogate": b'{"a":"\xed\xa0\x80"}',
        "escaped-surrogate": b'{"a":"\\ud800"}',
        "surrogate-in-a-name": b'{"a":{"\\ud800":1}}',
        "control-character": b'{"a":"\n"}',
        "array-at-the-top": b'["a"]',
        "text-at-the-top": b'"a"',
        "trailing-comma": b'{"a":1,}',
        "trailing-bytes": b'{"a":1}{}',
        "leading-zero": b'{"a":01}',
        "comment": b'{"a":1}//',
        "nothing": b"",
        "65537-bytes": b'{"a":"' + b"x" * (64 * 1024 - 7) + b'"}',
    }
    for name, payload in refused.items():
        given = _json_input(payload, {"a": 1})
        yield Scenario(f"json-refused-{name}", "json", "§2", given, "json")


def _json_input(payload: bytes, value: Mapping[str, Any]) -> Json:
    """A payload in base64; a long run of one byte is given as a rule."""
    for byte in (b"x", b"9", b"["):
        if (run := payload.count(byte)) > 1000:
            head, _, tail = payload.partition(byte * run)
            parts = {"head": ref.b64(head), "byte": byte.decode(), "run": run}
            return {**parts, "tail": ref.b64(tail), "members": list(value)}
    empty: Json = {"byte": "", "run": 0, "tail": ""}
    return {"head": ref.b64(payload), **empty, "members": list(value)}


def _object(
    name: str,
    signer: ref.Signer,
    kind: str,
    payload: bytes | Json,
    expect: str = "ok",
    *,
    claimed: ref.Signer | None = None,
    change: Callable[[bytes], bytes] = bytes,
) -> Scenario:
    members = payload if isinstance(payload, dict) else {}
    data = ref.compact(payload) if isinstance(payload, dict) else payload
    given = {"kind": kind, "signer": (claimed or signer).hex}
    given["object"] = ref.b64(change(signer.signed(kind, data)))
    output = {"members": {k: v for k, v in members.items() if k != "v"}}
    made_with = {"seed": signer.seed.hex()}
    return Scenario(f"object-{name}", "object", "§4", given, expect, output, made_with)


def objects() -> Iterator[Scenario]:
    state: Json = {"v": 1, "relayer": RELAYER.hex, "account": ref.account_text(ACCOUNT)}
    state |= {
        "memory": str(MEMORY),
        "revision": 1,
        "seq": 7,
        "time": NOW,
        "expires_at": None,
        "state": {"pinned": True},
    }
    following = {"v": 1, "relayer": RELAYER.hex, "next": SECOND.hex, "created": NOW}
    yield _object("state", RELAYER, "state", state)
    yield _object("state-expiring", RELAYER, "state", state | {"expires_at": NOW})
    yield _object("relayer-next", RELAYER, "relayer-next", following)

    yield _object("another-signer", STRANGER, "state", state, "signature", claimed=RELAYER)
    yield _object(
        "another-kind",
        RELAYER,
        "state",
        ref.compact(state),
        "signature",
        change=lambda _: RELAYER.signed("receipt", ref.compact(state)),
    )
    yield _object(
        "unsigned", RELAYER, "state", state, "signature", change=lambda o: o[:-64] + bytes(64)
    )
    yield _object("signature-cut", RELAYER, "state", state, "signature", change=lambda o: o[:-1])
    yield _object("only-a-signature", RELAYER, "state", b"", "length")
    yield _object("payload-altered", RELAYER, "state", state, "signature", change=flipped(20))
    yield _object("reserialised", RELAYER, "state", state, "signature", change=_reserialised)
    yield _object("version-2", RELAYER, "state", {**state, "v": 2}, "version")
    yield _object("version-text", RELAYER, "state", {**state, "v": "1"}, "version")
    yield _object(
        "no-version", RELAYER, "state", {k: state[k] for k in state if k != "v"}, "members"
    )
    yield _object(
        "member-missing", RELAYER, "state", {k: state[k] for k in state if k != "time"}, "members"
    )
    endless = {k: state[k] for k in state if k != "expires_at"}
    yield _object("state-without-an-end", RELAYER, "state", endless, "members")
    yield _object("member-unknown", RELAYER, "state", {**state, "more": 1}, "members")
    twice = ref.compact(state)[:-1] + b',"state":"failed"}'
    yield _object("member-twice", RELAYER, "state", twice, "json")


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _reserialised(signed: bytes) -> bytes:
    """The same members with a space after every comma, under the old signature."""
    return json.dumps(json.loads(signed[:-64]), separators=(", ", ":")).encode() + signed[-64:]


def _simple(
    name: str,
    operation: str,
    signer: ref.Signer,
    members: Json,
    expect: str = "ok",
    *,
    spec: str = "§4.2",
    kind: str,
    given: Json | None = None,
    change: Callable[[bytes], bytes] = bytes,
) -> Scenario:
    signed = ref.b64(change(signer.signed(kind, ref.compact(members))))
    output = {"members": {k: v for k, v in members.items() if k != "v"}}
    made_with = {"seed": signer.seed.hex()}
    return Scenario(
        f"{operation}-{name}",
        operation,
        spec,
        {"object": signed, **(given or {})},
        expect,
        output,
        made_with,
    )


def revocations() -> Iterator[Scenario]:
    members = ref.revocation_members(
        FOUNDER.public, AGENT.public, account=ACCOUNT, serial=3, created=NOW
    )

    def revocation(name: str, expect: str = "ok", **changes: Any) -> Scenario:
        signer, change = changes.pop("signer", FOUNDER), changes.pop("change", bytes)
        changed = {**members, **changes}
        return _simple(name, "revocation", signer, changed, expect, kind="revoke", change=change)

    yield revocation("ok")
    yield revocation("signed-by-another", "signature", signer=STRANGER)
    yield revocation(
        "altered", "signature", change=lambda o: o.replace(b'"serial":3', b'"serial":4')
    )
    yield revocation("serial-0", "integer", serial=0)
    yield revocation("recipient-short", "hex", recipient=AGENT.hex[1:])
    yield revocation("account-without-0x", "account", account=ACCOUNT.hex())
    yield revocation("member-unknown", "members", reason="lost")


def joins() -> Iterator[Scenario]:
    members: Json = {"v": 1, "account": ref.account_text(ACCOUNT), "issuer": FOUNDER.hex}
    members |= {"recipient": AGENT.hex, "relayer": RELAYER.hex}
    given = {k: members[k] for k in ("account", "issuer", "recipient", "relayer")}

    def join(name: str, expect: str = "ok", **changes: Any) -> Scenario:
        signer, change = changes.pop("signer", AGENT), changes.pop("change", bytes)
        changed = {**members, **changes}
        return _simple(
            name, "join", signer, changed, expect, kind="join", given=given, change=change
        )

    yield join("ok")
    yield join("any-issuer", issuer=None)
    yield join("any-account", account=None, issuer=None)
    yield join("any-account-at-another-relayer", "join", account=None, issuer=None,
               relayer=STRANGER.hex)  # fmt: skip
    yield join("signed-by-the-issuer", "signature", signer=FOUNDER)
    yield join("unsigned", "signature", change=lambda o: o[:-64] + bytes(64))
    yield join("another-account", "join", account=ref.account_text(OTHER_ACCOUNT))
    yield join("another-issuer", "join", issuer=STRANGER.hex)
    yield join("another-relayer", "join", relayer=STRANGER.hex)
    yield join("another-recipient", "joiner", recipient=STRANGER.hex, signer=STRANGER)
    yield join("member-unknown", "members", role="owner")


def statements() -> Iterator[Scenario]:
    unlock_keys = [
        {"kid": ref.kid(key).hex(), "key": key.hex(), "not_after": NOW + 86_400_000 + n}
        for n, key in enumerate(UNLOCK_KEYS)
    ]
    members: Json = {"v": 1, "relayer": RELAYER.hex, "issued": NOW, "unlock_keys": unlock_keys}
    given = {"pinned": RELAYER.hex, "now": NOW + 60_000}

    def statement(name: str, expect: str = "ok", **changes: Any) -> Scenario:
        signer, change = changes.pop("signer", RELAYER), changes.pop("change", bytes)
        changed = {**members, **changes}
        return _simple(
            name,
            "statement",
            signer,
            changed,
            expect,
            spec="§6",
            kind="relayer",
            given=given,
            change=change,
        )

    yield statement("ok")
    yield statement("one-key", unlock_keys=unlock_keys[:1])
    yield statement("signed-by-another", "signature", signer=STRANGER)
    yield statement("of-another-relayer", "pin", signer=STRANGER, relayer=STRANGER.hex)
    yield statement("unsigned", "signature", change=lambda o: o[:-64] + bytes(64))
    planted = UNLOCK_KEYS[0].hex().encode(), STRANGER.exchange_public.hex().encode()
    yield statement("key-planted", "signature", change=lambda o: o.replace(*planted))
    yield statement("member-unknown", "members", motd="hello")


def receipts() -> Iterator[Scenario]:
    made = list(_receipt_chain())
    yield _receipts("chain-of-3", made)
    yield _receipts("continued", made[1:], seq=1, head=ref.hash_256(made[0]))
    yield _receipts("none", [])
    yield _receipts("first-missing", made[1:], "chain")
    yield _receipts("middle-missing", [made[0], made[2]], "chain")
    yield _receipts("swapped", [made[0], made[2], made[1]], "chain")
    yield _receipts("repeated", [made[0], made[0]], "chain")
    yield _receipts("first-rewritten", [_receipt(1, bytes(32), op="forget"), *made[1:]], "chain")
    yield _receipts("head-altered", made[1:], "chain", seq=1, head=bytes(32))
    fork = _receipt(3, ref.hash_256(made[0]))
    yield _receipts("wrong-previous", [*made[:2], fork], "chain")
    for at in range(3):
        broken = [*made[:at], flipped(-1)(made[at]), *made[at + 1 :]]
        yield _receipts(f"link-{at + 1}-altered", broken, "signature")
    singles: dict[str, tuple[str, Json]] = {
        "unknown-operation": ("op", {"op": "erase"}),
        "of-another-relayer": ("relayer", {"relayer": STRANGER.hex}),
        "previous-upper-case": ("hex", {"prev": "AB" * 32}),
        "sequence-text": ("integer", {"seq": "1"}),
        "sequence-true": ("integer", {"seq": True}),
        "serial-negative": ("integer", {"serial": -1}),
        "items-text": ("items", {"items": "none"}),
        "item-of-two": ("items", {"items": [[str(MEMORY), 1]]}),
        "item-id-upper-case": ("uuid", {"items": [[str(MEMORY).upper(), 1, "a"]]}),
        "actor-short": ("hex", {"actor": "00"}),
        "member-unknown": ("members", {"text": "tea"}),
    }
    for name, (expect, changes) in singles.items():
        yield _receipts(name, [_receipt(1, bytes(32), **changes)], expect)
    stranger = _receipt(1, bytes(32), signer=STRANGER)
    yield _receipts("signed-by-another", [stranger], "signature")
    yield from _receipts_of_two_keys(made)
    yield from _receipts_after_a_rebuild(made)


def _receipts_of_two_keys(made: Sequence[bytes]) -> Iterator[Scenario]:
    """A chain over a change of the relayer's key: it never goes back to the old one."""
    both = (RELAYER, SECOND)
    later = _receipt(4, ref.hash_256(made[2]), signer=SECOND, relayer=SECOND.hex)
    yield _receipts("of-two-keys", [*made, later], relayers=both)
    yield _receipts("of-the-old-key-alone", made, relayers=both)
    yield _receipts("of-a-key-unheard-of", [*made, later], "signature")
    back = _receipt(5, ref.hash_256(later))
    yield _receipts("back-to-the-old-key", [*made, later, back], "signature", relayers=both)
    pretended = _receipt(4, ref.hash_256(made[2]), relayer=SECOND.hex)
    yield _receipts("signed-by-the-old-key", [*made, pretended], "signature", relayers=both)


def _receipts_after_a_rebuild(made: Sequence[bytes]) -> Iterator[Scenario]:
    rebuilt = _receipt(9, bytes(32), op="rebuild")
    following = _receipt(10, ref.hash_256(rebuilt))
    yield _receipts("rebuilt", [rebuilt, following])
    yield _receipts("rebuilt-in-the-middle", [*made, rebuilt], "chain")
    linked = _receipt(len(made) + 1, ref.hash_256(made[-1]), op="rebuild")
    yield _receipts("rebuilt-anew", [*made, linked], "chain")
    seq, head = len(made), ref.hash_256(made[-1])
    yield _receipts("rebuilt-after-what-is-remembered", [linked], seq=seq, head=head)
    yield _receipts("begun-in-the-middle", [following], "chain")


def checkpoints() -> Iterator[Scenario]:
    members: Json = {"v": 1, "relayer": RELAYER.hex, "account": ref.account_text(ACCOUNT)}
    members |= {"seq": 3, "head": ref.hash_256(b"head").hex(), "grant_serial": 2, "time": NOW}
    given = {"account": members["account"], "relayers": [RELAYER.hex]}

    def checkpoint(name: str, expect: str = "ok", **changes: Any) -> Scenario:
        signer, change = changes.pop("signer", RELAYER), changes.pop("change", bytes)
        known = {**given, "relayers": changes.pop("relayers", given["relayers"])}
        return _simple(
            name,
            "checkpoint",
            signer,
            {**members, **changes},
            expect,
            spec="§15",
            kind="checkpoint",
            given=known,
            change=change,
        )

    both = [RELAYER.hex, SECOND.hex]
    yield checkpoint("ok")
    yield checkpoint("of-an-earlier-key", relayers=both)
    yield checkpoint("of-the-next-key", relayers=both, signer=SECOND, relayer=SECOND.hex)
    yield checkpoint("signed-by-another", "signature", signer=STRANGER)
    yield checkpoint("of-another-relayer", "signature", signer=STRANGER, relayer=STRANGER.hex)
    yield checkpoint("naming-another-relayer", "relayer", relayer=STRANGER.hex)
    yield checkpoint("unsigned", "signature", change=lambda o: o[:-64] + bytes(64))
    yield checkpoint("altered", "signature", change=lambda o: o.replace(b'"seq":3', b'"seq":4'))
    yield checkpoint("another-account", "account", account=ref.account_text(OTHER_ACCOUNT))
    yield checkpoint("sequence-0", "integer", seq=0)
    yield checkpoint("head-short", "hex", head="00")
    yield checkpoint("member-unknown", "members", op="grant")


def successions() -> Iterator[Scenario]:
    first = ref.named_next(RELAYER, SECOND, created=NOW)
    second = ref.named_next(SECOND, AGENT, created=NOW + 1)

    def succession(name: str, objects: Sequence[bytes], expect: str = "ok") -> Scenario:
        given = {"objects": [ref.b64(o) for o in objects], "last": AGENT.hex}
        keys = [json.loads(o[:-64])["relayer"] for o in objects if expect == "ok"]
        return Scenario(
            f"succession-{name}", "succession", "§16", given, expect, {"keys": [*keys, AGENT.hex]}
        )

    yield succession("none", [])
    yield succession("of-one", [second])
    yield succession("of-two", [first, second])
    yield succession("gap", [first], "succession")
    yield succession("swapped", [second, first], "succession")
    yield succession("goes-on", [second, ref.named_next(AGENT, THIRD, created=NOW)], "succession")
    back = ref.named_next(AGENT, SECOND, created=NOW)
    yield succession("comes-back", [second, back, second], "succession")
    yield succession("altered", [flipped(len(first) - 1)(first), second], "signature")
    strangers = ref.named_next(SECOND, AGENT, created=NOW, signer=STRANGER)
    yield succession("named-by-another", [strangers], "signature")


def _receipt(
    seq: int, previous: bytes, /, *, signer: ref.Signer = RELAYER, **changes: Any
) -> bytes:
    blob = ref.b64url(ref.hash_256(ref.u32(seq)))
    members: Json = {"v": 1, "relayer": RELAYER.hex, "account": ref.account_text(ACCOUNT)}
    members |= {"seq": seq, "prev": previous.hex(), "time": NOW + seq, "op": "remember"}
    members |= {"actor": AGENT.hex, "namespace": "team", "epoch": 1}
    members |= {"items": [[str(MEMORY), seq, blob]], "serial": 2}
    return signer.signed("receipt", ref.compact({**members, **changes}))


def _receipt_chain() -> Iterator[bytes]:
    """A grant, a memory and the erasure of it."""
    item = ["00000000-0000-0000-0000-000000000000", 0, ref.b64url(bytes(32))]
    grant_receipt: Json = {"op": "revoke", "actor": FOUNDER.hex, "namespace": None, "epoch": None}
    first = _receipt(1, bytes(32), items=[item], **grant_receipt)
    second = _receipt(2, ref.hash_256(first))
    yield from (first, second, _receipt(3, ref.hash_256(second), op="forget"))


def _receipts(
    name: str,
    chain: Sequence[bytes],
    expect: str = "ok",
    *,
    seq: int = 0,
    head: bytes = bytes(32),
    relayers: Sequence[ref.Signer] = (RELAYER,),
) -> Scenario:
    given: Json = {"relayers": [r.hex for r in relayers], "seq": seq, "head": head.hex()}
    given |= {"account": ref.account_text(ACCOUNT), "receipts": [ref.b64(r) for r in chain]}
    last = ref.hash_256(chain[-1]) if chain else head
    final = json.loads(chain[-1][:-64])["seq"] if chain and expect == "ok" else seq
    output: Json = {"seq": final, "head": last.hex()}
    output["members"] = [
        {k: v for k, v in json.loads(r[:-64]).items() if k != "v"} for r in chain if expect == "ok"
    ]
    made_with = {"seeds": [r.seed.hex() for r in relayers]}
    return Scenario(f"receipts-{name}", "receipts", "§4.3", given, expect, output, made_with)
