"""Requests whose framing, target, method or media type is a trick; signed where they can be.

Not here: signing headers (`signatures.py`), what a body says (`documents.py`).
"""

import gzip
import zlib
from collections.abc import Callable

from relayer.settings import Limits
from tests.refusals.case import CANARY, HTTP, NO_ANSWER, Builder, Case, Cut, Signed, message
from tests.refusals.world import World

SEEN, RECALL = "GET /v1/keys", "POST /v1/recall"
TOO_LARGE = (413, "request.too_large")
REJECTED = (401, "auth.rejected")
BROKEN = (400, HTTP)
ABSENT = (404, "route.unknown")
UNCLEAR = (400, "request.invalid", "Send one Host header")


def _case(
    name: str,
    build: Builder,
    answer: tuple[int, str] | tuple[int, str, str],
    route: str = SEEN,
) -> Case:
    return Case(f"transport/{name}", route, build, *answer)


def _raw(change: Callable[[bytes], bytes], *, answer: type[bytes] = bytes) -> Builder:
    """A signed POST whose bytes are changed."""
    return lambda w: answer(change(w.asked().sent()))


def _length(raw: bytes, said: bytes) -> bytes:
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = [b"content-length: " + said if li.startswith(b"content-length") else li
             for li in head.split(b"\r\n")]  # fmt: skip
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _body_length(raw: bytes) -> int:
    return len(raw.partition(b"\r\n\r\n")[2])


def lengths() -> list[Case]:
    """Bodies that lie about their length, or have two."""

    def said(form: Callable[[int], str], *, cut: bool = False) -> Builder:
        return _raw(lambda raw: _length(raw, form(_body_length(raw)).encode()),
                    answer=Cut if cut else bytes)  # fmt: skip

    def also(line: bytes) -> Builder:
        return lambda w: w.asked().sent(lines=[line])

    def chunked(
        change: Callable[[bytes], bytes], cut: bool = False, coding: bytes = b"chunked"
    ) -> Builder:
        def build(w: World) -> bytes:
            request = w.asked()
            lines = [b"%s: %s" % (k.encode(), v.encode()) for k, v in request.headers.items()]
            lines += [b"transfer-encoding: chunked", b"content-type: application/json"]
            head = message(request.method, request.target, b"", lines, bare=True)
            raw = head.replace(b"chunked", coding) + change(
                b"%x\r\n%s\r\n0\r\n\r\n" % (len(request.body), request.body)
            )
            return Cut(raw) if cut else raw

        return build

    def coded(coding: bytes) -> Builder:
        return chunked(bytes, coding=coding)

    def endless(w: World) -> bytes:
        piece = b"10000\r\n" + b"A" * 65536 + b"\r\n"
        request = w.asked()
        formed = [f"{name}: {value}".encode() for name, value in request.headers.items()]
        lines = [b"transfer-encoding: chunked", *formed]
        return message("POST", "/v1/recall", b"", lines, bare=True) + piece * 40

    large = Limits.body_bytes_max + 1
    return [
        _case("length-longer-than-the-body", said(lambda n: str(n + 1), cut=True),
              (0, NO_ANSWER), RECALL),
        _case("length-shorter-than-the-body", said(lambda n: str(n - 1)), REJECTED, RECALL),
        _case("length-zero-with-a-body", said(lambda n: "0"), REJECTED, RECALL),
        _case("length-negative", said(lambda n: f"-{n}"), BROKEN, RECALL),
        _case("length-signed", said(lambda n: f"+{n}"), BROKEN, RECALL),
        _case("length-hexadecimal", said(hex), BROKEN, RECALL),
        _case("length-float", said(lambda n: f"{n}.0"), BROKEN, RECALL),
        _case("length-list", said(lambda n: f"{n}, {n}"), BROKEN, RECALL),
        _case("length-empty", said(lambda n: ""), BROKEN, RECALL),
        _case("length-beyond-64-bits", said(lambda n: "9" * 30), BROKEN, RECALL),
        _case("length-text", said(lambda n: CANARY), BROKEN, RECALL),
        _case("length-twice", also(b"content-length: 5"), BROKEN, RECALL),
        _case("length-and-chunked", also(b"transfer-encoding: chunked"), BROKEN, RECALL),
        _case("length-over-the-limit", said(lambda n: str(large)), TOO_LARGE, RECALL),
        _case("body-one-byte-over-the-limit",
              lambda w: w.asked(body=b"a" * large).sent(), TOO_LARGE, RECALL),
        _case("chunks-over-the-limit", endless, TOO_LARGE, RECALL),
        _case("chunk-size-not-hex", chunked(lambda b: b"z" + b), BROKEN, RECALL),
        _case("chunk-size-negative", chunked(lambda b: b"-" + b), BROKEN, RECALL),
        _case("chunk-size-beyond-64-bits", chunked(lambda b: b"f" * 20 + b), BROKEN, RECALL),
        _case("chunk-shorter-than-said", chunked(lambda b: b"1" + b, cut=True),
              (0, NO_ANSWER), RECALL),
        _case("chunk-longer-than-said", chunked(lambda b: b.replace(b"\r\n", b"\r\nxx", 1)),
              BROKEN, RECALL),
        _case("chunks-without-an-end", chunked(lambda b: b[:-5], cut=True), (0, NO_ANSWER), RECALL),
        _case("chunked-twice", also(b"transfer-encoding: chunked, chunked"), BROKEN, RECALL),
        _case("transfer-encoding-unknown-before-chunked", coded(b"x-nobody, chunked"), UNCLEAR,
              RECALL),
        _case("transfer-encoding-gzip-before-chunked", coded(b"gzip, chunked"), UNCLEAR, RECALL),
        _case("transfer-encoding-chunked-behind-another-line",
              coded(b"gzip\r\ntransfer-encoding: chunked"), UNCLEAR, RECALL),
        _case("transfer-encoding-chunked-in-two-lines",
              coded(b"chunked\r\ntransfer-encoding: chunked"), BROKEN, RECALL),
        _case("transfer-encoding-unknown-alone", coded(b"x-nobody"), UNCLEAR, RECALL),
        _case("transfer-encoding-empty", coded(b""), BROKEN, RECALL),
        _case("transfer-encoding-identity", also(b"transfer-encoding: identity"), BROKEN, RECALL),
        _case("transfer-encoding-gzip", also(b"transfer-encoding: gzip"), BROKEN, RECALL),
        _case("transfer-encoding-hidden-by-a-tab", also(b"transfer-encoding:\tchunked"), BROKEN,
              RECALL),
        _case("transfer-encoding-with-a-quote", also(b'transfer-encoding: "chunked"'), BROKEN,
              RECALL),
    ]  # fmt: skip


