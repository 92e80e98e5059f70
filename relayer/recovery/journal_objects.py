"""Journal objects that stay for good: none of them is a memory, an episode or a state.

Not here: what they say (`examiner.py`, `upkeep/rebuild.py`), noting their names
(`database/collection.py`). Pure.

- A name is the hash of the bytes: what has it once been of, it is of for ever.
- Only what verifies counts. Foreign bytes are collected some day, and their names would stay.
"""

from collections.abc import Sequence

from relayer.sealed.grants import parse_any
from relayer.sealed.keys import AccountId, PublicKey
from relayer.sealed.named import NamedKey, open_namespace
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import Receipt, open_receipt
from relayer.sealed.succession import open_next


def is_lasting(data: bytes, account: AccountId, relayers: Sequence[PublicKey]) -> bool:
    """Return true if an object is a receipt, a grant or what one rests on, or names a namespace."""
    return data.startswith(b"{") and (
        receipt_of(data, account, relayers) is not None
        or named_of(data, account, relayers) is not None
        or is_history(data, account)
    )


def receipt_of(data: bytes, account: AccountId, relayers: Sequence[PublicKey]) -> Receipt | None:
    """Return the account's receipt that an object is."""
    try:
        receipt = open_receipt(data, *relayers)
    except CryptoError:
        return None
    return receipt if receipt.account == account else None


def named_of(data: bytes, account: AccountId, relayers: Sequence[PublicKey]) -> NamedKey | None:
    """Return the key of one of the account's namespaces that an object names."""
    try:
        named = open_namespace(data, *relayers)
    except CryptoError:
        return None
    return named if named.account == account else None


def is_history(data: bytes, account: AccountId) -> bool:
    """Return true if an object is a grant or revocation of the account, or what one may rest on."""
    try:
        return parse_any(data).account == account
    except CryptoError:
        return _is_succession(data)


def _is_succession(data: bytes) -> bool:
    try:
        return bool(open_next(data))
    except CryptoError:
        return False
