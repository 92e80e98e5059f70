"""The receipts of an account, and whether they hold."""

from collections.abc import Sequence

from relayer.sealed.keys import PublicKey
from relayer.sealed.receipts import FIRST_PREVIOUS, ReceiptChain
from tests.services import Bench


def verify_chain(
    receipts: Sequence[bytes], *relayers: PublicKey, seq: int, head: bytes
) -> tuple[int, bytes]:
    """The new (seq, head) after receipts that must follow the given ones without a gap."""
    chain = ReceiptChain(relayers, seq=seq, head=head)
    for signed in receipts:
        chain.follow(signed)
    return chain.seq, chain.head


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