def framing() -> list[Case]:
    """Lines that HTTP does not allow, or that two parsers could read in two ways."""

    def line(raw: bytes) -> Builder:
        return lambda w: w.got("/v1/keys").sent(lines=[raw])

    def first(change: Callable[[bytes], bytes]) -> Builder:
        return lambda w: change(w.got("/v1/keys").sent())

    def under(name: str) -> Builder:
        """A signing header spelled with underscores: what a proxy may turn into the real one."""

        def build(w: World) -> bytes:
            request = w.got("/v1/keys")
            spelled = f"{name.replace('-', '_')}: {request.headers[name]}".encode()
            return request.sent(without=(name,), lines=[spelled])

        return build

    def host(instead: bytes) -> Builder:
        return first(lambda raw: raw.replace(b"host: 127.0.0.1\r\n", instead, 1))

    old = (426, "client.too_old")
    return [
        _case("host-missing", host(b""), UNCLEAR),
        _case("host-twice", line(b"host: 127.0.0.1"), UNCLEAR),
        _case("host-of-two-spellings", line(b"HOST: example.org"), UNCLEAR),
        _case("host-empty", host(b"host:\r\n"), UNCLEAR),
        _case("host-of-two-names", host(b"host: a.example, b.example\r\n"), UNCLEAR),
        _case("host-with-a-path", host(b"host: a.example/b\r\n"), UNCLEAR),
        _case("host-with-a-user", host(b"host: b@a.example\r\n"), UNCLEAR),
        _case("host-with-a-space", host(b"host: a.example b\r\n"), UNCLEAR),
        _case("host-not-ascii", host("host: ä.example\r\n".encode()), UNCLEAR),
        _case("host-with-two-ports", host(b"host: a.example:1:2\r\n"), UNCLEAR),
        _case("header-without-a-colon", line(b"x-nobody"), BROKEN),
        _case("header-with-a-space-in-its-name", line(b"x nobody: 1"), BROKEN),
        _case("header-with-a-space-before-the-colon", line(b"x-nobody : 1"), BROKEN),
        _case("header-without-a-name", line(b": 1"), BROKEN),
        _case("header-name-not-ascii", line("x-nobödy: 1".encode()), BROKEN),
        _case("header-with-a-nul", line(b"x-nobody: a\0b"), BROKEN),
        _case("header-with-a-bare-carriage-return", line(b"x-nobody: a\rb: c"), BROKEN),
        _case("header-folded", line(b"x-nobody: a\r\n b"), BROKEN),
        _case("header-folded-at-the-start", line(b" x-nobody: a"), BROKEN),
        _case("key-with-underscores", under("x-public-key"), REJECTED),
        _case("signature-with-underscores", under("x-signature"), REJECTED),
        _case("timestamp-with-underscores", under("x-timestamp"), REJECTED),
        _case("nonce-with-underscores", under("x-nonce"), old),
        _case("nonce-in-a-trailer", _trailer, old, RECALL),
        _case("version-1.0-with-chunks", first(lambda r: r.replace(b"1.1\r\n", b"1.0\r\n", 1)
              .replace(b"content-length: 0", b"transfer-encoding: chunked") + b"0\r\n\r\n"),
              UNCLEAR),
        _case("version-1.0-with-two-hosts", first(lambda r: r.replace(b"HTTP/1.1\r\n",
              b"HTTP/1.0\r\nhost: a\r\n", 1)), UNCLEAR),
        _case("version-1.2", first(lambda r: r.replace(b"HTTP/1.1", b"HTTP/1.2", 1)), BROKEN),
        _case("version-in-small-letters", first(lambda r: r.replace(b"HTTP", b"http", 1)), BROKEN),
        _case("http-2-preface", lambda w: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", BROKEN),
        _case("tls-on-a-plain-port", lambda w: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
              BROKEN),
        _case("nothing-but-a-cut-line", lambda w: Cut(b"GET /v1/ke"), (0, NO_ANSWER)),
        _case("headers-without-an-end", first(lambda r: Cut(r[:-2])), (0, NO_ANSWER)),
        _case("smuggled-behind-a-get", _smuggled, REJECTED),
        _case("method-unknown", lambda w: w.got("/v1/keys").sent(method="STEAL"), BROKEN),
        _case("method-connect", lambda w: message("CONNECT", "example.org:443"), BROKEN),
        _case("asterisk-target", lambda w: message("OPTIONS", "*"), ABSENT),
        _case("target-of-another-host", lambda w: w.got("/v1/keys").sent(
            target="http://example.org/v1/grants"), REJECTED),
        _case("target-with-a-user", lambda w: w.got("/v1/keys").sent(
            target="//CANARY@example.org/v1/keys"), ABSENT),
        _case("target-not-ascii", lambda w: w.got("/v1/keys/é").sent(), BROKEN),
        _case("target-empty", lambda w: message("GET", ""), BROKEN),
    ]  # fmt: skip


def _trailer(w: World) -> bytes:
    request = w.asked()
    lines = [f"{k}: {v}".encode() for k, v in request.headers.items() if k != "x-nonce"]
    lines += [b"transfer-encoding: chunked", b"trailer: x-nonce"]
    head = message(request.method, request.target, b"", lines, bare=True)
    size = b"%x\r\n%s\r\n0\r\n" % (len(request.body), request.body)
    return head + size + f"x-nonce: {request.nonce}\r\n\r\n".encode()


def _smuggled(w: World) -> bytes:
    """A body that is itself a good request: it is hashed, and never taken for the next one."""
    inner = w.got("/v1/keys").sent()
    return w.got("/v1/keys").sent(body=inner)


def targets() -> list[Case]:
    """Paths that mean a route to somebody else; signed as sent, so that only the path is odd."""

    def at(path: str, method: str = "GET") -> Builder:
        return lambda w: w.asked(path, b"", method=method).sent()

    absent = {
        "path-with-a-dot": "/v1/./keys",
        "path-with-two-dots": "/v1/memories/../keys",
        "path-out-of-the-root": "/../v1/keys",
        "path-with-encoded-dots": "/v1/%2e%2e/v1/keys",
        "path-with-an-encoded-question-mark": "/v1/keys%3Fa=1",
        "path-with-a-semicolon": "/v1/keys;a=1",
        "path-with-a-nul": "/v1/keys%00",
        "path-with-a-newline": "/v1/keys%0a",
        "path-with-a-space": "/v1/keys%20",
        "path-with-a-backslash": "/v1%5ckeys",
        "path-encoded-twice": "/v1/%256beys",
        "path-with-a-bad-escape": "/v1/keys%zz",
        "path-in-upper-case": "/V1/KEYS",
        "path-of-no-version": "/v2/keys",
        "path-of-nothing": "/",
        "path-with-a-suffix": "/v1/keys.json",
        "path-of-unicode-digits": "/v%EF%BC%91/keys",
    }
    cases = [_case(name, at(path), ABSENT) for name, path in absent.items()]
    wrong = (405, "request.method")
    return [
        *cases,
        _case("method-not-of-the-route", at("/v1/recall"), wrong, "GET /v1/recall"),
        _case("method-put-on-a-list", at("/v1/keys", "PUT"), wrong, "PUT /v1/keys"),
        _case("method-trace", at("/v1/keys", "TRACE"), wrong, "TRACE /v1/keys"),
        _case("method-propfind", at("/v1/keys", "PROPFIND"), wrong, "PROPFIND /v1/keys"),
        _case("method-override-header", lambda w: w.asked(
            "/v1/settings", b"").sent(lines=[b"x-http-method-override: GET"]), wrong,
              "POST /v1/settings"),
        _case("method-override-query", lambda w: w.asked(
            "/v1/settings?_method=GET", b"").sent(), wrong, "POST /v1/settings"),
    ]  # fmt: skip


def media() -> list[Case]:
    """Bodies of another type, or wrapped."""

    def typed(line: bytes) -> Builder:
        return lambda w: w.asked().sent(lines=[b"content-type: " + line])

    def packed(pack: Callable[[bytes], bytes], name: bytes) -> Builder:
        def build(w: World) -> bytes:
            plain = w.asked()
            packed = Signed(signer=plain.signer, body=pack(plain.body))
            return packed.sent(lines=[b"content-encoding: " + name])

        return build

    bomb = gzip.compress(b"a" * (32 * 2**20), mtime=0)
    media_type = (415, "request.media_type")
    return [
        _case("media-type-form", typed(b"application/x-www-form-urlencoded"), media_type, RECALL),
        _case("media-type-multipart", typed(b"multipart/form-data"), media_type, RECALL),
        _case("media-type-text", typed(b"text/plain"), media_type, RECALL),
        _case("media-type-xml", typed(b"application/xml"), media_type, RECALL),
        _case("media-type-msgpack", typed(b"application/x-msgpack"), media_type, RECALL),
        _case("media-type-json-with-utf-16", typed(b"application/json; charset=utf-16"),
              media_type, RECALL),
        _case("media-type-nonsense", typed(b"CANARY"), media_type, RECALL),
        _case("body-in-gzip", packed(lambda b: gzip.compress(b, mtime=0), b"gzip"), media_type,
              RECALL),
        _case("body-in-deflate", packed(zlib.compress, b"deflate"), media_type, RECALL),
        _case("body-in-brotli-by-name", packed(bytes, b"br"), media_type, RECALL),
        _case("body-in-identity-and-gzip", packed(bytes, b"identity, gzip"), media_type, RECALL),
        _case("gzip-bomb", packed(lambda b: bomb, b"gzip"), media_type, RECALL),
    ]  # fmt: skip


CASES = [*lengths(), *framing(), *targets(), *media()]
