"""Secrets in text, recognised by the shape of the value alone and replaced by typed marks.

It does not own the decision what to do with a text that held secrets, and it does not look at the
words around a value: "my password is swordfish" passes. This is a net for what gets pasted by
accident, not a promise.

- Every pattern starts at a boundary and has no nested repetition, so time is linear in the text.
- A mark holds no part of the secret, and redacting twice changes nothing more.
- Identifiers that are not secrets stay: UUIDs, hashes, ticket, order and phone numbers.
"""

import re
from collections import Counter
from typing import Final

# A token starts where no letter, digit or dash of a longer word stands before it. This also keeps
# each pattern linear: inside one run of token characters only one position can be its start.
_START: Final = r"(?<![A-Za-z0-9_-])"
_END: Final = r"(?![A-Za-z0-9_-])"

_TOKENS: Final = tuple(
    (kind, re.compile(_START + pattern))
    for kind, pattern in (
        ("aws-key", r"(?:AKIA|ASIA)[A-Z2-7]{16}" + _END),
        ("github-token", r"(?:gh[opsur]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})"),
        ("gitlab-token", r"gl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,}"),
        ("slack-token", r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
        ("stripe-key", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
        ("google-key", r"AIza[A-Za-z0-9_-]{35}" + _END),
        # The digit tells a key from a hyphenated name.
        ("api-key", r"sk-(?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{20,}"),
        ("huggingface-token", r"hf_[A-Za-z0-9]{30,}"),
        ("npm-token", r"npm_[A-Za-z0-9]{36}" + _END),
        ("pypi-token", r"pypi-AgE[A-Za-z0-9_-]{50,}"),
        ("age-key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}" + _END),
        ("sui-key", r"suiprivkey1[a-z0-9]{50,80}" + _END),
        ("jwt", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}"),
    )
)

_PRIVATE_KEY_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PRIVATE_KEY_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_ARMOUR: Final = re.compile(r"(?:\s+[A-Za-z0-9+/=]{16,})*")

_URL_PASSWORD: Final = re.compile(r"(?<=://)([^\s/:@?#]{0,128}:)(?!\[redacted:)[^\s/@]{1,256}(?=@)")

# Unbroken or in the groups printed on cards; digits joined to anything else are other numbers.
_CARD: Final = re.compile(
    r"(?<![\w.,/+-])(?:\d{14,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{4}|\d{4}([ -])\d{6}\2\d{4,5})"
    r"(?![\w/-]|[.,]\d)",
    re.ASCII,
)
_CARD_RANGES: Final = (  # first digits from, to, lengths
    ("34", "34", {15}),
    ("37", "37", {15}),
    ("300", "305", {14}),
    ("36", "36", {14}),
    ("38", "39", {14}),
    ("3528", "3589", {16}),
    ("4", "4", {16, 19}),
    ("51", "55", {16}),
    ("2221", "2720", {16}),
    ("6011", "6011", {16, 19}),
    ("622126", "622925", {16, 17, 18, 19}),
    ("644", "649", {16, 19}),
    ("65", "65", {16, 19}),
)


def redact(text: str) -> tuple[str, dict[str, int]]:
    """Return `text` with a mark like `[redacted:aws-key]` for each secret, and counts by type."""
    found: Counter[str] = Counter()
    text = _without_private_keys(text, found)
    text, found["url-password"] = _URL_PASSWORD.subn(r"\1[redacted:url-password]", text)
    for kind, pattern in _TOKENS:
        text, found[kind] = pattern.subn(f"[redacted:{kind}]", text)

    def card(match: re.Match[str]) -> str:
        if not _is_card(re.sub("[ -]", "", match.group())):
            return match.group()
        found["card-number"] += 1
        return "[redacted:card-number]"

    text = _CARD.sub(card, text)
    return text, {kind: count for kind, count in found.items() if count}


def _without_private_keys(text: str, found: Counter[str]) -> str:
    """Return `text` without PEM blocks; a block that was cut off ends with its last base64 line."""
    kept: list[str] = []
    position = 0
    end: re.Match[str] | None = None
    ends_left = True
    while begin := _PRIVATE_KEY_BEGIN.search(text, position):
        kept.append(text[position : begin.start()])
        if ends_left:
            end = _PRIVATE_KEY_END.search(text, begin.end())
            ends_left = end is not None  # without this, many cut blocks would cost n² searches
        stop = end.end() if ends_left and end else _armour_end(text, begin.end())
        kept.append("[redacted:private-key]")
        found["private-key"] += 1
        position = stop
    kept.append(text[position:])
    return "".join(kept)


def _armour_end(text: str, position: int) -> int:
    match = _ARMOUR.match(text, position)
    return match.end() if match else position


def _is_card(digits: str) -> bool:
    """Tell whether `digits` has an issuer's prefix with its length and a right Luhn digit."""
    return _luhn(digits) and any(
        first <= digits[: len(first)] <= last and len(digits) in lengths
        for first, last, lengths in _CARD_RANGES
    )


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0
