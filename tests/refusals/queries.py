"""Query parameters and names in paths that are malformed, out of range, unknown or there twice.

Not here: bodies (`members.py`), what a namespace may be called (`names.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import quote

from tests.refusals.case import CANARY, Builder, Case
from tests.refusals.world import World

NUMBERS = ("0", "-1", "1.5", "1e1", "0x1", "", " ", "+", "nan", "1_0", CANARY, "9" * 30)
CURSORS = (CANARY, "-1", "1.5", "１", "9" * 19, " ", "0x10", "1;")
MOMENTS = (CANARY, "2026-05-04", "2026-05-04T09:30:00", "1777887000", "0001-01-01T00:00:00Z",
           "9999-12-31T00:00:00Z", "2026-02-30T00:00:00Z", "10000-01-01T00:00:00Z", "")  # fmt: skip
LIMITED = {
    "/v1/memories": ("0", "201"),
    "/v1/review": ("0", "201"),
    "/v1/episodes": ("0", "201"),
    "/v1/receipts": ("0", "201"),
    "/v1/inventory": ("0", "201"),
    "/v1/consolidations": ("0", "201"),
}
WRONG: Mapping[str, Mapping[str, Sequence[str]]] = {
    "/v1/memories": {
        "cursor": CURSORS,
        "kind": (CANARY, "", "Fact", "fact,event"),
        "tag": ("", "a" * 129),
        "source": ("a" * 513,),
        "writer": (CANARY, "AB" * 32, "0x" + "ab" * 31, "ab" * 31, ""),
        "after": MOMENTS,
        "before": MOMENTS,
        "state": (CANARY, "", "Active"),
        "pinned": (CANARY, "2", "-1", "null", ""),
    },
    "/v1/review": {"cursor": CURSORS},
    "/v1/episodes": {"cursor": (*CURSORS, "1.", "1.x", ".", f"{'9' * 18}.{'0' * 32}")},
    "/v1/receipts": {"after": (*NUMBERS[1:], "9223372036854775808")},
    "/v1/inventory": {"cursor": (CANARY, "-1", "x.y", "." * 40, "9" * 19)},
    "/v1/consolidations": {"cursor": (CANARY, "1", "0" * 31, "g" * 32)},
    "/v1/events": {
        "after": (*NUMBERS[1:], "9223372036854775808", "1-", f"1-{'A' * 16}", f"-{'0' * 16}"),
        "follow": (CANARY, "2", ""),
    },
    "/v1/export": {"part": (CANARY, "", "Grants", "memories,grants"),},
}  # fmt: skip
EXPORTED = ("grants", "namespaces", "memories", "episodes", "receipts", "tombstones")


def _get(name: str, target: str, values: Sequence[str]) -> Case:
    """One parameter with each of its wrong values."""

    def build(w: World) -> list[bytes]:
        join = "&" if "?" in target else "?"
        return [w.got(f"{target}{join}{name}={quote(v)}").sent() for v in values]

    path = target.partition("?")[0]
    return Case(f"GET {target}/wrong-{name}", f"GET {path}", build, 400, "request.invalid")


def _ranges() -> Iterator[Case]:
    for path, ends in LIMITED.items():
        yield _get("limit", path, [*ends, *NUMBERS[1:]])
    for path, members in WRONG.items():
        for name, values in members.items():
            yield _get(name, path, values)
    for part in EXPORTED:
        yield _get("cursor", f"/v1/export?part={part}", (CANARY, "-1", "x.y", "{}", "\0"))


def _case(name: str, route: str, build: Builder, status: int = 400,
          code: str = "request.invalid") -> Case:  # fmt: skip
    return Case(f"{route}/{name}", route, build, status, code)


def _sent(target: str, method: str = "GET") -> Builder:
    return lambda w: w.asked(target, b"", method=method).sent()


def _shapes() -> Iterator[Case]:
    """Parameters that nobody knows, and single ones that are there twice."""
    reads = ("/v1/keys", "/v1/grants", "/v1/namespaces", "/v1/usage", "/v1/settings",
             "/v1/checkpoint", "/v1/rotations", "/v1/memories", "/v1/stats", "/v1/receipts",
             "/v1/inventory", "/v1/consolidations", "/v1/webhooks", "/v1/episodes",
             "/v1/review")  # fmt: skip
    for path in reads:
        yield _case("unknown-parameter", f"GET {path}", _sent(f"{path}?{CANARY}=1"))
    yield _case("parameter-in-other-case", "GET /v1/memories", _sent("/v1/memories?Limit=1"))
    yield _case("parameter-with-brackets", "GET /v1/memories", _sent("/v1/memories?tag[]=a"))
    yield _case("parameter-without-a-name", "GET /v1/memories", _sent("/v1/memories?=1"))
    yield _case("unknown-parameter", "POST /v1/recall", lambda w: w.asked("/v1/recall?limit=1",
        w.asked().body).sent())  # fmt: skip
    for name in ("limit", "cursor", "namespace", "kind", "source", "after", "state", "pinned"):
        value = {"kind": "fact", "after": "2026-05-04T09:30:00Z", "state": "all",
                 "pinned": "true"}.get(name, "1")  # fmt: skip
        twice = f"/v1/memories?{name}={value}&{name}={value}"
        yield _case(f"twice-{name}", "GET /v1/memories", _sent(twice))
    encoded = "/v1/memories?limit=1&%6cimit=2"
    yield _case("twice-limit-in-other-spelling", "GET /v1/memories", _sent(encoded))
    for name in ("namespace", "tag", "source"):
        for bytes_ in ("%FF", "%ED%A0%80"):
            path = f"/v1/memories?{name}={bytes_}"
            yield _case(f"not-utf-8-{name}-{bytes_}", "GET /v1/memories", _sent(path))
    yield _case("one-namespace-and-several", "GET /v1/memories",
                _sent("/v1/memories?namespace=a&namespaces=b"))  # fmt: skip
    yield _case("a-namespace-twice", "GET /v1/memories",
                _sent("/v1/memories?namespaces=a&namespaces=%20a"))  # fmt: skip
    many = "&".join(f"namespaces=n{n}" for n in range(17))
    yield _case("17-namespaces", "GET /v1/memories", _sent(f"/v1/memories?{many}"))
    many = "&".join(f"namespaces=n{n}" for n in range(65))
    yield _case("65-namespaces", "GET /v1/inventory", _sent(f"/v1/inventory?{many}"))
    yield _case("33-tags", "GET /v1/memories",
                _sent("/v1/memories?" + "&".join(f"tag=t{n}" for n in range(33))))  # fmt: skip
    yield _case(
        "11-ids",
        "GET /v1/export",
        _sent("/v1/export?part=memories&" + "&".join(f"ids={n:032}" for n in range(11))),
    )
    yield _case("ids-of-no-memories", "GET /v1/export", _sent("/v1/export?part=grants&ids=1"))
    yield _case("without-part", "GET /v1/export", _sent("/v1/export"))
    yield _case("last-event-id-not-ours", "GET /v1/events", lambda w: w.got(
        "/v1/events?follow=false").sent(lines=[b"last-event-id: CANARY"]))  # fmt: skip


def _deleting(path: str, query: Callable[[World], str]) -> Builder:
    """An erasure whose query is all that is odd; an account's is confirmed, too."""

    def build(w: World) -> bytes:
        target = path.replace("{id}", w.memory_id).replace("{account}", w.managed.text)
        confirm = f"confirm={w.managed.text}" if "{account}" in path else ""
        parts = "&".join(part for part in (query(w), confirm) if part)
        return w.asked(f"{target}?{parts}".rstrip("?"), b"", method="DELETE").sent()

    return build


