"""Unlock headers that a sealed account's relayer refuses (SPEC §6).

Not here: the same defects at the level of the format, for both implementations (the vectors of
`tests/scenarios_unlock.py`); rings and restarts (`tests/tenants/test_custody.py`,
`test_replays.py`).
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from nacl import bindings

from tests import reference as ref
from tests.refusals.case import CANARY, Builder, Case, Signed
from tests.refusals.world import Members, World, now_ms

ROUTE = "POST /v1/recall"
REJECTED = (403, "unlock_rejected")
UNKNOWN = (421, "unlock_key_unknown")
CONTENT = os.urandom(32)
GONE = [bindings.crypto_scalarmult_base(os.urandom(32)) for _ in range(9)]


def payload(w: World, **changes: Any) -> Members:
    """What the agent's good header says."""
    members = ref.unlock_payload(
        [w.sealed.namespace()],
        relayer=w.relayer.public,
        account=w.sealed.id,
        sender=w.agent.public,
        issued=now_ms(),
        hold=0,
    )
    return members | changes


def header(
    w: World,
    content: Members | bytes | None = None,
    *,
    sender: ref.Signer | None = None,
    to: Sequence[bytes] | None = None,
) -> bytes:
    """The header's bytes."""
    content = payload(w) if content is None else content
    raw = content if isinstance(content, bytes) else ref.compact(content)
    secret = (sender or w.agent).exchange_secret
    keys = w.unlock_keys[:1] if to is None else to
    boxes = [ref.unlock_box(secret, key, CONTENT, n) for n, key in enumerate(keys)]
    return ref.unlock_bytes(boxes, raw, CONTENT)


def _asking(w: World, signer: ref.Signer | None = None) -> Signed:
    return w.asked(signer=signer or w.agent)


def lent(w: World, raw: bytes | str, request: Signed | None = None) -> bytes:
    """A request with a header."""
    text = raw if isinstance(raw, str) else ref.b64url(raw)
    return (request or _asking(w)).sent(lines=[f"x-memrelay-unlock: {text}".encode("latin-1")])


def _case(name: str, build: Builder, answer: tuple[int, str] = REJECTED) -> Case:
    return Case(f"unlock/{name}", ROUTE, build, *answer)


def _raw(
    name: str, change: Callable[[World, bytes], bytes | str], answer: tuple[int, str] = REJECTED
) -> Case:
    return _case(name, lambda w: lent(w, change(w, header(w))), answer)


def _said(name: str, change: Callable[[World], Members]) -> Case:
    """A header that is sealed rightly and says something wrong."""
    return _case(name, lambda w: lent(w, header(w, payload(w, **change(w)))))


def _flipped(raw: bytes, at: int) -> bytes:
    changed = bytearray(raw)
    changed[at] ^= 1
    return bytes(changed)


