"""Telling foreign bytes, which are kept as they came, from what could be an object of ours.

Not here: what objects say. By form alone: whose signature an object has does not matter, since the
journal's objects are found by it again, and one of the same bytes has the same name.
"""

from relayer.sealed.envelope import read_header
from relayer.sealed.keys import AccountId
from relayer.sealed.objects import strict_json
from relayer.sealed.primitives import SIGNATURE_BYTES, CryptoError


def is_foreign(account: AccountId, stored: bytes) -> bool:
    """Return true if bytes are no signed object (SPEC §4) and no envelope of this account."""
    return not (_is_signed_object(stored) or _is_envelope(account, stored))


def _is_signed_object(stored: bytes) -> bool:
    try:
        return "v" in strict_json(stored[:-SIGNATURE_BYTES])
    except CryptoError:
        return False


def _is_envelope(account: AccountId, stored: bytes) -> bool:
    try:
        return read_header(stored).address.account == account
    except CryptoError:
        return False
