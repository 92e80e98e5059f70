"""The receipts of an account, and whether they hold."""

from relayer.sealed.receipts import FIRST_PREVIOUS, verify_chain
from tests.services import Bench


async def chain_of(bench: Bench, account: bytes) -> list[bytes]:
    rows = await bench.sql(
        "SELECT object FROM receipts WHERE account_id = $1 ORDER BY seq", account
    )
    return [r["object"] for r in rows]


async def assert_chain_holds(bench: Bench, account: bytes) -> int:
    relayer = bench.storage.identity.public_key
    receipts = await chain_of(bench, account)
    seq, head = verify_chain(receipts, relayer, seq=0, head=FIRST_PREVIOUS)
    stored = await bench.sql(
        "SELECT receipt_seq, receipt_head FROM accounts WHERE account_id = $1", account
    )
    assert [tuple(r) for r in stored] == [(seq, head)]
    return seq
