"""A recovery key on paper: an owner's seed in four lines that a person can copy, each with a check.

It does not own what the key is granted (`operations/keyholders.py`) or how it is asked for
(`commands/`).

- Each line ends in a check of its own, so that a slip of the pen is found where it was made. The
  check also covers the account: a key of another one is told before anything is sent.

Source: SPEC.md §16.
"""

from collections.abc import Sequence

from memrelay.errors import ConfigError
from memrelay.sealed.keys import Identity, exact, mac

LINES = 4
_LINE_BYTES, _CHECK_BYTES, _GROUP_DIGITS = 8, 2, 4


def recovery_lines(identity: Identity, account: bytes) -> list[str]:
    """Return a recovery key: lines of four groups of four digits each, and a fifth, the check."""
    seed = bytes.fromhex(identity.seed_hex())
    parts = [seed[at : at + _LINE_BYTES] for at in range(0, len(seed), _LINE_BYTES)]
    return [_line(number, part, account) for number, part in enumerate(parts, 1)]


def recover_identity(text: str, account: bytes) -> Identity:
    """Return the identity of a recovery key as it was typed: spaces and case do not matter.

    Raises:
        ConfigError: it has other than 80 digits, or a line does not match its check; the message
            names the line and repeats nothing of it.
    """
    digits = "".join(text.replace("-", "").split()).lower()
    width = 2 * (_LINE_BYTES + _CHECK_BYTES)
    if len(digits) != LINES * width or set(digits) - set("0123456789abcdef"):
        raise ConfigError(f"A recovery key has {LINES} lines of 5 groups of 4 digits 0-9, a-f.")
    lines = [bytes.fromhex(digits[at : at + width]) for at in range(0, len(digits), width)]
    wrong = [
        number
        for number, line in enumerate(lines, 1)
        if line[_LINE_BYTES:] != _check(number, line[:_LINE_BYTES], account)
    ]
    if wrong:
        raise ConfigError(_complaint(wrong))
    return Identity(b"".join(line[:_LINE_BYTES] for line in lines))


def _line(number: int, part: bytes, account: bytes) -> str:
    digits = (part + _check(number, part, account)).hex()
    return " ".join(digits[at : at + _GROUP_DIGITS] for at in range(0, len(digits), _GROUP_DIGITS))


def _check(number: int, part: bytes, account: bytes) -> bytes:
    return mac(_CHECK_BYTES, exact(account, 32, "account id"), "recovery", bytes([number]), part)


def _complaint(wrong: Sequence[int]) -> str:
    if len(wrong) == LINES:
        return "This recovery key is of another account, or mistyped in every line."
    named = " and ".join(f"line {number}" for number in wrong)
    return f"The recovery key is mistyped in {named}; nothing was sent."
