"""Finds whole ids by their beginnings, as lists show them.

It does not own showing them (`tables.py`). A relayer's word counts only for ids that begin so.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from memrelay.commands.tables import ID_DIGITS_MIN
from memrelay.errors import ConfigError, ServerError
from memrelay.sync_client import SyncMemoryClient

ID_HELP = "the memory's id, or 8 and more digits of its beginning"
IDS_HELP = "the memories' ids, or 8 and more digits of their beginnings"
_ID_DIGITS = 32
_NAMED_MAX = 10


def find_id(client: SyncMemoryClient, given: str) -> str:
    """Return the id of the memory that is meant; as of `find_ids`."""
    [found] = find_ids(client, [given])
    return found


def find_ids(client: SyncMemoryClient, given: Sequence[str]) -> list[str]:
    """Return the ids of memories that are meant; what begins none, and what is no id, as it is.

    Raises:
        ConfigError: one begins several ids, or is too short.
    """
    short = [text for text in dict.fromkeys(given) if _is_beginning(text)]
    matches: dict[str, str] = {}
    if short:
        for one in client.status(short):
            _check_matches(one.id, one.matches or ())
            matches[one.id] = _choose(one.id, one.matches or (), "memories")
    return [matches.get(text, text) for text in given]


def find_among(given: str, list_ids: Callable[[], Iterable[str]], noun: str) -> str:
    """Return which of some ids is meant; what begins none of them, and a whole one, as it is.

    Raises:
        ConfigError: it begins several, or is too short.
    """
    if not _is_beginning(given):
        return given
    digits = _digits(given)
    return _choose(given, [one for one in list_ids() if _digits(one).startswith(digits)], noun)


def _choose(given: str, matches: Sequence[str], noun: str) -> str:
    if len(matches) > 1:
        more = " …" if len(matches) >= _NAMED_MAX else ""
        named = ", ".join(matches[:_NAMED_MAX])
        raise ConfigError(f"{given} begins the ids of several {noun}; give more of {named}{more}")
    return matches[0] if matches else given


def _is_beginning(text: str) -> bool:
    digits = _digits(text)
    if re.fullmatch(r"[0-9a-f]{1,31}", digits) is None:
        return False
    if len(digits) < ID_DIGITS_MIN:
        raise ConfigError(f"{text} is too short; give {ID_DIGITS_MIN} digits of the id, or more.")
    return len(digits) < _ID_DIGITS


def _digits(text: str) -> str:
    return text.replace("-", "").lower()


def _check_matches(given: str, matches: Iterable[str]) -> None:
    # What is about to be erased must be what was named.
    if not all(_digits(one).startswith(_digits(given)) for one in matches):
        raise ServerError(
            f"The relayer named ids that do not begin with {given}.",
            status=200,
            code="answer.malformed",
        )
