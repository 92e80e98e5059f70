"""An account's choices: how its memories are treated when they are written.

Not here: settings of the relayer (`settings.py`), storing these (`database.accounts`).

- Stored in clear, so nothing here may hold a word of a memory.
"""

from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

HOURS_MAX: Final = 24 * 365
CHOICES_MAX: Final = 256  # kept parsed: every request has its account's, and most are alike
Hours = Annotated[int, Meta(ge=0, le=HOURS_MAX)]


class AccountSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An account's own settings, each with the value it has until an owner chooses.

    Attributes:
        redact: replace secrets in texts before anything else happens to them.
        contradictions: what becomes of a memory that a newer fact speaks against: it is superseded
            by it, or both stay until somebody has looked.
        low_confidence: whether facts of low confidence are kept at once or wait to be approved.
        keep_turns: keep analyzed conversations sealed, so that they can be analyzed again.
        count_recalls: count how often each memory is recalled, and note the last day.
        consolidate_every_h: hours between two consolidations; 0 for none by schedule.
    """

    redact: bool = True
    contradictions: Literal["newer_wins", "review"] = "newer_wins"
    low_confidence: Literal["keep", "review"] = "keep"
    keep_turns: bool = False
    count_recalls: bool = False
    consolidate_every_h: Hours = 0


DEFAULTS = AccountSettings()


@lru_cache(CHOICES_MAX)
def parse_settings(stored: str) -> AccountSettings:
    """Return the settings that a row holds; members of a later release are passed over.

    One that is out of its bounds counts as not chosen: a row may hold what no request could store.
    """
    try:
        return msgspec.json.decode(stored, type=AccountSettings)
    except msgspec.ValidationError:
        members = msgspec.json.decode(stored, type=dict[str, Any])
        sound = {name: value for name, value in members.items() if _is_sound(name, value)}
        return msgspec.convert(sound, AccountSettings)


def _is_sound(name: str, value: Any) -> bool:
    try:
        msgspec.convert({name: value}, AccountSettings)
    except msgspec.ValidationError:
        return False
    return True
