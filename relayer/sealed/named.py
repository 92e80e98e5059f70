"""The signed object that keeps a namespace's name in the journal. Source: SPEC §4, §17.

Not here: when one is written (`relayer.tenants.namespaces`). A namespace's key comes from its name,
so without the name not even a custodian could open what was sealed there.
"""

from dataclasses import dataclass
from typing import Final

from relayer.sealed.keys import (
    EPOCH_MAX,
    AccountId,
    Identity,
    Namespace,
    PublicKey,
    account_text,
    parse_account,
    parse_public_key,
    settled_namespace,
)
from relayer.sealed.objects import (
    integer_member,
    open_object,
    sign_object,
    signer_among,
    text_member,
)

_MEMBERS: Final = frozenset("relayer account namespace epoch key_id".split())


@dataclass(frozen=True)
class NamedKey:
    """The key id of an account's namespace in an epoch."""

    account: AccountId
    namespace: Namespace
    epoch: int
    key_id: bytes


def sign_namespace(relayer: Identity, named: NamedKey) -> bytes:
    """Return the signed `namespace` object."""
    return sign_object(
        relayer,
        "namespace",
        {
            "relayer": relayer.public_key.hex(),
            "account": account_text(named.account),
            "namespace": named.namespace,
            "epoch": named.epoch,
            "key_id": named.key_id.hex(),
        },
    )


def open_namespace(signed: bytes, *relayers: PublicKey) -> NamedKey:
    """Open a `namespace` object, signed by any key that this relayer has had.

    Raises:
        CryptoError: bad signature or members.
    """
    m = open_object(signed, "namespace", signer_among(signed, relayers), _MEMBERS)
    return NamedKey(
        account=parse_account(text_member(m["account"])),
        namespace=settled_namespace(text_member(m["namespace"])),
        epoch=integer_member(m["epoch"], low=1, high=EPOCH_MAX),
        key_id=parse_public_key(text_member(m["key_id"])),
    )
