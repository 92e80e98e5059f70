"""Signatures and keys at the edges of Ed25519: what lenient verifiers take and strict ones refuse.

Not here: headers and signed texts (`signatures.py`). Small-order points come in every
encoding there is: eight points, and six further ways to write four of them, for lax decoders.
"""

import hashlib
import os
from collections.abc import Callable

from nacl import bindings

from tests import reference as ref
from tests.refusals.case import Builder, Case, Signed
from tests.refusals.world import Account, World

L = 2**252 + 27742317777372353535851937790883648493
P = 2**255 - 19
SIGN = 1 << 255
SUBGROUP = "the public key is not on the main subgroup"


def _point(y: int) -> bytes:
    return y.to_bytes(32, "little")


_EIGHT = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
_OTHER_EIGHT = int.from_bytes(
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little"
) & (SIGN - 1)
SMALL_ORDER = {
    "identity": _point(1),
    "order-2": _point(P - 1),
    "order-4": _point(0),
    "order-4-negative": _point(SIGN),
    "order-8": _point(_EIGHT),
    "order-8-negative": _point(_EIGHT | SIGN),
    "order-8-other": _point(_OTHER_EIGHT),
    "order-8-other-negative": _point(_OTHER_EIGHT | SIGN),
    "identity-with-a-sign": _point(1 | SIGN),
    "order-2-with-a-sign": _point((P - 1) | SIGN),
    "order-4-not-reduced": _point(P),
    "order-4-not-reduced-negative": _point(P | SIGN),
    "identity-not-reduced": _point(P + 1),
    "identity-not-reduced-with-a-sign": _point((P + 1) | SIGN),
}


