"""Addresses of webhooks: what is taken means the same to another reader of URLs."""

from collections.abc import Iterator
from typing import get_args
from urllib.parse import urlsplit

from relayer.errors import BadRequest
from relayer.events import egress
from tests.fuzz.loop import Parser

WORDS = (
    *(
        b"https://",
        b"http://",
        b"@",
        b":443",
        b":65536",
        b"[::1]",
        b"[::ffff:127.0.0.1]",
        b"#",
        b"\\",
    ),
    *(b"127.0.0.1", b"0x7f.1", b"localhost", b"169.254.169.254", b"%2e", b"..", b"//", b"?", b"\t"),
    *(
        "ａ".encode(),
        "。".encode(),
        b"xn--",
        b"[fe80::1%25eth0]",
        b"64:ff9b::7f00:1",
        b"017700000001",
    ),
)


def _url(data: bytes) -> None:
    text = data.decode(errors="replace")
    for reach in get_args(egress.Reach):
        try:
            target = egress.parse_target(text, reach)
        except BadRequest:
            continue
        read = urlsplit(text)
        assert reach != "none"
        assert (read.scheme, read.hostname) == (target.scheme, target.host)
        assert (read.port or {"https": 443, "http": 80}[read.scheme]) == target.port
        assert read.username is None
        assert not read.fragment
        assert text.isascii()


def _seeds() -> Iterator[bytes]:
    yield b"https://hooks.example/a?b=c"
    yield b"https://[2606:4700::1111]:8443/x"
    yield b"http://10.0.0.1/"
    yield from (b"https://" + word for word in WORDS)


PARSER = Parser((egress,), _seeds, _url, WORDS)