def _relayers() -> Iterator[Case]:
    """Changes without a body name their relayer in the query."""
    other = (400, "relayer.other")
    twice = "&relayer=" + "ab" * 32
    for path in ("/v1/memories/{id}", "/v1/webhooks/{id}", "/v1/namespaces/team",
                 "/v1/accounts/{account}"):  # fmt: skip
        route = f"DELETE {path}"
        yield _case("without-relayer", route, _deleting(path, lambda w: ""))
        yield _case("other-relayer", route, _deleting(path, lambda w: twice[1:]), *other)
        yield _case("relayer-in-upper-case", route, _deleting(
            path, lambda w: f"relayer={w.relayer.hex.upper()}"), *other)  # fmt: skip
        yield _case("relayer-twice", route, _deleting(
            path, lambda w: f"relayer={w.relayer.hex}{twice}"))  # fmt: skip
    account = "DELETE /v1/accounts/{account}"

    def closing(w: World, confirm: str) -> bytes:
        query = f"relayer={w.relayer.hex}{confirm}"
        return w.asked(f"/v1/accounts/{w.managed.text}?{query}", b"", method="DELETE").sent()

    yield _case("without-confirm", account, lambda w: closing(w, ""))
    yield _case("confirm-yes", account, lambda w: closing(w, "&confirm=yes"), 400,
                "account.confirm")  # fmt: skip
    yield _case("confirm-of-another-account", account, lambda w: closing(
        w, f"&confirm={w.foreign.text}"), 400, "account.confirm")  # fmt: skip


