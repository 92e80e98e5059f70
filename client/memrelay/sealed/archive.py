"""An archive's bytes: a signed header with a box for each owner, then chunks under one key.

It does not own what the records say (`archive_writer.py`) or which keys own the account
(`ledger.py`).

- A chunk is bound to its archive, its place and to whether it is the last: what was cut, swapped
  or altered does not open.
- Nonces are random: an export that goes on after a break may seal another chunk in the same place.

Source: SPEC.md §17.
"""

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from uuid import UUID

from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay.errors import Invalid
from memrelay.sealed.keys import (
    KEY_BYTES,
    Identity,
    Secret,
    account_bytes,
    account_text,
    exact,
    exchange_public,
    public_key_bytes,
)
from memrelay.sealed.objects import (
    OBJECT_BYTES_MAX,
    SIGNATURE_BYTES,
    from_base64,
    integer,
    list_of,
    read_json,
    read_object,
    sign_object,
    to_base64,
    uuid_text,
    write_json,
)

MAGIC = b"memrelay-archive\n"
CHUNK_BYTES_MAX = 1 << 20
RECORD_BYTES_MAX = 16 << 20

_NONCE_BYTES = 24
_TAG_BYTES = 16
_LENGTH = struct.Struct(">I")
_BOX_MEMBERS = ("account", "archive", "key")
_BOX_ENTRY = {"recipient", "box"}

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Header:
    """The head of an archive, before its chunks; `boxes` by the key that each is for."""

    archive: UUID
    account: bytes
    created_ms: int
    signer: bytes
    relayer: bytes
    boxes: Mapping[bytes, bytes] = field(repr=False)


def new_header(
    signer: Identity,
    *,
    archive: UUID,
    account: bytes,
    relayer: bytes,
    created_ms: int,
    owners: Iterable[bytes],
    key: bytes,
) -> bytes:
    """Return the signed header of an archive whose key is boxed to each of `owners`."""
    inside = {"account": account_text(account), "archive": str(archive), "key": to_base64(key)}
    boxes = [
        {
            "recipient": owner.hex(),
            "box": to_base64(bindings.crypto_box_seal(write_json(inside), exchange_public(owner))),
        }
        for owner in owners
    ]
    payload = {
        "archive": str(archive),
        "account": account_text(account),
        "created": created_ms,
        "signer": signer.public_key.hex(),
        "relayer": relayer.hex(),
        "boxes": boxes,
    }
    return sign_object("archive", payload, signer)


def read_header(data: bytes) -> Header:
    """Return a header whose signature verifies under the signer that it names.

    Raises:
        Invalid: the failed check. Whether the signer owns the account, its grants must say.
    """
    value = read_object("archive", data, signer="signer")
    boxes = [_read_box(entry) for entry in list_of(value["boxes"])]
    if len(dict(boxes)) != len(boxes):
        raise Invalid("boxes", "An archive has one box for a key.")
    return Header(
        archive=UUID(uuid_text(value["archive"])),
        account=account_bytes(value["account"]),
        created_ms=integer(value["created"]),
        signer=public_key_bytes(value["signer"]),
        relayer=public_key_bytes(value["relayer"]),
        boxes=dict(boxes),
    )


def _read_box(entry: object) -> tuple[bytes, bytes]:
    if not isinstance(entry, dict) or set(entry) != _BOX_ENTRY:
        raise Invalid("boxes", "A box names its recipient.")
    return public_key_bytes(entry["recipient"]), from_base64(entry["box"], "box")


def open_box(header: Header, recipient: Identity) -> bytes:
    """Return the archive's key.

    Raises:
        Invalid: `recipient`, when there is no box for this key; `box`, when it is another's.
    """
    box = header.boxes.get(recipient.public_key)
    if box is None:
        raise Invalid("recipient", "The archive is for other keys than this one.")
    try:
        data = bindings.crypto_box_seal_open(
            box, recipient.exchange_public, recipient.exchange_secret
        )
        inside = read_json(data, _BOX_MEMBERS)
    except (CryptoError, TypeError, ValueError, Invalid) as error:
        raise Invalid("box", "The archive's box does not open.") from error
    named = (account_text(header.account), str(header.archive))
    if (inside["account"], inside["archive"]) != named:
        raise Invalid("box", "The archive's box was made for another archive.")
    return exact(from_base64(inside["key"], "key"), KEY_BYTES, "key")


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """The key that seals and opens the chunks of one archive."""

    archive: UUID
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", Secret(self.key))

    def seal(
        self, index: int, plaintext: bytes, *, last: bool, nonce: bytes | None = None
    ) -> bytes:
        """Return `lp(nonce ‖ ciphertext)` of a chunk; only test vectors give the nonce."""
        if not 0 < len(plaintext) <= CHUNK_BYTES_MAX:
            raise Invalid("length", "A chunk has 1 byte to 1 MiB.")
        nonce = nonce or os.urandom(_NONCE_BYTES)
        sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
            plaintext, self._make_associated_data(index, last), nonce, self.key
        )
        return _LENGTH.pack(len(nonce) + len(sealed)) + nonce + sealed

    def open(self, index: int, sealed: bytes, *, last: bool) -> bytes:
        """Return the plaintext of a chunk without its length in front.

        Raises:
            Invalid: `aead`, when a byte, its place or its being the last is another.
        """
        try:
            return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
                sealed[_NONCE_BYTES:],
                self._make_associated_data(index, last),
                sealed[:_NONCE_BYTES],
                self.key,
            )
        except CryptoError as error:
            raise Invalid("aead", f"Chunk {index} of the archive does not open.") from error

    def _make_associated_data(self, index: int, last: bool) -> bytes:
        return self.archive.bytes + _LENGTH.pack(index) + bytes([last])


