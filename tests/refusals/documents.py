"""Bodies that are no strict JSON: refused on MemWal's routes as well as on our own.

Not here: JSON of another form than the route's (`members.py`).
"""

import gzip
import json
import zlib
from collections.abc import Callable, Sequence

from tests.refusals.case import CANARY, Case
from tests.refusals.world import World

OURS, MEMWALS = "POST /v1/recall", "POST /api/recall"
QUERY = b'"query":"CANARY"'
Document = bytes | Sequence[bytes]

ANYWHERE: dict[str, Document] = {
    "empty": b"",
    "white-space": b" \r\n\t ",
    "null": b"null",
    "true": b"true",
    "number": b"7",
    "text": b'"CANARY"',
    "list": b'[{"query":"CANARY"}]',
    "cut-in-the-object": b"{" + QUERY,
    "cut-in-a-text": b'{"query":"CANARY',
    "cut-in-a-name": b'{"que',
    "garbage-behind": b"{" + QUERY + b"} CANARY",
    "two-documents": b"{" + QUERY + b"}{" + QUERY + b"}",
    "nul-behind": b"{" + QUERY + b"}\0",
    "bracket-behind": b"{" + QUERY + b"}}",
    "byte-order-mark": b"\xef\xbb\xbf{" + QUERY + b"}",
    "utf-16": json.dumps({"query": CANARY}).encode("utf-16"),
    "utf-16-without-a-mark": json.dumps({"query": CANARY}).encode("utf-16-le"),
    "utf-32": json.dumps({"query": CANARY}).encode("utf-32"),
    "latin-1": '{"query":"CANARY é"}'.encode("latin-1"),
    "overlong-utf-8": b'{"query":"CANARY\xc0\xaf"}',
    "utf-8-surrogate": b'{"query":"CANARY\xed\xa0\x80"}',
    "utf-8-beyond-unicode": b'{"query":"CANARY\xf4\x90\x80\x80"}',
    "utf-8-cut": b'{"query":"CANARY\xe2\x82"}',
    "lone-high-surrogate": b'{"query":"CANARY\\ud800"}',
    "lone-low-surrogate": b'{"query":"CANARY\\udc00"}',
    "surrogates-in-wrong-order": b'{"query":"CANARY\\udc00\\ud800"}',
    "surrogate-in-a-name": b'{"CANARY\\ud800":1,"query":"a"}',
    "bad-escape": b'{"query":"CANARY\\x41"}',
    "short-unicode-escape": b'{"query":"CANARY\\u00e"}',
    "bare-newline-in-a-text": b'{"query":"CANARY\n"}',
    "bare-nul-in-a-text": b'{"query":"CANARY\0"}',
    "bare-tab-in-a-text": b'{"query":"CANARY\t"}',
    "single-quotes": b"{'query':'CANARY'}",
    "name-without-quotes": b'{query:"CANARY"}',
    "name-is-a-number": b'{1:2,"query":"CANARY"}',
    "comma-behind-the-last": b"{" + QUERY + b",}",
    "comma-missing": b'{"query":"CANARY""limit":3}',
    "colon-missing": b'{"query" "CANARY"}',
    "line-comment": b"{" + QUERY + b"} // CANARY",
    "block-comment": b"{/* CANARY */" + QUERY + b"}",
    "hash-comment": b"# CANARY\n{" + QUERY + b"}",
    "nan": b"{" + QUERY + b',"limit":NaN}',
    "nan-in-an-unknown-member": b"{" + QUERY + b',"nobody":NaN}',
    "infinity": b"{" + QUERY + b',"limit":Infinity}',
    "minus-infinity": b"{" + QUERY + b',"limit":-Infinity}',
    "float-beyond-64-bits": b"{" + QUERY + b',"scoring_weights":{"recency":1e999}}',
    "float-below-64-bits": b"{" + QUERY + b',"scoring_weights":{"recency":-1e999}}',
    "float-for-an-integer": b"{" + QUERY + b',"limit":3.0}',
    "exponent-for-an-integer": b"{" + QUERY + b',"limit":1e1}',
    "integer-of-5000-digits": b"{" + QUERY + b',"limit":' + b"9" * 5_000 + b"}",
    "integer-beyond-64-bits": b"{" + QUERY + b',"limit":18446744073709551617}',
    "leading-zero": b"{" + QUERY + b',"limit":03}',
    "leading-plus": b"{" + QUERY + b',"limit":+3}',
    "leading-point": b"{" + QUERY + b',"scoring_weights":{"recency":.5}}',
    "hexadecimal": b"{" + QUERY + b',"limit":0x3}',
    "lists-10000-deep": b"{" + QUERY + b',"nobody":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "objects-10000-deep": b'{"query":' * 10_000 + b"1" + b"}" * 10_000,
    "lists-100000-deep-and-open": b"[" * 100_000,
    "binary": bytes(range(256)),
    "form": b"query=CANARY&limit=3",
    "yaml": b"query: CANARY\n",
    "msgpack": b"\x81\xa5query\xa6CANARY",
    "gzip-unsaid": gzip.compress(b"{" + QUERY + b"}", mtime=0),
    "deflate-unsaid": zlib.compress(b"{" + QUERY + b"}"),
}  # fmt: skip
OURS_ALONE: dict[str, Document] = {
    "member-twice": b"{" + QUERY + b"," + QUERY + b"}",
    "member-twice-in-other-spelling": b"{" + QUERY + b',"\\u0071uery":"CANARY"}',
    "nested-member-twice": b"{" + QUERY + b',"scoring_weights":{"recency":1,"recency":0}}',
    "free-name-twice": b"{" + QUERY + b',"metadata":{"CANARY":"a","CANARY":"b"}}',
    "member-in-other-case": b'{"QUERY":"CANARY"}',
    "member-with-a-space": b'{"query ":"CANARY","query":"a"}',
    "member-with-a-nul": b'{"query\\u0000":"CANARY","query":"a"}',
    "prototype": b"{" + QUERY + b',"__proto__":{"limit":1}}',
}


def _case(route: str, name: str, document: Document) -> Case:
    method, target = route.split()
    documents = [document] if isinstance(document, bytes) else document

    def build(w: World) -> list[bytes]:
        return [w.asked(target, raw, method=method).sent() for raw in documents]

    return Case(f"json/{target}/{name}", route, build, 400, "request.invalid")


def _changed(name: str, body: Callable[[World], bytes]) -> Case:
    """A change that is repeated inside of one body: two readers could see two changes."""
    route = "POST /v1/remember"
    return Case(
        f"json/{name}",
        route,
        lambda w: w.asked("/v1/remember", body(w)).sent(),
        400,
        "request.invalid",
    )


CASES = [
    *(_case(OURS, name, document) for name, document in ANYWHERE.items()),
    *(_case(MEMWALS, name, document) for name, document in ANYWHERE.items()),
    *(_case(OURS, name, document) for name, document in OURS_ALONE.items()),
    _changed(
        "text-twice",
        lambda w: b'{"relayer":"%s","text":"a","text":"CANARY"}' % w.relayer.hex.encode(),
    ),
    _changed(
        "relayer-twice",
        lambda w: (
            b'{"relayer":"%s","text":"a","relayer":"%s"}' % (w.relayer.hex.encode(), b"ab" * 32)
        ),
    ),
    _changed(
        "expiry-twice",
        lambda w: (
            b'{"relayer":"%s","text":"a","expires_at":null,"expires_at":null}'
            % w.relayer.hex.encode()
        ),
    ),
]