def boxes() -> list[Case]:
    """Headers that do not open."""

    def sealed(w: World, good: bytes) -> bytes:
        box = ref.sealed_box(CONTENT, w.unlock_keys[0], os.urandom(32))
        entry = ref.kid(w.unlock_keys[0]) + box[:24] + box[-48:]
        return ref.unlock_bytes([entry], ref.compact(payload(w)), CONTENT)

    def planted(w: World, good: bytes) -> bytes:
        """What a proxy could do that knows the relayer's unlock key and everything public."""
        box = ref.unlock_box(os.urandom(32), w.unlock_keys[0], CONTENT, 0)
        return ref.unlock_bytes([box], ref.compact(payload(w)), CONTENT)

    def identity(w: World, good: bytes) -> bytes:
        return header(w, to=[w.relayer.exchange_public])

    def truncated(w: World) -> list[bytes]:
        good = header(w)
        return [
            lent(w, good[:n])
            for n in (*range(1, 107, 5), *range(107, len(good), 23), len(good) - 1)
        ]

    return [
        _raw("version-0", lambda w, good: b"\0" + good[1:]),
        _raw("version-2", lambda w, good: b"\2" + good[1:]),
        _raw("no-box", lambda w, good: header(w, to=[])),
        _raw("9-boxes", lambda w, good: header(w, to=[*GONE[:8], *w.unlock_keys[:1]])),
        _raw("more-boxes-than-said", lambda w, good: b"\1\1" + good[2:82] * 2 + good[82:]),
        _raw("fewer-boxes-than-said", lambda w, good: good[:1] + b"\2" + good[2:]),
        _raw("sealed-instead-of-boxed", sealed),
        _raw("boxed-by-anybody", planted),
        _raw("boxed-by-another-member", lambda w, good: header(w, sender=w.sealed.founder)),
        _raw("box-altered", lambda w, good: _flipped(good, 40)),
        _raw("box-nonce-altered", lambda w, good: _flipped(good, 12)),
        _raw("nonce-altered", lambda w, good: _flipped(good, 82)),
        _raw("ciphertext-altered", lambda w, good: _flipped(good, 110)),
        _raw("tag-altered", lambda w, good: _flipped(good, -1)),
        _case("truncated-at-every-length", truncated),
        _raw("bytes-behind", lambda w, good: good + b"\0"),
        _raw("kid-of-a-key-that-is-gone", lambda w, good: header(w, to=GONE[:1]), UNKNOWN),
        _raw("identity-key-instead-of-unlock-key", identity, UNKNOWN),
        _raw("kid-altered", lambda w, good: _flipped(good, 3), UNKNOWN),
        _raw("right-kid-of-another-key", lambda w, good: good[:10] + header(w, to=GONE[:1])[10:]),
        _raw("padded", lambda w, good: ref.b64(good) if len(good) % 3 else ref.b64(good) + "="),
        _raw("standard-alphabet", lambda w, good: "+/" + ref.b64url(good)[2:]),
        _raw("white-space-inside", lambda w, good: " ".join([ref.b64url(good)] * 2)),
        _raw("not-ascii", lambda w, good: ref.b64url(good)[:-1] + "é"),
        _raw("hexadecimal", lambda w, good: good.hex()),
        _raw("empty", lambda w, good: ""),
        _raw("nonsense", lambda w, good: CANARY),
        _raw("over-6-kib", lambda w, good: header(w, b" " * 5000 + ref.compact(payload(w)))),
        _case("stripped", lambda w: _asking(w).sent(), (403, "unlock_required")),
        _case("twice", lambda w: lent(w, header(w), w.asked(signer=w.agent)).replace(
            b"x-memrelay-unlock", b"x-memrelay-unlock: AQ\r\nx-memrelay-unlock", 1),
            (401, "auth.rejected")),
        _case("underscores-in-its-name", lambda w: lent(w, header(w)).replace(
            b"x-memrelay-unlock", b"x_memrelay_unlock"), (403, "unlock_required")),
    ]  # fmt: skip


