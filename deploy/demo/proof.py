"""Trying everything that one agent's key, the whole database and the relayer's key file can open.

An attacker's program: it goes round the relayer, reads every row, and tries every key it can get.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.envelope import open_envelope, read_header
from relayer.sealed.grants import Grant, open_grant, parse_any
from relayer.sealed.keys import Identity, NamespaceKey, Root, parse_namespace
from relayer.sealed.primitives import CryptoError

HERE = Path(__file__).parent
WORD_CHARACTERS_MIN = 7


@dataclass
class Proof:
    """What was tried, and what opened."""

    tried: int = 0
    foreign: int = 0
    opened: dict[str, int] = field(default_factory=dict)
    tables: int = 0
    leaked: int = 0

    @property
    def holds(self) -> bool:
        """Isolation was seen: the agent's own blobs open, foreign ones exist and none opens."""
        own_open = set(self.opened) == {"coder", "team"}
        return own_open and self.foreign > 0 and self.leaked == 0


async def prove_isolation(folder: Path, private_key: str) -> Proof:
    """Open whatever can be opened."""
    identities = [
        Identity(bytes.fromhex(private_key)),
        Identity(bytes.fromhex((folder / "relayer.key").read_text())),
    ]
    async with EmbeddedPostgres(data_dir=folder) as server:
        connection = await asyncpg.connect(**server.admin_args | {"database": "memrelay"})
        try:
            proof = await _try_all(connection, _keys(await _grants(connection), identities))
            await _search_words(connection, proof)
        finally:
            await connection.close()
    return proof


async def _grants(connection: asyncpg.Connection) -> list[Grant]:
    rows = await connection.fetch("SELECT object FROM grants")
    return [g for row in rows if isinstance(g := parse_any(row["object"]), Grant)]


def _keys(grants: list[Grant], identities: list[Identity]) -> list[NamespaceKey]:
    """Every namespace key that these identities can take out of any grant."""
    keys = []
    for grant in grants:
        for identity in identities:
            try:
                opened = open_grant(grant, identity)
            except CryptoError:
                continue
            keys += [key for key in opened if isinstance(key, NamespaceKey)]
            keys += [
                root.namespace_key(grant.account, parse_namespace(name))
                for root in opened
                if isinstance(root, Root)
                for name in ("researcher", "coder", "team")
            ]
    return keys


async def _try_all(connection: asyncpg.Connection, keys: list[NamespaceKey]) -> Proof:
    proof = Proof()
    rows = await connection.fetch(
        """SELECT b.bytes, n.name FROM blobs b
           JOIN memories m USING (account_id, blob_id)
           JOIN namespaces n USING (account_id, namespace_id)"""
    )
    for row in rows:
        proof.tried += 1
        proof.foreign += row["name"] == "researcher"
        if _opens(row["bytes"], keys):
            proof.opened[row["name"]] = proof.opened.get(row["name"], 0) + 1
    return proof


def _opens(blob: bytes, keys: list[NamespaceKey]) -> bool:
    for key in keys:
        try:
            open_envelope(key, read_header(blob).address, blob)
        except CryptoError:
            continue
        return True
    return False


async def _search_words(connection: asyncpg.Connection, proof: Proof) -> None:
    """Look for every long word of the conversation in every column of every table."""
    text = (HERE / "conversation.jsonl").read_text(encoding="utf-8")
    said = " ".join(json.loads(line)["text"] for line in text.splitlines())
    words = {w.lower() for w in said.split() if w.isalpha() and len(w) >= WORD_CHARACTERS_MIN}
    words -= {"researcher"}  # a namespace's name is not hidden
    tables = await connection.fetch(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE 'pgq%'"
    )
    for table in tables:
        proof.tables += 1
        for row in await connection.fetch(f'SELECT t::text AS row FROM "{table["tablename"]}" t'):
            proof.leaked += sum(word in row["row"].lower() for word in words)
