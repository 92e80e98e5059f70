"""Conversations with a relayer, what its model finds in them, and what an account chooses."""

import json
import uuid
from typing import Any

from relayer.journal.states import Change
from relayer.memories.conversations import Analyzed, Conversation
from relayer.memories.opener import Caller
from relayer.preferences import AccountSettings
from relayer.record import State
from tests.openai_server import Step
from tests.services import TEAM, Bench, lasting

BERLIN, MUNICH = "The user lives in Berlin.", "The user lives in Munich now."
OSLO = "The user lives in Oslo."
AWAY = Step(status=401)
TALK = "1. I prefer window seats on trains.\n\n2. We decided to move the launch to May."


def facts(*texts: str, **members: Any) -> Step:
    """A model's answer with these facts."""
    every = {"said_by": "user", "kind": "fact", "importance": "standard", "confidence": "high"}
    return Step(content=json.dumps({"facts": [{"text": t, **every, **members} for t in texts]}))


async def choose(bench: Bench, caller: Caller, **settings: Any) -> Caller:
    """The caller of a later request, after the account has chosen."""
    await bench.storage.accounts.choose(caller.access, AccountSettings(**settings))
    access = await bench.storage.accounts.access(caller.access.account, caller.access.key)
    assert access is not None
    return Caller(lasting(access, bench.clock), caller.keys)


async def analyze(bench: Bench, caller: Caller, text: str, **members: Any) -> Analyzed:
    asked = Conversation(**{"text": text, "namespace": TEAM, **members})
    return await bench.services.analysis.analyze(caller, asked)


async def change(
    bench: Bench, caller: Caller, memory: uuid.UUID, **changes: Any
) -> tuple[State, bytes | None]:
    wanted = Change(**changes)  # type: ignore[typeddict-item]  # any of them
    return await bench.services.state_changer.set_state(caller.access, memory, wanted)


async def state(bench: Bench, caller: Caller, memory: uuid.UUID) -> State:
    return (await bench.services.memory.get(caller, memory)).state


async def waiting(bench: Bench, caller: Caller) -> list[Any]:
    reviewer = bench.services.reviewer
    return await reviewer.list_doubtful(caller, [TEAM], before_seq=2**62, limit=50)
