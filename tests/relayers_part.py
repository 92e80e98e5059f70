"""What SPEC.md says for whoever writes a relayer, done once more with the client's own parts.

The client itself has no use for it. Here it shows that the client's formats and the relayer's are
the same (`vector_client.py`), and plays the relayer where the client's tests need one.

Source: SPEC.md §5-9.
"""

import base64
import binascii
import math
import struct
from collections.abc import Mapping, Sequence

from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay.errors import Invalid
from memrelay.sealed import keys, objects
from memrelay.sealed.envelope import Address
from memrelay.sealed.forms import normalize
from memrelay.sealed.keys import NamespaceKey
from memrelay.sealed.unlock import BOXES_MAX, HEADER_CHARS_MAX, KEYS_MAX, Unlock

DIMENSION_MAX = 4000
HOLD_S_MAX = 300
SKEW_MS_MAX = 300_000
_ROUNDS = 4
_TOKEN_FIELDS = frozenset("wtsm")
_MEMBERS = ("v", "relayer", "account", "sender", "iat", "hold", "keys")
_VERSION = 1
_KID_BYTES, _NONCE_BYTES, _BOX_BYTES, _TAG_BYTES = 8, 24, 48, 16
_ENTRY_BYTES = _KID_BYTES + _NONCE_BYTES + _BOX_BYTES


