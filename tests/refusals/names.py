"""Names of namespaces that are refused (SPEC §3), wherever a request can name one.

Not here: names that are taken for another spelling of the same, and names that look like patterns
(`test_names.py`).
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from tests.refusals.case import CANARY, Case, Signed
from tests.refusals.world import World

REFUSED = {
    "empty": "",
    "spaces-alone": "   ",
    "129-characters": "a" * 129,
    "129-characters-of-four-bytes": "\U0001f600" * 129,
    "129-characters-when-composed": "é" * 129,
    "nul": f"{CANARY}\0",
    "newline": f"{CANARY}\nteam",
    "tab-at-the-end": f"{CANARY}\t",
    "carriage-return": f"{CANARY}\r",
    "escape": f"{CANARY}\x1b[31m",
    "delete": f"{CANARY}\x7f",
    "c1-control": f"{CANARY}\x85",
    "line-separator": f"{CANARY}\u2028",
    "paragraph-separator": f"{CANARY}\u2029",
    "unassigned": f"{CANARY}\u0378",
    "non-character": f"{CANARY}\uffff",
    "beyond-the-planes-in-use": f"{CANARY}\U000e0fff",
    "bidi-embedding": f"{CANARY}\u202a",
    "bidi-override": f"{CANARY}\u202egpj",
    "bidi-isolate": f"\u2066{CANARY}",
    "bidi-pop": f"{CANARY}\u2069",
    "zero-width-space": f"{CANARY}\u200b",
    "tag": f"{CANARY}\U000e0041",
    "variation-selector": f"{CANARY}\u2764\ufe0f",
    "joiner-between-latin-letters": f"{CANARY}\u200da",
    "no-break-space-at-the-end": f"{CANARY}\u00a0",
    "ideographic-space-at-the-start": f"\u3000{CANARY}",
    "en-quad-that-becomes-an-en-space": f"{CANARY}\u2000",
    "tab-behind-a-space": f"{CANARY} \t ",
}
Ask = Callable[[World, str], Signed]
PLACES: dict[str, Ask] = {
    "POST /v1/recall": lambda w, name: w.asked(body={"query": "a", "namespace": name}),
    "POST /v1/remember": lambda w, name: w.change("/v1/remember", {"text": "a", "namespace": name}),
    "POST /api/remember": lambda w, name: w.asked(
        "/api/remember", {"text": "a", "namespace": name}
    ),
    "PUT /v1/namespaces/{name}": lambda w, name: w.change(
        f"/v1/namespaces/{quote(name, safe='')}", {"ttl_s": 60}, method="PUT"
    ),
}
# The other places take names through the same door: one defect shows that it is there.
OTHERS: dict[str, Ask] = {
    "POST /v1/analyze": lambda w, n: w.change("/v1/analyze", {"text": "a", "namespace": n}),
    "POST /v1/ask": lambda w, n: w.asked("/v1/ask", {"question": "a", "namespaces": ["team", n]}),
    "POST /v1/forget": lambda w, n: w.change("/v1/forget", {"namespace": n}),
    "POST /v1/restore": lambda w, n: w.change("/v1/restore", {"namespace": n}),
    "POST /v1/consolidate": lambda w, n: w.change("/v1/consolidate", {"namespace": n}),
    "POST /v1/rotations": lambda w, n: w.change("/v1/rotations", {"reseal": [n]}),
    "PUT /v1/webhooks/{id}": lambda w, n: w.change(
        f"/v1/webhooks/{w.memory_id}", _webhook(n), method="PUT"
    ),
    "DELETE /v1/namespaces/{name}": lambda w, n: w.asked(
        f"/v1/namespaces/{quote(n, safe='')}?relayer={w.relayer.hex}", b"", method="DELETE"
    ),
    "GET /v1/memories": lambda w, n: w.got(f"/v1/memories?namespace={quote(n)}"),
    "GET /v1/inventory": lambda w, n: w.got(f"/v1/inventory?namespaces={quote(n)}"),
    "GET /v1/stats": lambda w, n: w.got(f"/v1/stats?namespace={quote(n)}"),
    "GET /v1/review": lambda w, n: w.got(f"/v1/review?namespace={quote(n)}"),
    "GET /v1/episodes": lambda w, n: w.got(f"/v1/episodes?namespace={quote(n)}"),
    "GET /v1/consolidations": lambda w, n: w.got(f"/v1/consolidations?namespace={quote(n)}"),
    "POST /api/recall": lambda w, n: w.asked("/api/recall", {"query": "a", "namespace": n}),
    "POST /api/analyze": lambda w, n: w.asked("/api/analyze", {"text": "a", "namespace": n}),
    "POST /api/forget": lambda w, n: w.asked("/api/forget", {"namespace": n}),
    "POST /api/stats": lambda w, n: w.asked("/api/stats", {"namespace": n}),
    "POST /api/restore": lambda w, n: w.asked("/api/restore", {"namespace": n}),
    "POST /api/remember/bulk": lambda w, n: w.asked(
        "/api/remember/bulk", {"items": [{"text": "a", "namespace": n}]}
    ),
}


def _webhook(name: str) -> dict[str, Any]:
    return {"url": "https://example.org/", "events": ["memory.written"], "namespaces": [name]}


def _case(route: str, name: str, value: str, ask: Ask) -> Case:
    return Case(
        f"namespace/{route}/{name}",
        route,
        lambda w: ask(w, value).sent(),
        400,
        "namespace.invalid",
    )


def _in_path(name: str, raw: str) -> Case:
    """A name in a path, in bytes that are no name."""
    route = "PUT /v1/namespaces/{name}"
    return Case(
        f"namespace/{route}/{name}",
        route,
        lambda w: w.change(f"/v1/namespaces/{raw}", {"ttl_s": 60}, method="PUT").sent(),
        400,
        "namespace.invalid",
    )


CASES = [
    *(_case(r, n, v, ask) for r, ask in PLACES.items() for n, v in REFUSED.items() if v.strip()),
    *(_case("POST /v1/recall", n, REFUSED[n], PLACES["POST /v1/recall"])
      for n in ("empty", "spaces-alone")),
    *(_case(r, "bidi-override", REFUSED["bidi-override"], ask) for r, ask in OTHERS.items()),
    _in_path("not-utf-8", "%ff%fe"),
    _in_path("latin-1", "caf%e9"),
    _in_path("overlong-utf-8", "%c0%af"),
    _in_path("surrogate", "%ed%a0%80"),
]  # fmt: skip
