"""What each attacker of SECURITY.md can do with what they hold, and where it ends.

Not here: requests of strangers (`test_checks.py`, `tests/tenants`), clients (`tests/client`).

- An attacker has our own code, every byte that is named, and no key that is not.
"""

import random
import uuid
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest
from nacl import bindings
from nacl.exceptions import CryptoError as NaclCryptoError

from relayer.record import Draft, encode
from relayer.sealed import envelope
from relayer.sealed.grants import Grant, open_grant
from relayer.sealed.keys import AccountId, Identity, Namespace, NamespaceKey, Root
from relayer.sealed.primitives import CryptoError, exchange_public_key, from_base64url
from relayer.sealed.unlock import UnknownUnlockKey, UnlockKey, open_unlock
from relayer.upkeep import provision
from tests.rotator import all_bytes, opened_by, rotator
from tests.services import OTHER, TEAM, Bench
from tests.stolen_index import VOCABULARY

T = TypeVar("T")
TEA, CUPS = "Anna prefers chamomile tea.", "Ben sells porcelain cups."
COLUMNS = """
SELECT m.memory_id, ns.name, m.kind, m.writer, m.created_at, m.size_bytes, m.tokens
FROM memories m JOIN namespaces ns USING (account_id, namespace_id) ORDER BY m.seq
"""


async def grants_of(bench: Bench, account: AccountId) -> list[Grant]:
    """All grants, as they lie in the database and beside the blobs."""
    chain = await bench.storage.accounts.chain(account)
    return [grant for held in chain.grants.values() for grant in held]


async def keys_from(bench: Bench, account: AccountId, identity: Identity) -> list[NamespaceKey]:
    """The keys of both namespaces that the account's grants give to whoever holds this identity."""
    found: list[NamespaceKey] = []
    for grant in await grants_of(bench, account):
        try:
            opened = open_grant(grant, identity)
        except CryptoError:
            continue
        for key in opened:
            if isinstance(key, Root):
                found += [key.namespace_key(account, name) for name in (TEAM, OTHER)]
            else:
                found.append(key)
    return found


async def lived(bench: Bench, founder: provision.NewKey) -> list[uuid.UUID]:
    """Something said in either namespace."""
    caller = await bench.unlocked(founder, TEAM, OTHER)
    stored = await bench.remember(caller, TEA, tags=("drinks",))
    stored += await bench.remember(caller, CUPS, namespace=OTHER, kind="decision")
    return [item.id for item in stored]