def open_index_record(address: Address, key: NamespaceKey, stored: bytes) -> dict[str, object]:
    """Return what an index record holds: SPEC §8.1.

    Raises:
        Invalid: `version`, `aead`, `padding` or `no_record`.
    """
    if stored[:1] != b"\1":
        raise Invalid("version", "The index record is of another version.")
    associated = (
        stored[:1] + address.account + address.memory.bytes + struct.pack(">I", address.revision)
    )
    try:
        plain = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            stored[25:], associated, stored[1:25], key.subkey("index-record")
        )
    except CryptoError:
        raise Invalid("aead", "The index record does not open.") from None
    size = int.from_bytes(plain[:4], "big")
    record = plain[4 : 4 + size]
    power = (4 + size).bit_length() - 1
    steps = max(128, 1 << (power - power.bit_length()))
    if (plain[:4] + record).ljust(-(-(4 + size) // steps) * steps, b"\0") != plain:
        raise Invalid("padding", "An index record's padding is damaged.")
    try:
        length, has_source, source, count = struct.unpack_from(">HBqI", record)
        postings_end = 15 + 9 * count
        vectors, dim = struct.unpack_from(">IH", record, postings_end)
        if len(record) != postings_end + 6 + vectors * dim:
            raise struct.error
        tokens = struct.unpack_from(f">{count}q", record, 15)
    except struct.error:
        raise Invalid("no_record", "This is no index record.") from None
    numbers = struct.unpack_from(f"{vectors * dim}b", record, postings_end + 6)
    return {
        "length": length,
        "source": str(source) if has_source else None,
        "postings": [[str(token), record[15 + 8 * count + n]] for n, token in enumerate(tokens)],
        "vectors": [list(numbers[n * dim : (n + 1) * dim]) for n in range(vectors)],
    }


def turn_vector(key: NamespaceKey, model: str, vector: Sequence[float]) -> list[float]:
    """Return a vector scaled to unit length and turned by the namespace's secret rotation.

    Raises:
        Invalid: `vector`, when it is empty, longer than 4,000, zero or not finite.
    """
    size = len(vector)
    if not 1 <= size <= DIMENSION_MAX:
        raise Invalid("vector", "A vector has 1 to 4,000 numbers.")
    norm = math.sqrt(math.fsum(value * value for value in vector))
    if not math.isfinite(norm) or norm == 0.0:
        raise Invalid("vector", "A vector is finite and not zero.")
    seed = keys.kdf(key.subkey("vector"), "turn", model.encode(), struct.pack(">I", size))
    stream = bindings.randombytes_buf_deterministic(8 * _ROUNDS * size, seed)
    words = struct.unpack(f">{_ROUNDS * size}Q", stream)
    turned = [value / norm for value in vector]
    for start in range(0, _ROUNDS * size, size):
        turned = _round(turned, words[start : start + size])
    return turned


def _round(vector: list[float], words: Sequence[int]) -> list[float]:
    size = len(vector)
    block = 1 << (size.bit_length() - 1)  # the largest power of two that fits
    order = sorted(range(size), key=lambda index: words[index] >> 1)
    mixed = [-vector[i] if words[n] & 1 else vector[i] for n, i in enumerate(order)]
    for at in sorted({0, size - block}):
        mixed[at : at + block] = _walsh_hadamard(mixed[at : at + block])
    return mixed


def _walsh_hadamard(block: list[float]) -> list[float]:
    half = 1
    while half < len(block):
        for start in range(0, len(block), 2 * half):
            for low in range(start, start + half):
                left, right = block[low], block[low + half]
                block[low], block[low + half] = left + right, left - right
        half *= 2
    scale = 1.0 / math.sqrt(len(block))
    return [value * scale for value in block]


def token(index_key: bytes, field: str, term: str) -> int:
    """Return the signed 64-bit posting token of a term; `field` is w, t, s or m."""
    if field not in _TOKEN_FIELDS:
        raise Invalid("field", "A token's field is w, t, s or m.")
    digest = keys.mac(8, index_key, "token", field.encode(), term.encode())
    return int.from_bytes(digest, "big", signed=True)


def fingerprint(fingerprint_key: bytes, kind: str, event_time_ms: int | None, text: str) -> bytes:
    """Return the 16 bytes by which the same fact is recognised within a namespace and epoch."""
    folded = " ".join(normalize("NFC", text).split())
    when = "" if event_time_ms is None else str(event_time_ms)
    return keys.mac(16, fingerprint_key, "fact", kind.encode(), when.encode(), folded.encode())


def term_frequency(count: int) -> int:
    """How often a term counts as occurring."""
    return min(count, 15)


def length_bucket(words: int) -> int:
    """A memory's length in words, rounded up to 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 …."""
    bucket, step = 1, 1
    while bucket < words:
        bucket += step
        step = max(1, 1 << (bucket.bit_length() - 2))
    return bucket


def idempotency_tag(
    idempotency_key: bytes, writer: bytes, route: str, item: int, caller_key: str
) -> bytes:
    """The 16 bytes under which a relayer remembers a caller's idempotency key."""
    where = (keys.exact(writer, 32, "public key"), route.encode(), struct.pack(">I", item))
    return keys.mac(16, idempotency_key, "key", *where, caller_key.encode())


def idempotency_text(idempotency_key: bytes, text: str) -> bytes:
    """The 16 bytes that tell whether a repeated idempotency key came with the same text."""
    return keys.mac(16, idempotency_key, "text", text.encode())


def read_join(data: bytes, *, account: bytes, issuer: bytes, relayer: bytes) -> bytes:
    """The public key that joins.

    Raises:
        Invalid: as `read_object`; `join`, when it names another account, issuer or relayer.
    """
    value = objects.read_object("join", data, signer="recipient")
    allowed = {
        "account": (keys.account_text(account), None),
        "issuer": (issuer.hex(), None),
        "relayer": (relayer.hex(),),
    }
    if any(value[name] not in wanted for name, wanted in allowed.items()):
        raise Invalid("join", "The join object names another account, issuer or relayer.")
    return keys.public_key_bytes(value["recipient"])


def open_unlock(
    header: str,
    *,
    unlock_secrets: Mapping[bytes, bytes],
    relayer: bytes,
    account: bytes,
    sender: bytes,
    now_ms: int,
) -> Unlock:
    """Return what a header holds, as a relayer with these secrets (X25519, by kid) sees it.

    Raises:
        Invalid: `unlock_key_unknown`, when no box is for a known kid, else `unlock_rejected`.
    """
    try:
        data, boxes = _parse(header)
        known = [entry for entry in boxes if entry[:_KID_BYTES] in unlock_secrets]
        if not known:
            raise Invalid("unlock_key_unknown", "No box is for a live unlock key.")
        content_key = _open_box(known[0], unlock_secrets, sender)
        unlock = _open_payload(data, 2 + _ENTRY_BYTES * len(boxes), content_key)
        if (unlock.relayer, unlock.account, unlock.sender) != (relayer, account, sender):
            raise Invalid("sender", "The header is for another relayer, account or sender.")
        if abs(now_ms - unlock.issued_ms) > SKEW_MS_MAX:
            raise Invalid("stale", "The header is too old or from the future.")
    except Invalid as error:
        if error.code == "unlock_key_unknown":
            raise
        raise Invalid("unlock_rejected", str(error)) from error
    return unlock


def _parse(header: str) -> tuple[bytes, list[bytes]]:
    if len(header) > HEADER_CHARS_MAX or not header.isascii() or "=" in header:
        raise Invalid("size", "The header is too long or not base64url.")
    try:
        data = base64.b64decode(header + "=" * (-len(header) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid("base64", "The header is not base64url.") from error
    if base64.urlsafe_b64encode(data).decode().rstrip("=") != header:
        raise Invalid("base64", "The header is not canonical base64url.")
    count = data[1] if len(data) >= 2 else 0
    if data[:1] != bytes([_VERSION]) or not 1 <= count <= BOXES_MAX:
        raise Invalid("version", "The header has another version, or no or too many boxes.")
    if len(data) < 2 + _ENTRY_BYTES * count + _NONCE_BYTES + _TAG_BYTES:
        raise Invalid("size", "The header is cut short.")
    starts = (2 + _ENTRY_BYTES * position for position in range(count))
    return data, [data[start : start + _ENTRY_BYTES] for start in starts]


def _open_box(entry: bytes, secrets: Mapping[bytes, bytes], sender: bytes) -> bytes:
    kid, nonce = entry[:_KID_BYTES], entry[_KID_BYTES : _KID_BYTES + _NONCE_BYTES]
    secret = keys.exact(secrets[kid], 32, "unlock secret")
    try:
        shared = bindings.crypto_box_beforenm(keys.exchange_public(sender), secret)
        return bindings.crypto_box_open_easy_afternm(entry[-_BOX_BYTES:], nonce, shared)
    except (CryptoError, RuntimeError) as error:
        raise Invalid("box", "The header's box does not open.") from error


def _open_payload(data: bytes, at: int, content_key: bytes) -> Unlock:
    nonce, sealed = data[at : at + _NONCE_BYTES], data[at + _NONCE_BYTES :]
    try:
        payload = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, data[:at], nonce, content_key
        )
    except (CryptoError, RuntimeError) as error:
        raise Invalid("aead", "The header's payload does not open.") from error
    value = objects.read_json(payload, _MEMBERS)
    lent, hold_s = value["keys"], objects.integer(value["hold"])
    if objects.integer(value["v"]) != 1 or hold_s > HOLD_S_MAX:
        raise Invalid("hold", "The header has another version or holds its keys too long.")
    if not isinstance(lent, list) or not 1 <= len(lent) <= KEYS_MAX:
        raise Invalid("keys", "A header has 1 to 64 keys.")
    opened = tuple(_read_key(entry) for entry in lent)
    if len({(key.name, key.epoch) for key in opened}) != len(opened):
        raise Invalid("keys", "A header has one key for a namespace and epoch.")
    return Unlock(
        relayer=keys.hex_bytes(value["relayer"], 32, "public key"),
        account=keys.account_bytes(value["account"]),
        sender=keys.hex_bytes(value["sender"], 32, "public key"),
        issued_ms=objects.integer(value["iat"]),
        hold_s=hold_s,
        keys=opened,
    )


def _read_key(entry: object) -> NamespaceKey:
    if not isinstance(entry, dict) or set(entry) != {"ns", "epoch", "key"}:
        raise Invalid("members", "A key has the members ns, epoch and key.")
    name = keys.settle_namespace(objects.text_of(entry["ns"]))
    key = objects.from_base64(entry["key"], "key")
    return NamespaceKey(key, keys.check_epoch(entry["epoch"]), name)