def _hash(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % L


def _secret(signer: ref.Signer) -> int:
    """The scalar of a key: what a signature's S is made of."""
    low = bytearray(hashlib.sha512(signer.seed).digest()[:32])
    low[0] &= 248
    low[31] = (low[31] & 127) | 64
    return int.from_bytes(low, "little") % L


def _scalar(value: int) -> bytes:
    return value.to_bytes(32, "little")


def _with_r(point: bytes) -> Builder:
    """A registered key's signature whose R is the point: S = hash · secret, so only R is odd."""

    def build(w: World) -> bytes:
        request = w.got("/v1/keys")
        s = _hash(point, request.signer.public, request.text.encode()) * _secret(request.signer) % L
        return request.sent(signature=(point + _scalar(s)).hex())

    return build


def _resigned(change: Callable[[bytes], bytes]) -> Builder:
    def build(w: World) -> bytes:
        request = w.got("/v1/keys")
        return request.sent(signature=change(request.signer.sign(request.text.encode())).hex())

    return build


def _s_plus(times: int) -> Builder:
    return _resigned(lambda raw: raw[:32] + _scalar(int.from_bytes(raw[32:], "little") + times * L))


def _founding(key: bytes) -> Signed:
    class Pretended(ref.Signer):
        @property
        def hex(self) -> str:
            return key.hex()

    body = b'{"relayer":"%s","grants":["AAAA"]}' % (b"ab" * 32)
    return Signed(signer=Pretended(os.urandom(32)), target="/v1/accounts", body=body)


def _with_key(key: bytes) -> Builder:
    """Anybody's signature for a key of small order: S = 0 and any R of small order may pass."""

    def build(w: World) -> list[bytes]:
        return [
            _founding(key).sent(signature=(point + bytes(32)).hex())
            for point in list(SMALL_ORDER.values())[:8]
        ]

    return build


def _mixed(w: World) -> bytes:
    """A grant to a key that verifies signatures and cannot be boxed to."""
    account, recipient = w.sealed, ref.Signer(os.urandom(32))
    named = {"recipient": _with_torsion(recipient).hex()}
    members = account.grant(recipient, "writer", keys=[account.namespace()])
    body = w.joining(account, members | named, recipient, said=named)
    return w.change("/v1/grants", body, account.founder).sent()


def _mixed_founder(w: World) -> bytes:
    """An account founded by such a key: its grant and its request verify, as one in eight."""
    account = Account()
    mixed = _with_torsion(account.founder)
    signer, named = _Mixed(account.founder.seed, mixed), {"issuer": mixed.hex()}
    named["recipient"] = mixed.hex()
    for _ in range(400):
        members = account.grant(account.founder, "owner", account=ref.account_of(mixed)) | named
        signed = signer.signed("grant", ref.compact(members))
        if _verifies(signed[-64:], b"memrelay/grant/v1\0" + signed[:-64], mixed):
            break
    body = {"relayer": w.relayer.hex, "grants": [ref.b64(signed)]}
    for _ in range(400):
        request = Signed(signer=signer, target="/v1/accounts", body=ref.compact(body))
        if _verifies(signer.sign(request.text.encode()), request.text.encode(), mixed):
            return request.sent()
    raise AssertionError("no signature of the mixed-order key verified")


def _with_torsion(signer: ref.Signer) -> bytes:
    return bindings.crypto_core_ed25519_add(signer.public, SMALL_ORDER["order-8"])


class _Mixed(ref.Signer):
    """A signer that claims its key plus a point of small order."""

    def __init__(self, seed: bytes, claimed: bytes) -> None:
        super().__init__(seed)
        self.public, self._secret = claimed, seed + claimed


def _verifies(signature: bytes, message: bytes, key: bytes) -> bool:
    try:
        bindings.crypto_sign_open(signature + message, key)
    except Exception:
        return False
    return True


def _cases() -> list[Case]:
    seen, founded = "GET /v1/keys", "POST /v1/accounts"
    refused = (401, "auth.rejected")
    cases = [
        Case(f"curve/r-{name}", seen, _with_r(point), *refused)
        for name, point in SMALL_ORDER.items()
    ]
    cases += [
        Case(f"curve/key-{name}", founded, _with_key(point), *refused)
        for name, point in SMALL_ORDER.items()
    ]
    scalars: dict[str, Builder] = {
        "s-plus-l": _s_plus(1),
        "s-plus-7-l": _s_plus(7),
        "s-equals-l": _resigned(lambda raw: raw[:32] + _scalar(L)),
        "s-zero": _resigned(lambda raw: raw[:32] + bytes(32)),
        "s-all-ones": _resigned(lambda raw: raw[:32] + b"\xff" * 32),
        "s-negated": _resigned(
            lambda raw: raw[:32] + _scalar(-int.from_bytes(raw[32:], "little") % L)
        ),
        "s-big-endian": _resigned(lambda raw: raw[:32] + raw[:31:-1]),
        "halves-swapped": _resigned(lambda raw: raw[32:] + raw[:32]),
        "r-negated": _resigned(lambda raw: raw[:31] + bytes([raw[31] ^ 0x80]) + raw[32:]),
        "r-not-a-point": _resigned(lambda raw: _point(2) + raw[32:]),
        "r-not-reduced": _resigned(lambda raw: _point(P + 3) + raw[32:]),
        "r-plus-a-point-of-order-8": _resigned(
            lambda raw: (
                bindings.crypto_core_ed25519_add(raw[:32], SMALL_ORDER["order-8"]) + raw[32:]
            )
        ),
    }
    cases += [Case(f"curve/{name}", seen, build, *refused) for name, build in scalars.items()]
    for name, key in {"not-a-point": _point(2), "not-reduced": _point(P + 3)}.items():
        cases.append(Case(f"curve/key-{name}", founded, _with_key(key), *refused))
    return [
        *cases,
        Case(
            "curve/mixed-order-recipient", "POST /v1/grants", _mixed, 400, "grant.invalid", SUBGROUP
        ),
        Case("curve/mixed-order-founder", founded, _mixed_founder, 400, "grant.invalid", SUBGROUP),
    ]


CASES = _cases()
