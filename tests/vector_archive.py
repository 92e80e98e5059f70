"""The test vectors' archives, opened by the relayer's primitives.

Not here: all other operations (`vector_relayer.py`), the client's reader (`vector_client.py`).
"""

import json
import uuid
from typing import Any

from nacl import bindings
from nacl.exceptions import CryptoError as NaclCryptoError

from relayer.sealed.keys import Identity, parse_public_key
from relayer.sealed.objects import claimed, open_object, strict_json
from relayer.sealed.primitives import CryptoError, aead_open, from_base64, u32

Json = dict[str, Any]


def do_archive(given: Json) -> Json:
    """The relayer never reads an archive: its primitives do, step by step as SPEC §17.1 says."""
    data = from_base64(given["archive"])
    magic = b"memrelay-archive\n"
    if not data.startswith(magic):
        raise CryptoError("no archive")
    header, *sealed = _sized(data[len(magic) :])
    signer = parse_public_key(claimed(header, "signer"))
    members = frozenset("archive account created signer relayer boxes".split())
    m = open_object(header, "archive", signer, members)
    if m["account"] != given["account"]:
        raise CryptoError("another account's object")
    recipient = Identity(bytes.fromhex(given["recipient_seed"]))
    boxes = {entry["recipient"]: from_base64(entry["box"]) for entry in m["boxes"]}
    if recipient.public_key.hex() not in boxes:
        raise CryptoError("the grant is for another key")
    inside = _opened_box(boxes[recipient.public_key.hex()], recipient)
    if (inside["account"], inside["archive"]) != (m["account"], m["archive"]):
        raise CryptoError("the box belongs to another grant")
    if not sealed:
        raise CryptoError("bad object length")
    key, archive = from_base64(inside["key"]), uuid.UUID(m["archive"]).bytes
    chunks = [
        aead_open(
            key,
            chunk[24:],
            associated=archive + u32(index) + bytes([index == len(sealed) - 1]),
            nonce=chunk[:24],
        )
        for index, chunk in enumerate(sealed)
    ]
    return {
        "archive_id": m["archive"],
        "created": m["created"],
        "signer": m["signer"],
        "relayer": m["relayer"],
        "records": [_record(data) for data in _sized(b"".join(chunks))],
        "chunk_sizes": [len(chunk) for chunk in chunks],
    }


def _sized(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        if len(data) < 4 + size or len(data) < 4:
            raise CryptoError("bad object length")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


def _opened_box(box: bytes, recipient: Identity) -> Json:
    try:
        opened = bindings.crypto_box_seal_open(
            box, recipient.exchange_public_key, recipient.exchange_private_key
        )
    except NaclCryptoError:
        raise CryptoError("the box does not open") from None
    return strict_json(opened)


def _record(data: bytes) -> Json:
    try:
        value = json.loads(data)
    except ValueError:
        raise CryptoError("not a record of an archive") from None
    if not isinstance(value, dict) or "record" not in value:
        raise CryptoError("not a record of an archive")
    return value
