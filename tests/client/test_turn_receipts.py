"""A turn that waited and is said again: the receipts of a relayer, as a client looks at them.

Not here: receipts of a hostile relayer (`test_client_session_trust.py`).
"""

import pytest

from memrelay.errors import UntrustedRelayer
from memrelay.sealed.receipts import Receipt, RequestState, read_receipt
from relayer.clock import to_ms
from tests.openai_server import OpenAIServer
from tests.rotator import rotator
from tests.services import TEAM, Bench
from tests.talking import AWAY, MUNICH, analyze, facts
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

SAID = "1. user: I moved to Munich."


async def test_that_an_older_epoch_s_turn_is_gone_is_believed(
    thinking: Bench, server: OpenAIServer
) -> None:
    """It was sealed before the rotation, and its facts after it."""
    owner = await rotator(thinking, "managed")
    server.script(AWAY)
    await analyze(thinking, await owner.caller(), SAID)
    await owner.rotate(reseal="none")
    asked = RequestState(at_ms=to_ms(thinking.clock()), epoch=2, namespaces=frozenset({TEAM}))
    server.script(facts(MUNICH))
    analyzed = await analyze(thinking, await owner.caller(), SAID)
    receipts = [_read(thinking, owner.owner.account, signed) for signed in analyzed.receipts]
    assert [(r.epoch, r.items[0][1]) for r in receipts] == [(1, 0), (2, 1)]
    for receipt in receipts:
        asked.check(receipt)
    late = RequestState(at_ms=asked.at_ms, epoch=3, namespaces=asked.namespaces)
    late.check(receipts[0])
    with pytest.raises(UntrustedRelayer, match="an epoch that is over"):
        late.check(receipts[1])


def _read(bench: Bench, account: bytes, signed: bytes) -> Receipt:
    relayer = bench.storage.identity.public_key
    return read_receipt(signed, relayer=relayer, account=account)
