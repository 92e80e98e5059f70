"""Signed requests as bytes, made before the clock runs.

Not here: sending them (`load.py`).

- A signed request is good for one use, and for five minutes; so is the header with the keys, which
  is therefore made anew in time.
"""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import uuid4

from bench.running import Account, Process, Site
from memrelay.sealed.keys import Identity, NamespaceKey
from memrelay.sealed.unlock import Unlock, build_unlock
from memrelay.signing import make_signed_text
from relayer.sealed.keys import account_text

UNLOCK_S_MAX: Final = 120.0
HOLD_S: Final = 300


class Presigner:
    """Makes requests of one account's founder to one relayer, with the keys of some namespaces."""

    def __init__(
        self,
        account: Account,
        namespaces: Iterable[str],
        *,
        relayer: bytes,
        unlock_keys: Sequence[bytes],
    ) -> None:
        self._account_id = account_text(account.id)
        self._account = account.id
        self._founder = Identity(bytes(account.founder.seed))
        self._keys = tuple(
            NamespaceKey(bytes(key.key), key.epoch, key.namespace)
            for key in map(account.key, namespaces)
        )
        self._relayer = relayer
        self._unlock_keys = unlock_keys
        self._unlock, self._unlock_s = "", -UNLOCK_S_MAX

    def request(self, method: str, target: str, body: dict[str, Any] | None = None) -> bytes:
        """One request, complete."""
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        timestamp_s, nonce = int(time.time()), str(uuid4())
        text = make_signed_text(
            timestamp_s=timestamp_s,
            method=method,
            target=target,
            body=content,
            nonce=nonce,
            account_id=self._account_id,
        )
        headers = {
            "host": "127.0.0.1",
            "content-type": "application/json",
            "content-length": str(len(content)),
            "x-public-key": self._founder.public_key.hex(),
            "x-signature": self._founder.sign(text).hex(),
            "x-timestamp": str(timestamp_s),
            "x-nonce": nonce,
            "x-account-id": self._account_id,
            "x-memrelay-unlock": self._header(),
        }
        lines = [f"{method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + content

    def _header(self) -> str:
        now_s = time.time()
        if now_s - self._unlock_s >= UNLOCK_S_MAX:
            unlock = Unlock(
                relayer=self._relayer,
                account=self._account,
                sender=self._founder.public_key,
                issued_ms=int(1000 * now_s),
                hold_s=HOLD_S,
                keys=self._keys,
            )
            self._unlock = build_unlock(self._founder, unlock, self._unlock_keys)
            self._unlock_s = now_s
        return self._unlock


async def presigner(
    site: Site, process: Process, account: Account, namespaces: Iterable[str]
) -> Presigner:
    """Makes requests to this relayer, which is asked for what keys are sent under."""
    async with site.client(process, account) as client:
        statement = await client.statement()
    return Presigner(
        account,
        namespaces,
        relayer=statement.relayer,
        unlock_keys=statement.live_keys(int(1000 * time.time())),
    )
