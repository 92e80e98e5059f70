"""What the vectors of unlock headers are about (SPEC §6).

It does not own files (`generate_vectors.py`) or formulas (`reference.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nacl import bindings

from tests import reference as ref
from tests.scenarios import (
    ACCOUNT,
    AGENT,
    NOTES,
    NOW,
    OTHER_ACCOUNT,
    RELAYER,
    STRANGER,
    TEAM,
    Json,
    Scenario,
)
from tests.scenarios_signed import CONTENT_KEY, UNLOCK_KEYS, UNLOCK_SECRETS

RELAYER_EXCHANGE = RELAYER.exchange_public


def payload(lent: Sequence[ref.NamespaceKey] = (TEAM,), **changes: Any) -> Json:
    """The payload of the example's header, 10 seconds old."""
    members = ref.unlock_payload(
        lent, relayer=RELAYER.public, account=ACCOUNT, sender=AGENT.public, issued=NOW - 10_000
    )
    return {**members, **changes}


def header(
    content: bytes, *, to: Sequence[bytes] = UNLOCK_KEYS[:1], sender: ref.Signer = AGENT
) -> bytes:
    """The header's bytes for a payload."""
    boxes = [
        ref.unlock_box(sender.exchange_secret, public, CONTENT_KEY, n)
        for n, public in enumerate(to)
    ]
    return ref.unlock_bytes(boxes, content, CONTENT_KEY)


def given(raw: bytes | str) -> Json:
    """What a relayer holds when the header arrives."""
    return {
        "header": raw if isinstance(raw, str) else ref.b64url(raw),
        "unlock_secrets": [secret.hex() for secret in UNLOCK_SECRETS],
        "relayer": RELAYER.hex,
        "account": ref.account_text(ACCOUNT),
        "sender": AGENT.hex,
        "now": NOW,
    }


def _accepted(name: str, members: Json, to: Sequence[bytes] = UNLOCK_KEYS[:1]) -> Scenario:
    output = {"iat": members["iat"], "hold": members["hold"], "keys": members["keys"]}
    made_with: Json = {
        "seed": AGENT.seed.hex(),
        "unlock_keys": [key.hex() for key in to],
        "content_key": CONTENT_KEY.hex(),
        "box_nonces": [ref.drawn(f"box nonce {n}", 24).hex() for n in range(len(to))],
        "nonce": ref.drawn("unlock nonce", 24).hex(),
        "payload": ref.compact(members).decode(),
    }
    raw = header(ref.compact(members), to=to)
    return Scenario(
        f"unlock-{name}", "unlock", "§6", given(raw), output=output, made_with=made_with
    )


def unlocks() -> Iterator[Scenario]:
    unknown = [bindings.crypto_scalarmult_base(ref.drawn(f"gone {n}")) for n in range(9)]
    yield _accepted("1-box", payload())
    yield _accepted("2-boxes", payload([TEAM, NOTES]), UNLOCK_KEYS)
    yield _accepted("8-boxes-one-known", payload(), [*unknown[:7], UNLOCK_KEYS[1]])
    yield _accepted("hold-0", payload(hold=0))
    yield _accepted("hold-300", payload(hold=300))
    yield _accepted("oldest", payload(iat=NOW - 300_000))
    yield _accepted("newest", payload(iat=NOW + 300_000))
    many = [ref.NamespaceKey(ref.drawn(f"key {n}"), "n", n + 1) for n in range(40)]
    yield _accepted("40-keys", payload(many))

    usual = ref.compact(payload())
    yield _refused("unlock-key-gone", header(usual, to=unknown[:1]), "unlock_key_unknown")
    yield _refused(
        "identity-key-instead", header(usual, to=[RELAYER_EXCHANGE]), "unlock_key_unknown"
    )
    for name, raw in _broken_headers(usual, unknown).items():
        yield _refused(name, raw)
    for name, members in _broken_payloads().items():
        yield _refused(name, header(ref.compact(members)))
    twice = usual[:-1] + b',"hold":60}'
    yield _refused("duplicate-member", header(twice))
    yield _refused("float", header(usual.replace(b'"hold":60', b'"hold":60.0')))
    yield _refused("payload-not-json", header(b"{"))


def _refused(name: str, raw: bytes | str, expect: str = "unlock_rejected") -> Scenario:
    return Scenario(f"unlock-{name}", "unlock", "§6", given(raw), expect)