def _ids() -> Iterator[Case]:
    """Ids that cannot be one are answered like absent ones."""
    forms = ("x", CANARY, "0" * 31, "0" * 33, "g" * 32, "%00", "..%2f", "%F0%9F%98%80", "-",
             "1'%20OR%20'1'='1", "%25", "*")  # fmt: skip

    def malformed(path: str) -> Builder:
        return lambda w: [w.got(path + form).sent() for form in forms]

    for path in ("/v1/memories/", "/v1/episodes/", "/v1/consolidations/", "/api/remember/"):
        yield _case("malformed-id", f"GET {path}{{id}}", malformed(path), 404, "not_found")
    yield _case("foreign-id", "GET /v1/memories/{id}", lambda w: w.got(
        f"/v1/memories/{w.foreign_id}").sent(), 404, "not_found")  # fmt: skip
    yield _case("malformed-id", "GET /v1/accounts/{account}", lambda w: [
        w.got(f"/v1/accounts/{f}").sent()
        for f in (w.managed.text[2:], w.managed.text.upper(), w.foreign.text, CANARY)], 404,
        "not_found")  # fmt: skip
    yield _case("revision-out-of-range", "GET /v1/memories/{id}", lambda w: [
        w.got(f"/v1/memories/{w.memory_id}?revision={n}").sent()
        for n in ("0", "-1", "101", "1.5", "x", "")])  # fmt: skip
    yield _case("revision-not-there", "GET /v1/memories/{id}", lambda w: w.got(
        f"/v1/memories/{w.memory_id}?revision=2").sent(), 404, "not_found")  # fmt: skip
    owner = "GET /v1/owners/{account}/namespaces"
    yield _case("foreign-owner", owner, lambda w: w.got(
        f"/v1/owners/{w.foreign.text}/namespaces").sent(), 404, "not_found")  # fmt: skip
    cursors = (CANARY, "1", "1.", "-1.1", "1.1.1", f"{'9' * 19}.1", f"1.{'9' * 11}")
    yield _case("wrong-cursor", owner, lambda w: [
        w.got(f"/v1/owners/{w.managed.text}/namespaces?updated_after={c}").sent()
        for c in cursors])  # fmt: skip
    yield _case("wrong-limit", owner, lambda w: [
        w.got(f"/v1/owners/{w.managed.text}/namespaces?limit={n}").sent()
        for n in ("0", "-1", "x", "1.5")])  # fmt: skip


CASES = [*_ranges(), *_shapes(), *_relayers(), *_ids()]
