"""Those who edit memories, and what they are refused."""

import uuid
from typing import Any

import pytest

from relayer.errors import (
    RelayerError,
)
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit, Edited
from tests.services import OTHER, TEAM, Bench

CUSTODIES = pytest.mark.parametrize("custody", ["managed", "sealed"])
TEA, COFFEE = "Anna prefers green tea.", "Anna prefers black coffee."


async def writer(bench: Bench, custody: str = "managed") -> Caller:
    """A founder, with the keys of both namespaces."""
    founder = await bench.account(custody)
    if custody == "managed":
        return await bench.caller(founder)
    return await bench.unlocked(founder, TEAM, OTHER)


async def edit(bench: Bench, caller: Caller, memory: uuid.UUID, **members: Any) -> Edited:
    options = {n: members.pop(n) for n in ("revision", "idempotency_key") if n in members}
    return await bench.services.reviser.edit(caller, memory, Edit(changes=members, **options))


async def refused(code: str, awaitable: Any) -> None:
    with pytest.raises(RelayerError) as caught:
        await awaitable
    assert caught.value.code == code
