"""The formulas of SPEC.md in their shortest form: a third reading, for vectors and broken objects.

It shares no code with the relayer or the client, and checks nothing: it also makes what both must
refuse. Everything random is an argument, so equal calls give equal bytes.
"""

import base64
import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from nacl import bindings

SUBKEYS = ("seal", "index", "vector", "fingerprint", "idempotency")


def u32(value: int) -> bytes:
    return struct.pack(">I", value)


def lp(part: bytes) -> bytes:
    return u32(len(part)) + part


def mac(size: int, key: bytes, label: str, *parts: bytes) -> bytes:
    data = lp(b"memrelay/v1/" + label.encode()) + b"".join(map(lp, parts))
    return hashlib.blake2b(data, digest_size=size, key=key).digest()


def kdf(key: bytes, label: str, *parts: bytes) -> bytes:
    return mac(32, key, label, *parts)


def hash_256(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


def drawn(name: str, size: int = 32) -> bytes:
    """Bytes that look random and are the same every time."""
    return hashlib.shake_256(b"memrelay test vectors: " + name.encode()).digest(size)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Signer:
    """An identity: Ed25519 from a seed, and the X25519 keys that follow from it."""

    def __init__(self, seed: bytes) -> None:
        self.seed = seed
        self.public, self._secret = bindings.crypto_sign_seed_keypair(seed)
        self.exchange_secret = bindings.crypto_sign_ed25519_sk_to_curve25519(self._secret)
        self.exchange_public = bindings.crypto_scalarmult_base(self.exchange_secret)

    @property
    def hex(self) -> str:
        return self.public.hex()

    def sign(self, message: bytes) -> bytes:
        return bindings.crypto_sign(message, self._secret)[:64]

    def signed(self, kind: str, payload: bytes) -> bytes:
        """`payload ‖ signature`, whatever the payload is."""
        return payload + self.sign(b"memrelay/" + kind.encode() + b"/v1\0" + payload)


def account_of(founder: bytes) -> bytes:
    return hash_256(b"\0" + founder)


def account_text(account: bytes) -> str:
    return "0x" + account.hex()


@dataclass(frozen=True)
class Root:
    key: bytes
    epoch: int = 1

    def scope(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "root_id": kdf(self.key, "root-id").hex()}

    def namespace(self, account: bytes, name: str) -> "NamespaceKey":
        key = kdf(self.key, "namespace", account, u32(self.epoch), name.encode())
        return NamespaceKey(key, name, self.epoch)


@dataclass(frozen=True)
class NamespaceKey:
    key: bytes
    name: str
    epoch: int = 1

    @property
    def key_id(self) -> bytes:
        return kdf(self.key, "key-id")

    def scope(self) -> dict[str, Any]:
        return {"ns": self.name, "epoch": self.epoch, "key_id": self.key_id.hex()}


def sealed_box(message: bytes, recipient: bytes, ephemeral_secret: bytes) -> bytes:
    """libsodium's sealed box with a given instead of a random ephemeral key."""
    ephemeral = bindings.crypto_scalarmult_base(ephemeral_secret)
    nonce = hashlib.blake2b(ephemeral + recipient, digest_size=24).digest()
    return ephemeral + bindings.crypto_box_easy(message, nonce, recipient, ephemeral_secret)


def boxed_keys(members: Mapping[str, Any], keys: Sequence[Root | NamespaceKey]) -> bytes:
    """What a grant's box holds, from the grant's own members."""
    names = ("account", "grant", "serial", "issuer", "recipient")
    return compact({**{n: members[n] for n in names}, "keys": [b64(k.key) for k in keys]})


def grant_members(
    issuer: bytes,
    recipient: "Signer",
    keys: Sequence[Root | NamespaceKey],
    *,
    account: bytes,
    serial: int,
    role: str,
    created: int,
    expires: int | None = None,
    ephemeral: bytes,
) -> dict[str, Any]:
    """The members of a grant, `v` first, box included."""
    names = {
        "v": 1,
        "account": account_text(account),
        "grant": str(UUID(bytes=drawn(f"grant {serial}", 16), version=4)),
        "serial": serial,
        "issuer": issuer.hex(),
        "recipient": recipient.hex,
    }
    box = sealed_box(boxed_keys(names, keys), recipient.exchange_public, ephemeral)
    return {
        **names,
        "role": role,
        "scope": [k.scope() for k in keys],
        "created": created,
        "expires": expires,
        "box": b64(box),
    }


def revocation_members(
    issuer: bytes, recipient: bytes, *, account: bytes, serial: int, created: int
) -> dict[str, Any]:
    return {
        "v": 1,
        "account": account_text(account),
        "serial": serial,
        "issuer": issuer.hex(),
        "recipient": recipient.hex(),
        "created": created,
    }


def padded(record: bytes, least: int = 256) -> bytes:
    length = 4 + len(record)
    k = length.bit_length() - 1
    step = max(least, 2 ** (k - k.bit_length()))
    return (u32(len(record)) + record).ljust(math.ceil(length / step) * step, b"\0")


def envelope(
    key: NamespaceKey,
    plaintext: bytes,
    *,
    account: bytes,
    memory: UUID,
    created: int,
    nonce: bytes,
    type: int = 1,
    revision: int = 1,
    start: tuple[int, int, int] = (1, 1, 0),
) -> bytes:
    """An envelope of a padded plaintext; `start` is version, suite and the zero byte."""
    version, suite, zero = start
    header = bytes([version, suite, type, zero]) + u32(key.epoch) + struct.pack(">Q", created)
    header += account + memory.bytes + u32(revision) + key.key_id + nonce
    seal = kdf(key.key, "seal")
    return header + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        plaintext, header, nonce, seal
    )


