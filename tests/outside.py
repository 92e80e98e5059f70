"""An account seen without the product: rows, stored bytes, keys out of grants, signed receipts.

It follows SPEC.md by the formulas of `reference.py`, and asks neither the relayer nor the client.
"""

import asyncio
import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from nacl import bindings
from nacl.exceptions import CryptoError

from tests.reference import NamespaceKey, Root, Signer, b64url, hash_256, kdf

ENVELOPE_HEAD = 124  # bytes before the ciphertext
TABLES = """
SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""
ROWS = """
SELECT coalesce(revision_of, memory_id) AS id, revision, name AS namespace, m.epoch, m.blob_id
FROM memories m JOIN namespaces USING (account_id, namespace_id) WHERE account_id = $1
"""


@dataclass(frozen=True)
class Row:
    """One revision of a memory, as the database has it."""

    id: str
    revision: int
    namespace: str
    epoch: int
    blob_id: str


@dataclass(frozen=True)
class Outside:
    """One relayer's database and blob folder, looked at for one account."""

    database_url: str
    relayer_key: bytes
    account_id: str
    data: Path
    blobs: Path | None = None

    @property
    def account(self) -> bytes:
        return bytes.fromhex(self.account_id[2:])

    @property
    def number(self) -> int:
        """Return the number that stands for the account in rows."""
        return int.from_bytes(self.account[:8], signed=True)

    def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """The rows that a statement gives, on a connection of its own."""

        async def work() -> list[Any]:
            connection = await asyncpg.connect(self.database_url)
            try:
                return list(await connection.fetch(statement, *arguments))
            finally:
                await connection.close()

        # A loop of its own: the test run's must stay the current one.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(work())

    def rows(self) -> list[Row]:
        """Every revision of every memory."""
        found = self.fetch(ROWS, self.number)
        return [
            Row(str(r["id"]), r["revision"], r["namespace"], r["epoch"], b64url(r["blob_id"]))
            for r in found
        ]

    def tombstones(self) -> set[str]:
        """The ids of what was erased."""
        found = self.fetch("SELECT memory_id FROM tombstones WHERE account_id = $1", self.number)
        return {str(r["memory_id"]) for r in found}

    def objects(self) -> dict[str, bytes]:
        """Everything in the blob store and on its way there, by the hash of its bytes."""
        staged = self.fetch("SELECT blob_id, bytes FROM blobs WHERE account_id = $1", self.number)
        found = {b64url(r["blob_id"]): bytes(r["bytes"]) for r in staged}
        if self.blobs is not None:
            for path in (self.blobs / self.account.hex()).glob("??/[!.]*"):
                try:
                    found[path.name] = path.read_bytes()
                except FileNotFoundError:
                    continue  # deleted while we looked
        assert all(name == b64url(hash_256(data)) for name, data in found.items())
        return found

    def envelopes(self) -> dict[str, bytes]:
        """The sealed objects alone, without the journal."""
        return {name: data for name, data in self.objects().items() if data[:1] == b"\x01"}

    def receipts(self) -> list[dict[str, Any]]:
        """The payloads of the chain, whose signatures and links are checked."""
        found = self.fetch(
            "SELECT object FROM receipts WHERE account_id = $1 ORDER BY seq", self.number
        )
        payloads, head = [], bytes(32)
        for seq, row in enumerate(found, 1):
            payload = self._signed("receipt", row["object"])
            assert (payload["seq"], payload["prev"]) == (seq, head.hex())
            assert payload["account"] == self.account_id
            head = hash_256(row["object"])
            payloads.append(payload)
        return payloads

    def _signed(self, kind: str, data: bytes) -> dict[str, Any]:
        payload, signature = data[:-64], data[-64:]
        message = b"memrelay/" + kind.encode() + b"/v1\0" + payload
        bindings.crypto_sign_open(signature + message, self.relayer_key)
        parsed: dict[str, Any] = json.loads(payload)
        return parsed

    def keys(self, signer: Signer) -> list[Root | NamespaceKey]:
        """What the grants to somebody hold, opened with the seed alone, revoked or not."""
        found = self.fetch(
            "SELECT object FROM grants WHERE account_id = $1 AND recipient = $2 ORDER BY serial",
            self.number,
            signer.public,
        )
        grants = [json.loads(row["object"][:-64]) for row in found]
        return [key for grant in grants if "box" in grant for key in _granted(grant, signer)]

    def readable(self, signer: Signer, data: Iterable[bytes]) -> int:
        """How many of these envelopes somebody's grants open."""
        keys = [
            key.namespace(self.account, name) if isinstance(key, Root) else key
            for key in self.keys(signer)
            for name in (self._names() if isinstance(key, Root) else [""])
        ]
        return sum(any(opened(key, one) for key in keys) for one in data)

    def said(self, owner: Signer, row: Row, objects: Mapping[str, bytes]) -> str:
        """What a row's envelope says under the owner's root of its epoch."""
        data = objects[row.blob_id]
        roots = [k for k in self.keys(owner) if isinstance(k, Root) and k.epoch == row.epoch]
        assert str(UUID(bytes=data[48:64])) == row.id
        assert int.from_bytes(data[64:68]) == row.revision
        record = opened(roots[-1].namespace(self.account, row.namespace), data)
        assert record is not None, row
        text: str = record["text"]
        return text

    def _names(self) -> list[str]:
        found = self.fetch("SELECT name FROM namespaces WHERE account_id = $1", self.number)
        return [r["name"] for r in found]

    def readable_words(self, words: Iterable[str]) -> list[str]:
        """Which words stand in a table, a log or a blob as they are."""
        needles = {form.encode() for word in words for form in (word, word.lower())}
        places = [path.read_bytes() for path in self._files()]
        for table in self.fetch(TABLES):
            rows = self.fetch(f'SELECT t::text AS row FROM "{table["relname"]}" t')
            places.append("\n".join(r["row"] for r in rows).encode())
        hidden = {n.hex().encode(): n for n in needles} | {n: n for n in needles}
        return sorted({hidden[n].decode() for n in hidden for place in places if n in place})

    def _files(self) -> list[Path]:
        folders = [self.data] if self.blobs is None else [self.data, self.blobs]
        return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def opened(key: NamespaceKey, data: bytes) -> dict[str, Any] | None:
    """The record of an envelope, or nothing under another key."""
    head, sealed = data[:ENVELOPE_HEAD], data[ENVELOPE_HEAD:]
    try:
        padded = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, head, head[-24:], kdf(key.key, "seal")
        )
    except CryptoError:
        return None
    length = int.from_bytes(padded[:4])
    record: dict[str, Any] = json.loads(padded[4 : 4 + length])
    return record


def _granted(grant: dict[str, Any], signer: Signer) -> list[Root | NamespaceKey]:
    box = bindings.crypto_box_seal_open(
        _bytes(grant["box"]), signer.exchange_public, signer.exchange_secret
    )
    keys = map(_bytes, json.loads(box)["keys"])
    return [
        NamespaceKey(key, scope["ns"], scope["epoch"])
        if "ns" in scope
        else Root(key, scope["epoch"])
        for key, scope in zip(keys, grant["scope"], strict=True)
    ]


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