def write_head(header: bytes) -> bytes:
    """Return what a file begins with, from a signed header."""
    return MAGIC + _LENGTH.pack(len(header)) + header


def read_head(file: BinaryIO) -> Header:
    """Return the header of a file that is at its beginning; it is then at its first chunk.

    Raises:
        Invalid: `archive`, when it is no archive; or what `read_header` raises.
    """
    if file.read(len(MAGIC)) != MAGIC:
        raise Invalid("archive", "This is no archive of memrelay.")
    header = _read_sized(file, least=SIGNATURE_BYTES, most=OBJECT_BYTES_MAX + SIGNATURE_BYTES)
    if header is None:
        raise Invalid("length", "The archive ends within its header.")
    return read_header(header)


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the chunks that follow, each without its length in front; none that is cut.

    Raises:
        Invalid: `length`, when one is cut or has no length that a chunk can have.
    """
    extra = _NONCE_BYTES + _TAG_BYTES
    while (sealed := _read_sized(file, least=extra + 1, most=extra + CHUNK_BYTES_MAX)) is not None:
        yield sealed


def _read_sized(file: BinaryIO, *, least: int, most: int) -> bytes | None:
    prefix = file.read(_LENGTH.size)
    if not prefix:
        return None
    size = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else 0
    if not least <= size <= most:
        raise Invalid("length", "The archive is cut, or a length in it is none.")
    data = file.read(size)
    if len(data) != size:
        raise Invalid("length", "The archive is cut.")
    return data


def open_chunks(file: BinaryIO, key: ChunkKey) -> Iterator[bytes]:
    """Yield the plaintexts of a whole archive's chunks, to the last one.

    Raises:
        Invalid: at the first that does not open; `length`, when there is none.
    """
    waiting: bytes | None = None
    index = 0
    for sealed in read_chunks(file):
        if waiting is not None:
            yield key.open(index, waiting, last=False)
            index += 1
        waiting = sealed
    if waiting is None:
        raise Invalid("length", "The archive has no chunk.")
    yield key.open(index, waiting, last=True)


def write_record(record: Mapping[str, Any]) -> bytes:
    """Return `lp(JSON)`."""
    data = write_json(record)
    if len(data) > RECORD_BYTES_MAX:
        raise Invalid("record", "A record of an archive is too long.")
    return _LENGTH.pack(len(data)) + data


def read_records(chunks: Iterable[bytes]) -> Iterator[Record]:
    """Yield the records of joined plaintexts.

    Raises:
        Invalid: `record`, when one is cut, too long or no object that says what it is.
    """
    joined = JoinedChunks()
    for chunk in chunks:
        yield from joined.add(chunk)
    if not joined.is_whole:
        raise Invalid("record", "The archive ends within a record.")


class JoinedChunks:
    """Records as they become whole, chunk by chunk."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def is_whole(self) -> bool:
        """True if no record is begun."""
        return not self._rest

    def add(self, chunk: bytes) -> Iterator[Record]:
        """Yield what is whole by now.

        Raises:
            Invalid: `record`, when one is too long or no object that says what it is.
        """
        self._rest += chunk
        at = 0
        while len(self._rest) - at >= _LENGTH.size:
            size = _LENGTH.unpack_from(self._rest, at)[0]
            if size > RECORD_BYTES_MAX:
                raise Invalid("record", "A record of the archive is too long.")
            if len(self._rest) - at - _LENGTH.size < size:
                break
            at += _LENGTH.size
            yield _read_record(bytes(self._rest[at : at + size]))
            at += size
        del self._rest[:at]


def _read_record(data: bytes) -> Record:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Invalid("record", "A record of the archive is no JSON.") from error
    if not isinstance(value, dict) or not isinstance(value.get("record"), str):
        raise Invalid("record", "A record of the archive does not say what it is.")
    return value
