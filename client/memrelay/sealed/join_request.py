"""The request of a new key to be let in: made where the key stays, carried as text, read by owners.

It does not own what the key is granted (`grants.py`) or the proof of joining (`objects.py`).

- It holds nothing secret, and no private key.
- The new key signs all of it: whoever alters a byte, or has not that key, is noticed.
- The text is base32, since chats take other characters for marks; white space in it means nothing.

Source: SPEC.md §4.2.
"""

import base64
import hashlib
import re
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from memrelay.errors import Invalid
from memrelay.sealed.keys import Identity, public_key_bytes
from memrelay.sealed.objects import (
    SIGNATURE_BYTES,
    join_payload,
    sign_join,
    verify_signature,
    write_json,
)

PREFIX = "memrelay-join:"
LABEL_BYTES_MAX = 64
TEXT_CHARACTERS_MAX = 1024 * 1024
CLOCK_SKEW_MS_MAX = 600_000

_VERSION = 1
# version, bytes of all, relayer, recipient, created, expires, bytes of the account (0 or 32), bytes
# of the label; account, label and two signatures follow
_HEAD = struct.Struct(">BH32s32sQQBB")
_ACCOUNT_BYTES = 32
_TAIL_BYTES = 2 * SIGNATURE_BYTES
_BYTES_MAX = _HEAD.size + _ACCOUNT_BYTES + LABEL_BYTES_MAX + _TAIL_BYTES
_LENGTH_CHARACTERS = 8  # in which version and length stand: 5 bytes
# What wrapping, quoting and marking put between the characters of a text.
_MEANINGLESS = re.compile(r"[\s>|\"'`*_=\u00ad\u200b-\u200f\u2060\ufeff]+")
_BASE32 = re.compile(r"[a-z2-7]*")


@dataclass(frozen=True, kw_only=True)
class JoinRequest:
    """A verified request; `account` is None if its maker did not know which one admits it."""

    relayer: bytes
    recipient: bytes
    account: bytes | None
    created_ms: int
    expires_ms: int
    label: str
    join: bytes

    def check(self, *, relayers: Collection[bytes], account: bytes, now_ms: int) -> None:
        """Check that it is for this account at one of a relayer's keys, and of this time.

        Raises:
            Invalid: `request.relayer`, `request.account`, `request.stale` or `request.early`.
        """
        if self.relayer not in relayers:
            raise Invalid(
                "request.relayer",
                f"{self} was made for another relayer, with the key {self.relayer.hex()}. "
                "Have `memrelay join` run with this relayer's address.",
            )
        if self.account not in {None, account}:
            raise Invalid("request.account", f"{self} was made for another account than yours.")
        if self.expires_ms <= now_ms:
            raise Invalid(
                "request.stale", f"{self} is stale: have `memrelay join` run again for a new one."
            )
        if self.created_ms > now_ms + CLOCK_SKEW_MS_MAX:
            raise Invalid(
                "request.early",
                f"{self} was made in the future: compare the clocks of both machines.",
            )

    def __str__(self) -> str:
        return f"The request of {make_fingerprint(self.recipient)}"


def make_fingerprint(public: bytes) -> str:
    """Return 80 bits of a hash of a public key or account id, in four groups for people."""
    digest = hashlib.blake2b(b"memrelay/fingerprint/v1\0" + public, digest_size=10).digest()
    text = _encode(digest)
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def write_request(
    identity: Identity,
    *,
    relayer: bytes,
    account: bytes | None,
    created_ms: int,
    expires_ms: int,
    label: str,
) -> str:
    """Return the text of a new request of `identity`; a longer label is cut to 64 bytes."""
    name = label.encode()[:LABEL_BYTES_MAX].decode(errors="ignore").encode()
    join = sign_join(identity, account=account, issuer=None, relayer=relayer)
    rest = (account or b"") + name + join[-SIGNATURE_BYTES:]
    head = _HEAD.pack(
        _VERSION,
        _HEAD.size + len(rest) + SIGNATURE_BYTES,
        relayer,
        identity.public_key,
        created_ms,
        expires_ms,
        len(account or b""),
        len(name),
    )
    signed = head + rest
    return PREFIX + _encode(signed + identity.sign(_make_signed_text(signed)))


