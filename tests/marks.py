"""Words that occur nowhere else, and the search for them in every form a careless program uses.

Not here: where they are sent and what is searched (`test_secrecy.py`).
"""

import base64
import hashlib
import json
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np


def marked(what: str) -> str:
    """A word that occurs nowhere else."""
    return f"zq{what.replace(' ', '')}{uuid.uuid4().hex[:12]}"


def spellings(secret: str | bytes) -> Iterator[bytes]:
    """A secret, backwards, in hex, base64 at every offset, JSON's and URLs' escapes, and hashed."""
    raw = secret if isinstance(secret, bytes) else secret.encode()
    yield from (raw, raw.hex().encode(), raw.hex().upper().encode(), raw[::-1])
    if isinstance(secret, str):
        yield from (raw.title(), raw.upper(), secret.encode("utf-16-le"))
        yield "".join(f"\\u{ord(c):04x}" for c in secret).encode()
        yield "".join(f"%{b:02X}" for b in raw).encode()
        yield from (json.dumps(secret)[1:-1].encode(), urllib.parse.quote(secret).encode())
    for offset in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"x" * offset + raw)[4 if offset else 0 : -4]
    for algorithm in (hashlib.sha256, hashlib.sha512, hashlib.md5, hashlib.sha1, hashlib.blake2b):
        yield from _written(algorithm(raw).digest())
    yield from _written(hashlib.blake2b(raw, digest_size=32).digest())
    yield from _written(hashlib.blake2b(raw, digest_size=16).digest())


def _written(digest: bytes) -> Iterator[bytes]:
    yield from (digest, digest.hex().encode(), base64.b64encode(digest).rstrip(b"="))
    yield base64.urlsafe_b64encode(digest).rstrip(b"=")


class Search:
    """Looks for every spelling of every secret at once; `secrets` by name."""

    def __init__(self, secrets: Mapping[str, str | bytes]) -> None:
        self._by_start: dict[bytes, list[tuple[str, bytes]]] = {}
        # Which pairs of bytes a spelling can have first, and second: most of a file has neither.
        self._first, self._second = np.zeros(2**16, bool), np.zeros(2**16, bool)
        for name, secret in secrets.items():
            for needle in set(spellings(secret)):
                self._by_start.setdefault(needle[:4], []).append((name, needle))
                first, second = np.frombuffer(needle[:4], "<u2")
                self._first[first] = self._second[second] = True

    def told(self, text: str | bytes) -> list[str]:
        """Names of the secrets that a text has."""
        data = text if isinstance(text, bytes) else text.encode()
        octets = np.frombuffer(data, np.uint8).astype(np.uint16)
        pairs = octets[:-1] | octets[1:] << 8
        starts = np.flatnonzero(self._first[pairs[:-2]] & self._second[pairs[2:]])
        return sorted(
            {
                name
                for at in starts.tolist()
                for name, needle in self._by_start.get(data[at : at + 4], ())
                if data.startswith(needle, at)
            }
        )

    def leaks(self, folder: Path, meant: Iterable[Path] = ()) -> list[str]:
        """Which secrets stand in which files; `meant` are files to hold them."""
        passed = set(meant)
        found = []
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p not in passed):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue  # a running database removes files; the search after its end has them all
            found += [f"{name} in {path.relative_to(folder)}" for name in self.told(data)]
        return found
