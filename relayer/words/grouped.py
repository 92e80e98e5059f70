"""Numbers and codes that are written in groups: of telephones, accounts, orders, thousands.

Not here: numbers without gaps (`tokens`), the ends by which a number is found as well (`forms`).

- Such a number is one word, whatever stands between its groups. The groups are words beside it.
- Dates and years are none, nor are decimal numbers, addresses of a network and rows of a table. Two
  numbers side by side look the same: they make a word that nobody asks for.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from relayer.chunks import fixed_window, substitute

_CHARACTERS_MIN, _CHARACTERS_MAX = 7, 34  # of all groups; the longest account has 34
_GROUPS_MAX: Final = 9
# Bounded, and atomic: else a number could be read in four ways in each of its groups.
_GROUP: Final = r"(?>[A-Za-z0-9]{0,3}[0-9][A-Za-z0-9]{0,11}(?![^\W_]))"
_BEFORE: Final = r"(?:(?<!\w)\(?\+|(?<![\w+/\\@'-])(?<!\d[.,:]))\(?"
_BEHIND: Final = r"(?![-_.,@/\\:+'][^\W_])"  # else it is a part of a longer name
# In full an account has groups of letters, too.
_ACCOUNT: Final = r"\b[A-Z]{2}\d\d(?:[ -][A-Z0-9]{4}){2,7}(?:[ -][A-Z0-9]{1,3})?\b"
_ACCOUNT_WHOLE: Final = re.compile(r"[a-z]{2}\d{13,32}")
_WRITTEN_MAX: Final = 512  # characters; sixteen groups of fifteen, and what parts them, are fewer
_GROUPED: Final = re.compile(
    rf"{_ACCOUNT}|{_BEFORE}{_GROUP}"
    rf"(?:(?:[ /()-]{{1,3}}{_GROUP}){{1,15}}|(?:\.{_GROUP}){{1,15}}){_BEHIND}"
)
_DIGIT: Final = re.compile("[0-9]")
_ALNUM: Final = re.compile("[a-z0-9]+")
_THOUSANDS: Final = re.compile(r"\d{1,3}(?: \d{3})+")
_OTHER: Final = re.compile(
    r"(?:19|20)\d\d(?:[ /-](?:19|20)\d\d)+|\d+\.\d+|\d{1,3}(?:\.\d{3})+|\d{1,3}(?:\.\d{1,3}){3}"
)
_DATE: Final = re.compile(r"(?<!\d)(?:\d{4}([-/.])\d\d?\1\d\d?|\d\d?([-/.])\d\d?\2\d{4})(?!\d)")
_TRUNK: Final = "(0)"  # to be dialled at home only: +49 (0)30 …


@dataclass(frozen=True, slots=True)
class GroupedNumber:
    """A number without what parts its groups, and these, case-folded."""

    whole: str
    groups: Sequence[str]


def take_out_numbers(text: str) -> tuple[str, list[GroupedNumber]]:
    """Return a text without its numbers in groups, and these numbers."""
    if not _DIGIT.search(text):
        return text, []
    found: list[GroupedNumber] = []

    def take(match: re.Match[str]) -> str:
        groups = _ALNUM.findall(match[0].replace(_TRUNK, " ").casefold())
        if not _is_one(match[0], groups):
            return match[0]
        found.append(GroupedNumber("".join(groups), groups))
        return " "

    return substitute(_GROUPED, take, text, fixed_window(_WRITTEN_MAX)), found


def _is_one(written: str, groups: Sequence[str]) -> bool:
    whole = "".join(groups)
    if _THOUSANDS.fullmatch(written):
        return True
    # Years, a decimal number, thousands in points: each is told apart by itself.
    if _OTHER.fullmatch(written) or _DATE.search(written) or len(groups) > _GROUPS_MAX:
        return False
    # With letters it is a name with hyphens or dots, or several words, unless it is in capitals.
    is_code = " " in written and written == written.upper()
    is_one = whole.isdecimal() or is_code or _ACCOUNT_WHOLE.fullmatch(whole) is not None
    return is_one and _CHARACTERS_MIN <= len(whole) <= _CHARACTERS_MAX
