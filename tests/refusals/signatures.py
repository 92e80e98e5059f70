"""Requests whose signing headers are malformed, or whose signature is of something else (SPEC §5).

Not here: points and scalars at the edges of Ed25519 (`curve.py`), repeated requests (`replays.py`).
"""

import hashlib
import uuid
from collections.abc import Callable
from typing import Any

from tests import reference as ref
from tests.refusals.case import CANARY, HTTP, Builder, Case, Signed
from tests.refusals.world import World, now_ms

Change = Callable[[Signed], dict[str, Any]]
SEEN = "GET /v1/keys"


def _case(name: str, build: Builder, status: int = 401, code: str = "auth.rejected") -> Case:
    return Case(f"signature/{name}", SEEN, build, status, code)


def _formed(name: str, **members: Any) -> Case:
    """A malformed member that is honestly signed: the form alone is wrong."""
    return _case(name, lambda w: w.got("/v1/keys", **members).sent())


def _headed(name: str, change: Change) -> Case:
    """A header that was changed after signing."""

    def build(w: World) -> bytes:
        request = w.got("/v1/keys", account=w.managed.text)
        return request.sent(**change(request))

    return _case(name, build)


def _now(form: Callable[[int], str]) -> Builder:
    return lambda w: w.got("/v1/keys", timestamp=form(now_ms() // 1000)).sent()


def forms() -> list[Case]:
    """Headers that are malformed in themselves."""
    nonce = "6fa459ea-ee8a-4ca4-894e-db77e160355e"
    seconds: dict[str, Callable[[int], str]] = {
        "timestamp-float": lambda s: f"{s}.0",
        "timestamp-negative": lambda s: f"-{s}",
        "timestamp-signed": lambda s: f"+{s}",
        "timestamp-exponent": lambda s: f"{s}e0",
        "timestamp-hex": hex,
        "timestamp-underscores": lambda s: f"{s:_}",
        "timestamp-inner-space": lambda s: f"{str(s)[:5]} {str(s)[5:]}",
        "timestamp-superscript-digit": lambda s: f"{s}"[:-1] + "²",
        "timestamp-list": lambda s: f"{s},{s}",
        "timestamp-rfc3339": lambda s: "2026-05-04T09:30:00Z",
        "timestamp-empty": lambda s: "",
        "timestamp-too-many-leading-zeros": lambda s: f"{s:013}",
        "timestamp-in-milliseconds": lambda s: str(s * 1000),
        "timestamp-in-microseconds": lambda s: str(s * 1_000_000),
        "timestamp-zero": lambda s: "0",
        "timestamp-301-s-ago": lambda s: str(s - 302),
        "timestamp-301-s-ahead": lambda s: str(s + 303),
        "timestamp-a-year-ahead": lambda s: str(s + 31_536_000),
        "timestamp-12-digits": lambda s: "999999999999",
    }
    cases = [_case(name, _now(form)) for name, form in seconds.items()]
    nonces = {
        "nonce-without-hyphens": nonce.replace("-", ""),
        "nonce-in-braces": "{" + nonce + "}",
        "nonce-urn": "urn:uuid:" + nonce,
        "nonce-35-characters": nonce[:-1],
        "nonce-37-characters": nonce + "0",
        "nonce-not-hex": nonce[:-1] + "g",
        "nonce-other-groups": "6fa459eae-e8a-4ca4-894e-db77e160355e",
        "nonce-two": f"{nonce},{nonce}",
        "nonce-integer": "1",
        "nonce-text": CANARY,
        "nonce-non-breaking-hyphen": nonce.replace("-", "\xad"),
        "nonce-inner-tab": nonce + "\t" + nonce,
    }
    cases += [_formed(name, nonce=value) for name, value in nonces.items()]
    return cases + _keys_and_accounts()


def _keys_and_accounts() -> list[Case]:
    keys: dict[str, Change] = {
        "key-upper-case": lambda r: {"public_key": r.signer.hex.upper()},
        "key-0x": lambda r: {"public_key": "0x" + r.signer.hex},
        "key-31-bytes": lambda r: {"public_key": r.signer.hex[2:]},
        "key-33-bytes": lambda r: {"public_key": r.signer.hex + "00"},
        "key-base64": lambda r: {"public_key": ref.b64(r.signer.public)},
        "key-empty": lambda r: {"public_key": ""},
        "key-inner-space": lambda r: {"public_key": r.signer.hex[:32] + " " + r.signer.hex[32:]},
        "key-two": lambda r: {"public_key": f"{r.signer.hex},{r.signer.hex}"},
        "signature-upper-case": lambda r: {"signature": r.headers["x-signature"].upper()},
        "signature-0x": lambda r: {"signature": "0x" + r.headers["x-signature"]},
        "signature-63-bytes": lambda r: {"signature": r.headers["x-signature"][2:]},
        "signature-65-bytes": lambda r: {"signature": r.headers["x-signature"] + "00"},
        "signature-empty": lambda r: {"signature": ""},
        "signature-base64": lambda r: {"signature": ref.b64(r.signer.sign(r.text.encode()))},
        "signature-two": lambda r: {"signature": ",".join([r.headers["x-signature"]] * 2)},
        "signature-zero": lambda r: {"signature": "00" * 64},
        "signature-ones": lambda r: {"signature": "ff" * 64},
        "account-upper-case": lambda r: {"account_id": r.account.upper().replace("X", "x")},
        "account-0X": lambda r: {"account_id": r.account.replace("0x", "0X")},
        "account-without-0x": lambda r: {"account_id": r.account[2:]},
        "account-31-bytes": lambda r: {"account_id": r.account[:-2]},
        "account-two": lambda r: {"account_id": f"{r.account},{r.account}"},
        "account-label": lambda r: {"account_id": CANARY},
    }
    cases = [_headed(name, change) for name, change in keys.items()]
    foreign: Builder = lambda w: w.got("/v1/keys", account=w.foreign.text).sent()  # noqa: E731
    nobody: Builder = lambda w: w.got("/v1/keys", account="0x" + "00" * 32).sent()  # noqa: E731
    return [*cases, _case("account-of-somebody-else", foreign), _case("account-nobodys", nobody)]


def missing() -> list[Case]:
    """Headers that are not there, or there twice."""

    def without(*names: str) -> Builder:
        return lambda w: w.got("/v1/keys").sent(without=names)

    def twice(name: str) -> Builder:
        def build(w: World) -> bytes:
            request = w.got("/v1/keys")
            return request.sent(lines=[f"{name}: {request.headers[name]}".encode()])

        return build

    cases = [
        _case(f"without-{name}", without(f"x-{name}"))
        for name in ("public-key", "signature", "timestamp")
    ]
    cases += [
        _case(f"twice-{name}", twice(f"x-{name}"))
        for name in ("public-key", "signature", "timestamp", "nonce", "account-id")
    ]
    old = (426, "client.too_old")
    session: Builder = lambda w: w.got("/v1/keys").sent(  # noqa: E731
        lines=[b"x-seal-session: e30=", b"x-seal-session: e30="]
    )
    unsigned: Builder = lambda w: w.got("/v1/keys").sent(  # noqa: E731
        without=("x-public-key", "x-signature", "x-timestamp", "x-nonce", "x-account-id")
    )
    return [
        *cases,
        _case("twice-seal-session", session),
        _case("seal-session-of-nothing", lambda w: w.got("/v1/keys").sent(seal_session="e30=")),
        _case("seal-session-not-base64", lambda w: w.got("/v1/keys").sent(seal_session=CANARY)),
        _case("without-nonce", without("x-nonce"), *old),
        _case("nonce-empty", lambda w: w.got("/v1/keys").sent(nonce=""), *old),
        _case("without-any-header", unsigned),
        _case("signed-by-a-cookie", lambda w: w.got("/v1/keys").sent(
            without=("x-nonce",), lines=[f"cookie: x-nonce={uuid.uuid4()}".encode()]), *old),
    ]  # fmt: skip


def altered() -> list[Case]:
    """Each member of the signed text changed after signing."""

    def other(**changes: str) -> Change:
        return lambda r: changes

    body = b'{"query": "mill", "namespace": "team" }'
    recall = "POST /v1/recall"

    def recalled(name: str, build: Builder) -> Case:
        return Case(f"signature/{name}", recall, build, 401, "auth.rejected")

    return [
        _headed("other-timestamp", lambda r: {"timestamp": str(int(r.timestamp) + 1)}),
        _headed("other-timestamp-form", lambda r: {"timestamp": "0" + r.timestamp}),
        _headed("other-nonce", lambda r: {"nonce": str(uuid.uuid4())}),
        _headed("nonce-in-other-case", lambda r: {"nonce": r.nonce.upper()}),
        _headed("account-dropped", other(account_id="")),
        _case("account-added", lambda w: w.got("/v1/keys").sent(account_id=w.managed.text)),
        _case("key-of-another-member", lambda w: w.got("/v1/keys").sent(public_key=w.reader.hex)),
        _case("key-of-nobody", lambda w: w.got("/v1/keys").sent(public_key="ab" * 32)),
        _case("other-path", lambda w: w.got("/v1/keys").sent(target="/v1/grants")),
        _case("query-added", lambda w: w.got("/v1/keys").sent(target="/v1/keys?a=1")),
        _case("query-dropped", lambda w: w.got("/v1/keys?a=1").sent(target="/v1/keys")),
        _case("query-reordered", lambda w: w.got("/v1/memories?limit=1&namespace=team").sent(
            target="/v1/memories?namespace=team&limit=1")),
        _case("query-encoded-otherwise", lambda w: w.got("/v1/stats?namespace=a%2fb").sent(
            target="/v1/stats?namespace=a%2Fb")),
        _case("path-decoded", lambda w: w.got("/v1/memories/%61").sent(target="/v1/memories/a")),
        _case("other-method", lambda w: w.got("/v1/settings").sent(method="PATCH")),
        _case("method-options", lambda w: w.got("/v1/keys").sent(method="OPTIONS")),
        recalled("body-dropped", lambda w: w.asked().sent(body=b"")),
        recalled("body-with-other-spaces", lambda w: w.asked().sent(body=body)),
        recalled("body-with-a-line-behind", lambda w: w.asked().sent(body=w.asked().body + b"\n")),
        recalled("body-of-another-request", lambda w: w.asked().sent(body=b'{"query":"x"}')),
        _case("body-added-to-a-get", lambda w: w.got("/v1/keys").sent(body=b"{}")),
    ]  # fmt: skip


def texts() -> list[Case]:
    """Signatures over a text that is nearly the right one, or could be read in two ways."""

    def over(text: Callable[[Signed], bytes]) -> Builder:
        def build(w: World) -> bytes:
            request = w.asked(account=w.managed.text)
            return request.sent(signature=request.signer.sign(text(request)).hex())

        return build

    def lacking(at: int) -> Callable[[Signed], bytes]:
        def text(request: Signed) -> bytes:
            parts = request.text.split(".")
            return ".".join(parts[:at] + parts[at + 1 :]).encode()

        return text

    def digest(request: Signed) -> str:
        return hashlib.sha256(request.body).hexdigest()

    wrong: dict[str, Callable[[Signed], bytes]] = {
        "of-nothing": lambda r: b"",
        "of-the-texts-hash": lambda r: hashlib.sha256(r.text.encode()).digest(),
        "of-the-body-alone": lambda r: r.body,
        "with-a-newline-behind": lambda r: r.text.encode() + b"\n",
        "with-a-nul-behind": lambda r: r.text.encode() + b"\0",
        "joined-by-newlines": lambda r: r.text.replace(".", "\n").encode(),
        "in-utf-16": lambda r: r.text.encode("utf-16"),
        "in-other-order": lambda r: ".".join(reversed(r.text.split("."))).encode(),
        "with-the-hash-in-upper-case": lambda r: r.text.replace(
            digest(r), digest(r).upper()
        ).encode(),
        "with-the-body-unhashed": lambda r: r.text.encode().replace(digest(r).encode(), r.body),
        "with-the-hash-of-nothing": lambda r: r.text.replace(
            digest(r), hashlib.sha256(b"").hexdigest()
        ).encode(),
        "with-the-method-in-small": lambda r: r.text.replace("POST", "post").encode(),
        "with-the-host": lambda r: r.text.replace("/v1/", "http://127.0.0.1/v1/").encode(),
        "as-an-object-of-ours": lambda r: b"memrelay/join/v1\0" + r.text.encode(),
        **{
            f"text-without-{name}": lacking(at)
            for at, name in enumerate(("timestamp", "method", "path", "hash", "nonce", "account"))
        },
    }
    cases = [
        Case(f"signature/{name}", "POST /v1/recall", over(text), 401, "auth.rejected")
        for name, text in wrong.items()
    ]
    return cases + _boundaries()


def _boundaries() -> list[Case]:
    """One text, two requests: members that swallow their neighbours."""
    empty = hashlib.sha256(b"").hexdigest()

    def swallowed(w: World) -> bytes:
        request = w.got("/v1/stats?namespace=a")
        return request.sent(target=f"{request.target}.{empty}.{request.nonce}")

    def carried(w: World) -> bytes:
        request = w.got("/v1/keys")
        return w.got("/v1/keys", nonce=f"{request.nonce}.{w.managed.text}").sent()

    def split(w: World) -> bytes:
        request = w.got("/v1/keys", timestamp=f"{now_ms() // 1000}.GET")
        return request.sent()

    return [
        _case("path-swallows-hash-and-nonce", swallowed),
        _case("nonce-carries-the-account", carried),
        _case("timestamp-carries-the-method", split),
        _case("account-begins-with-a-dot", lambda w: w.got(
            "/v1/keys", account="." + w.managed.text).sent()),
        _case("newline-in-the-nonce", lambda w: w.got(
            "/v1/keys", nonce=f"{uuid.uuid4()}\n").sent(), 400, HTTP),
        _case("newline-in-the-path", lambda w: w.got("/v1/keys\n").sent(), 400, HTTP),
        _case("newline-in-the-query", lambda w: w.got("/v1/keys?a=\n1").sent(), 400, HTTP),
        _case("space-in-the-path", lambda w: w.got("/v1/keys /v1").sent(), 400, HTTP),
        _case("fragment-in-the-target", lambda w: w.got("/v1/keys#x").sent()),
        _case("method-in-small-letters", lambda w: w.asked(
            "/v1/keys", b"", method="get").sent(), 400, HTTP),
    ]  # fmt: skip


CASES = [*forms(), *missing(), *altered(), *texts()]