def read_requests(text: str) -> list[JoinRequest]:
    """Return the requests that a text holds, in its order; it may be wrapped and quoted.

    Raises:
        Invalid: `request.none`, `request.long`; for one of them, `request.cut`, `request.version`
            or `request.altered`.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise Invalid("request.long", "That is too long: requests are read up to a MiB of text.")
    parts = _MEANINGLESS.sub("", text).lower().split(PREFIX)[1:]
    if not parts:
        raise Invalid(
            "request.none",
            f"There is no request in that: one begins with {PREFIX} and is copied from there on.",
        )
    return list(_read_all(parts))


def _read_all(parts: list[str]) -> Iterator[JoinRequest]:
    for number, part in enumerate(parts, 1):
        try:
            yield _read(_decode(part))
        except Invalid as error:
            which = "The request" if len(parts) == 1 else f"Request {number} of {len(parts)}"
            raise Invalid(error.code, f"{which} {error}") from None


def _decode(part: str) -> bytes:
    found = _BASE32.match(part)
    run = found[0] if found else ""
    if len(run) < _LENGTH_CHARACTERS:
        raise Invalid("request.cut", "was cut right behind its beginning: copy all of it.")
    version, size = struct.unpack(">BH", base64.b32decode(run[:_LENGTH_CHARACTERS].upper())[:3])
    if version != _VERSION:
        raise Invalid(
            "request.version", "is of another version of memrelay, or was altered on its way."
        )
    if not _HEAD.size + _TAIL_BYTES <= size <= _BYTES_MAX:
        raise _altered()
    count = -(-size * 8 // 5)
    if len(run) < count:
        if len(run) < len(part):
            raise _altered()
        raise Invalid(
            "request.cut",
            f"was cut: {len(run)} of its {count} characters came. Copy all of it.",
        )
    # What stands behind it is not its own.
    data = base64.b32decode(run[:count].upper() + "=" * (-count % 8))
    if _encode(data) != run[:count]:
        raise _altered()
    return data


def _read(data: bytes) -> JoinRequest:
    head, rest = data[: _HEAD.size], data[_HEAD.size :]
    _, _, relayer, recipient, created, expires, account_bytes, label_bytes = _HEAD.unpack(head)
    if account_bytes not in {0, _ACCOUNT_BYTES} or (
        len(rest) != account_bytes + label_bytes + _TAIL_BYTES
    ):
        raise _altered()
    wanted, rest = rest[:account_bytes] or None, rest[account_bytes:]
    label, tail = rest[:label_bytes], rest[label_bytes:]
    joined, signature = tail[:SIGNATURE_BYTES], tail[SIGNATURE_BYTES:]
    signed = data[:-SIGNATURE_BYTES]
    payload = write_json(
        {"v": 1, **join_payload(recipient, account=wanted, issuer=None, relayer=relayer)}
    )
    try:
        public_key_bytes(recipient.hex())
        verify_signature("request", signed, signature, recipient)
        verify_signature("join", payload, joined, recipient)
        name = label.decode()
    except (Invalid, UnicodeDecodeError):
        raise _altered() from None
    return JoinRequest(
        relayer=relayer,
        recipient=recipient,
        account=wanted,
        created_ms=created,
        expires_ms=expires,
        label="".join(char for char in name if char.isprintable()),
        join=payload + joined,
    )


def _altered() -> Invalid:
    return Invalid("request.altered", "was altered on its way: have it sent again.")


def _encode(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _make_signed_text(signed: bytes) -> bytes:
    return b"memrelay/request/v1\0" + signed