def index_record(
    length: int,
    source: int | None,
    postings: Mapping[int, int],
    vectors: Sequence[Sequence[int]],
) -> bytes:
    """What a sealed index record holds."""
    tokens = sorted(postings)
    packed = struct.pack(">HBqI", length, source is not None, source or 0, len(tokens))
    packed += b"".join(struct.pack(">q", token) for token in tokens)
    packed += bytes(postings[token] for token in tokens)
    packed += struct.pack(">IH", len(vectors), len(vectors[0]) if vectors else 0)
    return packed + b"".join(struct.pack(f"{len(v)}b", *v) for v in vectors)


def sealed_index_record(
    key: NamespaceKey,
    plaintext: bytes,
    *,
    account: bytes,
    memory: UUID,
    revision: int,
    nonce: bytes,
    version: int = 1,
) -> bytes:
    """A padded index record, sealed for one revision of a memory."""
    start = bytes([version])
    return (
        start
        + nonce
        + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
            plaintext,
            start + account + memory.bytes + u32(revision),
            nonce,
            kdf(key.key, "index-record"),
        )
    )


def unlock_payload(
    keys: Sequence[NamespaceKey],
    *,
    relayer: bytes,
    account: bytes,
    sender: bytes,
    issued: int,
    hold: int = 60,
) -> dict[str, Any]:
    return {
        "v": 1,
        "relayer": relayer.hex(),
        "account": account_text(account),
        "sender": sender.hex(),
        "iat": issued,
        "hold": hold,
        "keys": [{"ns": k.name, "epoch": k.epoch, "key": b64(k.key)} for k in keys],
    }


def kid(unlock_public: bytes) -> bytes:
    return hash_256(unlock_public)[:8]


def unlock_box(sender_secret: bytes, unlock_public: bytes, content_key: bytes, at: int) -> bytes:
    """`kid ‖ nonce ‖ box` number `at`."""
    nonce = drawn(f"box nonce {at}", 24)
    box = bindings.crypto_box_easy(content_key, nonce, unlock_public, sender_secret)
    return kid(unlock_public) + nonce + box


def unlock_bytes(boxes: Sequence[bytes], payload: bytes, content_key: bytes) -> bytes:
    """The header before base64url."""
    head = bytes([1, len(boxes)]) + b"".join(boxes)
    nonce = drawn("unlock nonce", 24)
    return (
        head
        + nonce
        + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(payload, head, nonce, content_key)
    )


def archive_chunk(
    key: bytes, archive: UUID, index: int, last: bool, plaintext: bytes, nonce: bytes
) -> bytes:
    associated = archive.bytes + u32(index) + bytes([last])
    return lp(
        nonce
        + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, associated, nonce, key)
    )


def archive_bytes(header: bytes, chunks: Sequence[bytes]) -> bytes:
    return b"memrelay-archive\n" + lp(header) + b"".join(chunks)


def turn_vector(
    key: NamespaceKey, model: str, vector: Sequence[float]
) -> tuple[bytes, list[float]]:
    """The seed and the turned unit vector, straight from SPEC §9."""
    d = len(vector)
    seed = kdf(kdf(key.key, "vector"), "turn", model.encode(), u32(d))
    stream = bindings.randombytes_buf_deterministic(32 * d, seed)
    p = 2 ** (d.bit_length() - 1)
    norm = math.sqrt(math.fsum(x * x for x in vector))
    x = [value / norm for value in vector]
    for number in range(4):
        w = struct.unpack(f">{d}Q", stream[8 * d * number : 8 * d * (number + 1)])
        order = sorted(range(d), key=[drawn >> 1 for drawn in w].__getitem__)
        x = [-x[i] if w[n] & 1 else x[i] for n, i in enumerate(order)]
        for at in sorted({0, d - p}):
            x[at : at + p] = [v / math.sqrt(p) for v in _hadamard(x[at : at + p])]
    return seed, x


def _hadamard(x: list[float]) -> list[float]:
    """The natural-order transform by its recursive definition: H(2n) = [[H, H], [H, −H]]."""
    if len(x) == 1:
        return x
    top, bottom = _hadamard(x[: len(x) // 2]), _hadamard(x[len(x) // 2 :])
    pairs = list(zip(top, bottom, strict=True))
    return [a + b for a, b in pairs] + [a - b for a, b in pairs]


def request_text(
    *, timestamp: int, method: str, target: str, body: bytes, nonce: str, account_id: str
) -> str:
    digest = hashlib.sha256(body).hexdigest()
    return f"{timestamp}.{method}.{target}.{digest}.{nonce}.{account_id}"


def named_next(
    relayer: Signer, following: Signer, *, created: int, signer: Signer | None = None
) -> bytes:
    """A signed `relayer-next` object; `signer` is somebody else where it is broken."""
    members = {"v": 1, "relayer": relayer.hex, "next": following.hex, "created": created}
    return (signer or relayer).signed("relayer-next", compact(members))
