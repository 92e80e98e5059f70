"""Sealed accounts for the matrix: what lends a relayer their keys, or keys that they stole.

Not here: what unlock headers must be (`tests/refusals/unlocks.py`), what is asked (`scene.py`).
"""

from collections.abc import Sequence
from typing import Final

from relayer.clock import to_ms, utc_now
from relayer.sealed.grants import open_grant
from relayer.sealed.keys import AccountId, Identity, Namespace, NamespaceKey, Root, account_text
from relayer.sealed.objects import strict_json
from relayer.sealed.primitives import to_base64
from relayer.storage import Storage
from tests.services import box_unlock
from tests.tenants.scene import Asker

UNLOCK: Final = "x-memrelay-unlock"


async def key_of(storage: Storage, asker: Asker, namespace: str) -> NamespaceKey:
    """The key of a namespace of somebody's own account."""
    chain = await storage.accounts.chain(asker.key.account)
    [root] = open_grant(chain.grants[asker.key.identity.public_key][0], asker.key.identity)
    assert isinstance(root, Root)
    return root.namespace_key(asker.key.account, Namespace(namespace))


def header(
    storage: Storage, sender: Identity, account: AccountId, keys: Sequence[NamespaceKey]
) -> str:
    """An unlock header that its sender boxed for this relayer, as good as any in its form."""
    named = strict_json(storage.custody.statement()[:-64])["unlock_keys"]
    payload = {
        "v": 1,
        "relayer": storage.identity.public_key.hex(),
        "account": account_text(account),
        "sender": sender.public_key.hex(),
        "iat": to_ms(utc_now()),
        "hold": 300,
        "keys": [{"ns": k.namespace, "epoch": k.epoch, "key": to_base64(k.key)} for k in keys],
    }
    return box_unlock(sender, named, payload)
