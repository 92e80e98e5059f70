"""What an archive or the relayer that it comes from may say, and what harms nobody here."""

from typing import Any

import msgspec
import pytest

from relayer.moved import MovedAccount
from relayer.preferences import HOURS_MAX
from tests.services import Bench
from tests.test_moving import everything


@pytest.mark.parametrize("hours", [-1, HOURS_MAX + 1, 2**40])
async def test_settings_come_within_their_bounds(bench: Bench, hours: int) -> None:
    caller = await bench.caller(await bench.account())
    [account] = await everything(bench, caller, "account")
    said: dict[str, Any] = msgspec.to_builtins(account)
    assert msgspec.convert(said, MovedAccount) == account
    said["settings"]["consolidate_every_h"] = hours
    with pytest.raises(msgspec.ValidationError, match=r"settings\.consolidate_every_h"):
        msgspec.convert(said, MovedAccount)