class TestStolenDisk:
    """Whoever has a copy of the database, of the blobs and of `relayer.key`."""

    async def test_of_a_sealed_account_no_text_opens(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        await bench.key(founder, TEAM)
        await lived(bench, founder)
        assert await keys_from(bench, founder.account, bench.storage.identity) == []
        # Neither the relayer's own secrets nor what lies in the clear are keys by any chance.
        seed = bench.storage.identity.seed
        secrets = [seed, bench.storage.identity.exchange_private_key]
        secrets += [e.key_id for g in await grants_of(bench, founder.account) for e in g.scope]
        tried: list[NamespaceKey] = []
        for secret in secrets:
            root = Root(1, secret)
            tried += [root.namespace_key(founder.account, name) for name in (TEAM, OTHER)]
            tried += [NamespaceKey(name, 1, secret) for name in (TEAM, OTHER)]
        assert await opened_by(bench, founder.account, tried) == set()
        right = [bench.namespace_key(founder.account, name) for name in (TEAM, OTHER)]
        assert len(await opened_by(bench, founder.account, right)) == 2

    async def test_recorded_unlock_headers_open_for_no_later_process(self, bench: Bench) -> None:
        """Not with the key file, not in the same second, and not by the identity's own keys."""
        founder = await bench.account("sealed")
        header = bench.unlock(founder, [bench.namespace_key(founder.account, TEAM)])
        await bench.caller(founder, header)
        identity = bench.storage.identity
        made_of_identity = UnlockKey(
            identity.exchange_private_key, identity.exchange_public_key, 2**53
        )
        for unlock_keys in ({}, {made_of_identity.kid: made_of_identity}):
            with pytest.raises(UnknownUnlockKey):
                open_unlock(
                    header,
                    unlock_keys=unlock_keys,
                    relayer=identity.public_key,
                    account=founder.account,
                    sender=founder.identity.public_key,
                    now_ms=round(bench.clock().timestamp() * 1000),
                )
        box = from_base64url(header)[2 + 8 : 2 + 80]
        shared = bindings.crypto_box_beforenm(
            exchange_public_key(founder.identity.public_key), identity.exchange_private_key
        )
        with pytest.raises(NaclCryptoError):
            bindings.crypto_box_open_easy_afternm(box[24:], box[:24], shared)

    async def test_a_managed_account_opens_with_the_key_file_and_not_without(
        self, bench: Bench
    ) -> None:
        founder = await bench.account("managed")
        await lived(bench, founder)
        keys = await keys_from(bench, founder.account, bench.storage.identity)
        assert len(await opened_by(bench, founder.account, keys)) == 2
        assert await keys_from(bench, founder.account, Identity(bytes(range(32)))) == []

    async def test_names_times_kinds_writers_and_sizes_show(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        ids = await lived(bench, founder)
        rows = await bench.sql(COLUMNS)
        writer, now = founder.identity.public_key, bench.clock()
        assert [tuple(row)[:5] for row in rows] == [
            (ids[0], "team", "fact", writer, now),
            (ids[1], "other", "decision", writer, now),
        ]
        # Both texts are in the same size class: their lengths do not show.
        assert rows[0]["size_bytes"] == rows[1]["size_bytes"]

    async def test_which_memories_share_words_shows_within_a_namespace_only(
        self, bench: Bench
    ) -> None:
        founder = await bench.account("sealed")
        caller = await bench.unlocked(founder, TEAM, OTHER)
        await bench.remember(caller, TEA, "Chamomile grows here.", CUPS)
        await bench.remember(caller, TEA, namespace=OTHER)
        tea, grows, cups, elsewhere = (set(row["tokens"]) for row in await bench.sql(COLUMNS))
        assert len(tea & grows) == 1
        assert not tea & cups
        assert not tea & elsewhere

    async def test_known_texts_reveal_most_words_of_all_others(self, bench: Bench) -> None:
        """Without any key: a hash that stands just where a word does is that word."""
        drawn = random.Random(7)
        often = [1 / rank for rank in range(1, len(VOCABULARY) + 1)]  # as in any language
        said = [set(drawn.choices(VOCABULARY, often, k=12)) for _ in range(80)]
        caller = await bench.unlocked(await bench.account("sealed"), TEAM)
        await bench.remember(caller, *(" ".join(sorted(words)) for words in said))
        rows = [set(row["tokens"]) for row in await bench.sql(COLUMNS)]
        known, others = range(50), range(50, 80)
        learned = set(_by_places(said, known)) & set(_by_places(rows, known))
        word_of, hash_of = _by_places(said, known), _by_places(rows, known)
        opened = {hash_of[places]: word_of[places] for places in learned}
        read = [{opened[token] for token in rows[n] if token in opened} for n in others]
        assert all(words <= said[n] for n, words in zip(others, read, strict=True))
        assert sum(map(len, read)) > 0.6 * sum(len(said[n]) for n in others)


def _by_places(things: Sequence[set[T]], known: Iterable[int]) -> dict[tuple[int, ...], T]:
    """In which of these texts a thing stands → the only one that stands just there."""
    places: dict[T, list[int]] = {}
    for n in known:
        for thing in things[n]:
            places.setdefault(thing, []).append(n)
    found: dict[tuple[int, ...], list[T]] = {}
    for thing, where in places.items():
        found.setdefault(tuple(where), []).append(thing)
    return {where: alike[0] for where, alike in found.items() if len(alike) == 1}


class TestRunningRelayer:
    """Whoever controls a relayer's process while somebody lends it a key."""

    async def test_a_lent_key_opens_the_past_of_its_epoch_and_nothing_else(
        self, bench: Bench
    ) -> None:
        owner = await rotator(bench, "sealed")
        await lived(bench, owner.owner)
        before = set(await all_bytes(bench, owner.owner.account))
        lent = (await bench.unlocked(owner.owner, TEAM)).keys.of(TEAM)
        assert len(await opened_by(bench, owner.owner.account, lent)) == 1
        await owner.rotate(reseal="none")
        await bench.remember(await owner.caller(), "Said after the rotation.")
        opened = await opened_by(bench, owner.owner.account, lent)
        assert len(opened) == 1
        assert opened <= before

    async def test_it_is_never_lent_a_root(self, bench: Bench) -> None:
        """So what was never unlocked stays closed, also for a key of the whole account."""
        founder = await bench.account("sealed")
        await lived(bench, founder)
        root = bench.root[founder.account]
        lent = (await bench.unlocked(founder, TEAM)).keys.of(TEAM)
        derived = [Root(1, key.key).namespace_key(founder.account, OTHER) for key in lent]
        assert root.key not in {key.key for key in lent}
        assert await opened_by(bench, founder.account, derived) == set()


class TestOneAgent:
    """Whoever has one agent's private key, and perhaps the database as well."""

    @pytest.mark.parametrize("role", ["writer", "reader"])
    async def test_it_opens_its_own_namespaces_only(self, bench: Bench, role: str) -> None:
        founder = await bench.account("sealed")
        agent = await bench.key(founder, TEAM, role=role)  # type: ignore[arg-type]
        await lived(bench, founder)
        keys = await keys_from(bench, founder.account, agent.identity)
        assert [key.namespace for key in keys] == [TEAM]
        assert len(await opened_by(bench, founder.account, keys)) == 1

    async def test_how_much_others_write_shows_by_the_numbers_of_its_own(
        self, bench: Bench
    ) -> None:
        founder = await bench.account()
        agent = await bench.caller(await bench.key(founder, TEAM))
        owner = await bench.caller(founder)
        [first] = await bench.remember(agent, TEA)
        await bench.remember(owner, CUPS, "Ben sells bowls.", namespace=OTHER)
        [second] = await bench.remember(agent, "Anna drinks it cold.")
        mine = [await bench.services.memory.get(agent, i.id) for i in (first, second)]
        assert [m.seq for m in mine] == [1, 4], "two memories lie in between"

    async def test_with_the_database_a_reader_can_forge_what_nothing_promises(
        self, bench: Bench
    ) -> None:
        """The record opens, since the key is right; no receipt names it, which a proof shows."""
        founder = await bench.account("sealed")
        agent = await bench.key(founder, TEAM, role="reader")
        [memory_id, _] = await lived(bench, founder)
        [key] = await keys_from(bench, founder.account, agent.identity)
        forged = self._forged(founder.account, key, memory_id, agent.identity)
        digest = envelope.blob_hash(envelope.blob_id(forged))
        statement = """
        UPDATE blobs SET blob_id = $1, bytes = $2
        WHERE blob_id = (SELECT blob_id FROM memories WHERE memory_id = $3)
        """
        await bench.sql(statement, digest, forged, memory_id)
        await bench.sql("UPDATE memories SET blob_id = $1 WHERE memory_id = $2", digest, memory_id)
        caller = await bench.unlocked(founder, TEAM)
        assert (await bench.services.memory.get(caller, memory_id)).text == "Anna hates tea."
        receipts = await bench.sql("SELECT object FROM receipts")
        name = envelope.blob_id(forged).encode()
        assert not any(name in row["object"] for row in receipts)

    def _forged(
        self, account: AccountId, key: NamespaceKey, memory_id: uuid.UUID, author: Identity
    ) -> bytes:
        draft = Draft(text="Anna hates tea.", namespace=Namespace(key.namespace))
        address = envelope.Address(envelope.MEMORY, account, memory_id, 1)
        return envelope.seal(key, address, encode(draft, author.public_key), created_ms=0)


class TestTwoStolenVectors:
    """Whoever has the vectors."""

    async def test_distances_show_and_namespaces_cannot_be_joined(self, hybrid: Bench) -> None:
        founder = await hybrid.account("sealed")
        caller = await hybrid.unlocked(founder, TEAM, OTHER)
        stored = await hybrid.remember(caller, TEA, "Anna likes chamomile tea.", CUPS)
        stored += await hybrid.remember(caller, TEA, namespace=OTHER)
        await hybrid.embed(caller, stored)
        near, far, elsewhere = await self._distances(hybrid, [item.id for item in stored])
        assert near < 0.2 < far
        assert 0.5 < elsewhere < 1.5  # the same text, as far as two random ones

    async def _distances(self, bench: Bench, ids: Sequence[uuid.UUID]) -> list[float]:
        statement = """
        SELECT (a.embedding <=> b.embedding)::float8 AS distance
        FROM unnest($2::uuid[]) WITH ORDINALITY AS o (memory_id, n)
        JOIN vectors b ON b.memory_id = o.memory_id
        CROSS JOIN vectors a WHERE a.memory_id = $1 ORDER BY o.n
        """
        return [row["distance"] for row in await bench.sql(statement, ids[0], list(ids[1:]))]