def sayings() -> list[Case]:
    """Headers that open and say something wrong."""

    def keyed(**changes: Any) -> Callable[[World], Members]:
        return lambda w: {"keys": [payload(w)["keys"][0] | changes]}

    def spelled(change: Callable[[bytes], bytes]) -> Builder:
        return lambda w: lent(w, header(w, change(ref.compact(payload(w)))))

    def without(name: str) -> Builder:
        def build(w: World) -> bytes:
            return lent(w, header(w, {k: v for k, v in payload(w).items() if k != name}))

        return build

    def of(key: Callable[[World], ref.NamespaceKey]) -> Callable[[World], Members]:
        return lambda w: {
            "keys": [{"ns": key(w).name, "epoch": key(w).epoch, "key": ref.b64(key(w).key)}]
        }

    stranger = ref.Signer(os.urandom(32))
    return [
        _said("for-another-relayer", lambda w: {"relayer": stranger.hex}),
        _said("for-another-account", lambda w: {"account": w.foreign.text}),
        _said("of-another-sender", lambda w: {"sender": w.sealed.founder.hex}),
        _said("stale", lambda w: {"iat": now_ms() - 301_000}),
        _said("from-the-future", lambda w: {"iat": now_ms() + 302_000}),
        _said("iat-in-seconds", lambda w: {"iat": now_ms() // 1000}),
        _said("iat-text", lambda w: {"iat": str(now_ms())}),
        _said("iat-true", lambda w: {"iat": True}),
        _said("hold-301", lambda w: {"hold": 301}),
        _said("hold-negative", lambda w: {"hold": -1}),
        _said("hold-null", lambda w: {"hold": None}),
        _said("version-of-the-payload-2", lambda w: {"v": 2}),
        _said("version-of-the-payload-text", lambda w: {"v": "1"}),
        _said("unknown-member", lambda w: {CANARY: 1}),
        *[_case(f"without-{name}", without(name)) for name in ("iat", "hold", "sender", "keys")],
        _said("no-keys", lambda w: {"keys": []}),
        _said("keys-not-a-list", lambda w: {"keys": {}}),
        _said("a-key-twice", lambda w: {"keys": payload(w)["keys"] * 2}),
        _said("key-of-31-bytes", keyed(key=ref.b64(bytes(31)))),
        _said("key-of-33-bytes", keyed(key=ref.b64(bytes(33)))),
        _said("key-zero", keyed(key=ref.b64(bytes(32)))),
        _said("key-unpadded", keyed(key="A" * 43)),
        _said("key-a-number", keyed(key=1)),
        _said("key-with-an-unknown-member", keyed(more=1)),
        _said("name-not-settled", keyed(ns=" team")),
        _said("name-refused", keyed(ns="te\tam")),
        _said("epoch-0", keyed(epoch=0)),
        _said("epoch-true", keyed(epoch=True)),
        _said("epoch-of-the-future", keyed(epoch=2)),
        _said("epoch-beyond-32-bits", keyed(epoch=2**32)),
        _said("namespace-outside-the-grant", of(lambda w: w.sealed.namespace("other"))),
        _said("namespace-of-nobody", of(lambda w: w.sealed.namespace("nobodys"))),
        _said("namespace-of-another-account", of(lambda w: w.foreign.namespace())),
        _said("key-of-another-namespace", lambda w: {
            "keys": [{**payload(w)["keys"][0], "key": ref.b64(w.sealed.namespace("other").key)}]}),
        _said("root-instead-of-the-namespaces-key", lambda w: {
            "keys": [{**payload(w)["keys"][0], "key": ref.b64(w.sealed.root.key)}]}),
        _case("payload-not-json", spelled(lambda raw: raw[:-1])),
        _case("payload-with-a-member-twice", spelled(lambda raw: raw[:-1] + b',"hold":0}')),
        _case("payload-with-a-float", spelled(lambda r: r.replace(b'"hold":0', b'"hold":0.0'))),
        _case("payload-with-nan", spelled(lambda r: r.replace(b'"hold":0', b'"hold":NaN'))),
        _case("payload-with-a-mark", spelled(lambda r: b"\xef\xbb\xbf" + r)),
        _case("payload-with-garbage-behind", spelled(lambda r: r + b"x")),
        _case("payload-a-list", spelled(lambda r: b"[" + r + b"]")),
        _case("payload-too-deep", spelled(
            lambda r: r[:-1] + b',"a":' + b"[" * 9 + b"]" * 9 + b"}")),
    ]  # fmt: skip


def rights() -> list[Case]:
    """Good headers of the wrong key, and writes under keys that nobody else knows."""
    right: Builder = lambda w: lent(w, header(w), _asking(w, w.other))  # noqa: E731

    def first_write(w: World) -> bytes:
        """The founder's first write of a namespace that a grant already names, with another key."""
        wrong = ref.NamespaceKey(os.urandom(32), "other", 1)
        founder = w.sealed.founder
        content = payload(w, sender=founder.hex) | {
            "keys": [{"ns": "other", "epoch": 1, "key": ref.b64(wrong.key)}]
        }
        body = {"text": CANARY, "namespace": "other"}
        return lent(w, header(w, content, sender=founder), w.change("/v1/remember", body, founder))

    def unlent(w: World) -> bytes:
        body = {"query": "a", "namespaces": ["team", "other"]}
        return lent(w, header(w), w.asked(body=body, signer=w.agent))

    def written(w: World) -> bytes:
        return w.change("/v1/remember", {"text": CANARY, "namespace": "team"}, w.agent).sent()

    def by_reader(w: World) -> bytes:
        content = payload(w, sender=w.other.hex) | {
            "keys": [{"ns": "other", "epoch": 1, "key": ref.b64(w.sealed.namespace("other").key)}]
        }
        request = w.change("/v1/remember", {"text": CANARY, "namespace": "other"}, w.other)
        return lent(w, header(w, content, sender=w.other), request)

    required = (403, "unlock_required")
    write = "POST /v1/remember"
    return [
        _case("of-another-key-of-the-account", right),
        _case("another-namespace-without-its-key", unlent, (403, "auth.not_allowed")),
        Case("unlock/first-write-with-a-wrong-key", write, first_write, *REJECTED),
        Case("unlock/write-without-a-header", write, written, *required),
        Case("unlock/write-of-a-reader", write, by_reader, 403, "auth.not_allowed"),
        Case("unlock/memwals-write-without-a-header", "POST /api/remember", lambda w: w.asked(
            "/api/remember", {"text": CANARY, "namespace": "team"}, w.agent).sent(), *required),
        Case("unlock/memwals-recall-without-a-header", "POST /api/recall", lambda w: w.asked(
            "/api/recall", {"query": "a", "namespace": "team"}, w.agent).sent(), *required),
    ]  # fmt: skip


CASES = [*boxes(), *sayings(), *rights()]
