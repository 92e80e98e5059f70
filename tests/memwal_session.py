"""A session header as MemWal's own clients make it."""

import base64
import json
from typing import Any

from memwal import utils as memwal

from relayer.http import sui
from relayer.sealed.keys import Identity

IDENTITY = Identity(bytes(range(32)))
NOW_MS = 1_777_887_000_123


def session(identity: Identity = IDENTITY, **changes: Any) -> str:
    """A session header as the real client makes it, some members changed or (None) left out."""
    ephemeral = Identity(bytes(32))
    created_ms = changes.get("creationTimeMs", NOW_MS)
    package = changes.get("packageId", sui.PACKAGE_ID)
    message = memwal.build_seal_session_personal_message(
        package_id=package,
        ttl_min=5,
        creation_time_ms=created_ms if isinstance(created_ms, int) else NOW_MS,
        session_public_key_bytes=ephemeral.public_key,
    )
    members = {
        "address": memwal.delegate_key_to_sui_address(identity.seed.hex()),
        "packageId": package,
        "mvrName": None,
        "creationTimeMs": created_ms,
        "ttlMin": 5,
        "personalMessageSignature": memwal.sign_sui_personal_message(
            message, memwal.build_signing_key(identity.seed.hex())
        ),
        "sessionKey": memwal.encode_sui_private_key(ephemeral.seed),
    } | changes
    kept = {k: v for k, v in members.items() if k == "mvrName" or v is not None}
    return base64.b64encode(json.dumps(kept).encode()).decode()