def _broken_headers(usual: bytes, unknown: Sequence[bytes]) -> dict[str, bytes | str]:
    good = header(usual)
    sealed = ref.sealed_box(CONTENT_KEY, UNLOCK_KEYS[0], ref.drawn("sealed"))
    # A sealed box is 80 bytes; the format has room for the nonce and 48: so it is cut to fit.
    entry = ref.kid(UNLOCK_KEYS[0]) + sealed[:24] + sealed[-48:]
    anonymous = ref.unlock_box(ref.drawn("anybody"), UNLOCK_KEYS[0], CONTENT_KEY, 0)
    box = good[:82]
    return {
        "version-0": b"\0" + good[1:],
        "version-2": b"\2" + good[1:],
        "no-box": header(usual, to=[]),
        "9-boxes": header(usual, to=[*unknown[:8], UNLOCK_KEYS[0]]),
        "more-boxes-than-said": bytes([1, 1]) + box[2:] * 2 + good[82:],
        "sealed-instead-of-boxed": ref.unlock_bytes([entry], usual, CONTENT_KEY),
        "boxed-by-anybody": ref.unlock_bytes([anonymous], usual, CONTENT_KEY),
        "boxed-by-another-sender": header(usual, sender=STRANGER),
        "box-altered": _flipped(good, 40),
        "box-nonce-altered": _flipped(good, 12),
        "count-altered": good[:1] + b"\2" + good[2:],
        "nonce-altered": _flipped(good, 82),
        "ciphertext-altered": _flipped(good, 110),
        "tag-altered": _flipped(good, -1),
        "cut-in-the-tag": good[:-1],
        "cut-in-the-box": good[:60],
        "cut-behind-the-nonce": good[:106],
        "bytes-behind": good + b"\0",
        "empty": "",
        "base64-with-padding": ref.b64(good),
        "base64-not-url-safe": ref.b64(good).rstrip("=").replace("-", "+") + "+",
        "not-ascii": ref.b64url(good)[:-1] + "é",
        "line-break": ref.b64url(good)[:40] + "\n" + ref.b64url(good)[40:],
        "too-large": header(b"{" + b" " * 5000 + usual[1:]),
    }


def _flipped(raw: bytes, at: int) -> bytes:
    changed = bytearray(raw)
    changed[at] ^= 1
    return bytes(changed)


def _broken_payloads() -> dict[str, Json]:
    key = payload()["keys"][0]
    keys: Callable[..., Json] = lambda *entries: payload(keys=list(entries))  # noqa: E731
    # Whole keys would already be too large for a header: the number is what is tested.
    too_many = [{"ns": "n", "epoch": n + 1, "key": ""} for n in range(65)]
    return {
        "for-another-relayer": payload(relayer=STRANGER.hex),
        "for-another-account": payload(account=ref.account_text(OTHER_ACCOUNT)),
        "of-another-sender": payload(sender=STRANGER.hex),
        "stale": payload(iat=NOW - 300_001),
        "from-the-future": payload(iat=NOW + 300_001),
        "iat-text": payload(iat=str(NOW)),
        "iat-true": payload(iat=True),
        "hold-301": payload(hold=301),
        "hold-negative": payload(hold=-1),
        "hold-null": payload(hold=None),
        "payload-version-2": payload(v=2),
        "member-unknown": payload(more=1),
        "member-missing": {k: v for k, v in payload().items() if k != "iat"},
        "no-keys": payload(keys=[]),
        "keys-not-a-list": payload(keys={}),
        "65-keys": payload(keys=too_many),
        "key-entry-text": keys("team"),
        "key-entry-unknown-member": keys({**key, "more": 1}),
        "key-short": keys({**key, "key": ref.b64(bytes(31))}),
        "key-url-safe-base64": keys({**key, "key": ref.b64(b"\xff" * 32).replace("/", "_")}),
        "key-number": keys({**key, "key": 1}),
        "name-number": keys({**key, "ns": 1}),
        "name-not-normal": keys({**key, "ns": "team "}),
        "name-refused": keys({**key, "ns": "te\tam"}),
        "epoch-0": keys({**key, "epoch": 0}),
        "epoch-too-great": keys({**key, "epoch": 2**32}),
        "epoch-true": keys({**key, "epoch": True}),
    }
