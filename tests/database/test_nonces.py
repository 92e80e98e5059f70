"""A nonce is recorded, and the account that its request names is read, wherever tables lie."""

import os
import time
import uuid
from datetime import timedelta
from typing import Any

import pytest

from relayer.clock import utc_now
from relayer.database import accounts
from relayer.database import requests as statements
from relayer.database.requests import Nonce, NonceAnswer
from relayer.sealed.keys import AccountId, PublicKey
from relayer.settings import Limits
from relayer.storage import Storage
from relayer.upkeep.doctor import CLOCK_SKEW_S_MAX
from relayer.upkeep.provision import NewKey


def nonce_of(key: bytes, account: AccountId | None) -> Nonce:
    return Nonce(
        public_key=PublicKey(key),
        nonce=uuid.uuid4(),
        timestamp_s=int(time.time()),
        expires_at=utc_now() + timedelta(minutes=10),
        unregistered=False,
        account=account,
    )


def test_a_nonce_is_kept_for_longer_than_clocks_differ() -> None:
    """Its request is judged by other clocks than the one that its nonce ends by."""
    apart = 2 * CLOCK_SKEW_S_MAX  # of two relayers from the database, in either direction
    assert Limits.nonce_life_s >= 2 * Limits.clock_skew_s_max + apart


def said(answer: NonceAnswer) -> tuple[Any, ...]:
    """What an answer says, and of whom."""
    named = answer.named and (answer.named["whole_id"], answer.named["grant_serial"])
    return answer.owner, answer.intact, answer.fresh, named


@pytest.mark.parametrize("is_cluster", [False, True])
async def test_an_answer_tells_whose_the_key_is_and_what_the_account_is(
    storage: Storage, managed: NewKey, sealed: NewKey, is_cluster: bool
) -> None:
    database = storage.database
    database.is_cluster = is_cluster
    key, stranger = managed.identity.public_key, os.urandom(32)
    first = nonce_of(key, managed.account)
    row, other = (managed.account, 2), (sealed.account, 1)
    for nonce, expected in (
        (first, (managed.account, True, True, row)),
        (first, (managed.account, True, False, row)),
        (nonce_of(key, sealed.account), (managed.account, True, True, other)),
        (nonce_of(key, AccountId(bytes(32))), (managed.account, True, True, None)),
        (nonce_of(key, None), (managed.account, True, True, None)),
        (nonce_of(stranger, managed.account), (None, True, False, row)),
    ):
        [answer] = await statements.record_nonces(database, [nonce])
        assert said(answer) == expected


async def test_the_same_nonce_with_other_accounts_is_fresh_once(
    storage: Storage, managed: NewKey, sealed: NewKey
) -> None:
    first = nonce_of(managed.identity.public_key, None)
    named = [None, managed.account, sealed.account]
    nonces = [Nonce(**{**vars(first), "account": account}) for account in named]
    answers = await statements.record_nonces(storage.database, nonces)
    assert sum(answer.fresh for answer in answers) == 1
    assert [a.named and a.named["whole_id"] for a in answers] == named


async def test_on_a_cluster_no_statement_asks_two_nodes(
    storage: Storage, managed: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is of a key lies elsewhere than what is of an account."""
    database, fetchmany, asked = storage.database, storage.database.fetchmany, []

    async def noting(statement: str, arguments: Any) -> Any:
        asked.append(statement)
        return await fetchmany(statement, arguments)

    monkeypatch.setattr(database, "fetchmany", noting)
    database.is_cluster = True
    await statements.record_nonces(
        database, [nonce_of(managed.identity.public_key, managed.account)]
    )
    assert sorted(asked) == sorted([statements._RECORD_NONCE, accounts._ACCOUNT])
    asked.clear()
    await statements.record_nonces(database, [nonce_of(managed.identity.public_key, None)])
    assert asked == [statements._RECORD_NONCE], "no node is asked for an account that none is"
