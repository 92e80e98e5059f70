"""The beginning of a text that says when and by whom it was said: `[8 May 2023] Anna: `.

Not here: conversations of several messages (`extraction.labels`), what the speaker lifts (`rank`).

- A name counts behind a date, or alone where it looks like a person's; a role always does.
- The text itself begins behind a date or a role. A name without a date stays: it may be the subject
  of a note, such as `Postgres: use port 5433`.
- A text with lines of several speakers has none. Linear in the text's first characters.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from relayer.extraction.message import ROLES, is_name, role_named
from relayer.extraction.moments import STAMP, moment_of
from relayer.normalization import normalize
from relayer.query.periods import periods
from relayer.settings import Limits
from relayer.words.tokens import words

SPEAKER: Final = "speaker"  # metadata: who said a memory, in place of its heading
CHARACTERS_MAX: Final = 16_384  # looked at for other speakers
_STAMP_CHARACTERS_MAX: Final = 200
_ROLE_PREFIX: Final = "role:"  # no word of a text has a colon
_BRACKET: Final = re.compile(r"\s{0,8}[\[(【（]([^\[\]()【】（）\n]{4,40})[\])】）]:?[ \t]{0,8}")
_YEAR: Final = re.compile(r"(?<!\d)\d{4}(?!\d)")
_ROLE_WORDS: Final = "|".join(
    re.escape(role).replace("_", "[ _]") for role in sorted(ROLES, key=len, reverse=True)
)
_LABEL: Final = re.compile(
    rf"[ \t]{{0,8}}(?:\*\*)?(?P<word>{_ROLE_WORDS}"
    r"|[^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,30}){0,2})"
    r"(?: \((?P<role>user|assistant)\))?(?:\*\*)?(?::(?:\*\*)?[ \t]{1,8}|：[ \t]{0,8})",
    re.IGNORECASE,
)
_SAID_BY: Final = frozenset(["user", "assistant"])


@dataclass(frozen=True)
class Heading:
    """The time and the speaker that a text begins with.

    Attributes:
        moment: when it was said, if it says so.
        speaker: a person's name, or empty.
        role: `user`, `assistant` or empty.
        end: where the text itself begins.
    """

    moment: datetime | None = None
    speaker: str = ""
    role: str = ""
    end: int = 0


NO_HEADING: Final = Heading()


def read_heading(text: str) -> Heading:
    """Return what the beginning of `text` says of it; nothing of a text that is no more than it."""
    moment, at = _read_stamp(text)
    label = _LABEL.match(text, at)
    role = "" if label is None else (label["role"] or role_named(label["word"]) or "").casefold()
    name = "" if label is None or role_named(label["word"]) is not None else label["word"]
    if name and not (is_name(name) or (moment is not None and name.lower() == name.upper())):
        name = ""
    if label is not None and (role or (name and moment is not None)):
        at = label.end()
    if _speak_others(text, label):
        role = name = ""
    if not text[at:].strip():
        return NO_HEADING
    return Heading(moment, name, role if role in _SAID_BY else "", at)


def speaker_terms(heading: Heading, metadata: Mapping[str, str]) -> list[str]:
    """Return what a memory is found by as a speaker's: words of the name, and a role."""
    if named := metadata.get(SPEAKER):
        return terms_of_speaker(named)
    found = terms_of_speaker(heading.speaker)
    return [*found, role_term(heading.role)] if heading.role else found


def terms_of_speaker(name: str) -> list[str]:
    """Return the terms of a name; of the word for a role, in any language, the role itself."""
    if not name:
        return []
    role = role_named(name)
    if role is not None:
        return [role_term(role)] if role in _SAID_BY else []
    return list(dict.fromkeys(words(normalize("NFKC", name)[: Limits.speaker_characters_max])))


def role_term(role: str) -> str:
    """Return the term of a role."""
    return f"{_ROLE_PREFIX}{role}"


def _read_stamp(text: str) -> tuple[datetime | None, int]:
    """Return the moment that a text begins with, and where it ends; None and 0 for none."""
    stamp = STAMP.match(text[:_STAMP_CHARACTERS_MAX])
    if stamp is not None and (moment := moment_of(stamp)) is not None:
        # A date that begins a sentence is what that is about, not when it was said.
        is_apart = stamp["open"] or stamp["dash"] or stamp[0].rstrip().endswith(":")
        if is_apart or _LABEL.match(text, stamp.end()):
            return moment, stamp.end()
    bracket = _BRACKET.match(text)
    if bracket is None or not _YEAR.search(bracket[1]):
        return None, 0
    named = periods(bracket[1], datetime(2000, 1, 1, tzinfo=UTC))
    if len(named) != 1 or named[0][1] - named[0][0] != timedelta(days=1):
        return None, 0
    return named[0][0], bracket.end()


def _speak_others(text: str, first: re.Match[str] | None) -> bool:
    """Return true if a later line has the label of somebody else."""
    if first is None:
        return False
    for line in text[first.end() : CHARACTERS_MAX].split("\n")[1:]:
        label = _LABEL.match(line)
        if label is None or label["word"] == first["word"]:
            continue
        if label["role"] or role_named(label["word"]) in _SAID_BY:
            return True
    return False
