"""The pages for people who open a relayer's address in a browser: `/`, `/docs` and `/console`.

Not here: what stands on `/docs` (`reference.py`), the files of the console (`console.py`), routes
for programs (`routes/`).

- A page is sent for GET with an `Accept` that names HTML. All else goes on to the application, so
  programs get the same JSON at these paths as at every path that is no route.
- They ask nobody else for anything, and hold nothing of any account. The console alone has a
  script.
- Links are relative, or begin with the prefix of the public URL: they lead right behind a proxy.
"""

import base64
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar import Request
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send
from markupsafe import Markup

from relayer import __version__
from relayer.http.console import PAGE, Console
from relayer.http.middleware import HEADERS
from relayer.http.public_url import PublicUrl
from relayer.http.reference import reference
from relayer.http.requests import header

STYLE: Final = Markup("""
:root{color-scheme:light dark;--back:#fff;--text:#1b1f24;--faint:#59636e;--line:#d5dbe1;
--box:#f3f5f7;--link:#0b57b7;--well:#116329;--ill:#9a3412}
@media (prefers-color-scheme:dark){:root{--back:#14171b;--text:#e4e8ec;--faint:#9aa4af;
--line:#343b43;--box:#1f242a;--link:#7db4ff;--well:#6fce8c;--ill:#f6a36f}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:56rem;padding:1.5rem 1rem 4rem;background:var(--back);
color:var(--text);font:1rem/1.5 system-ui,sans-serif;overflow-wrap:break-word}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 .75rem}
h2{font-size:1.15rem;margin:2rem 0 .5rem}
h3{font-size:1rem;margin:1rem 0 .25rem}
p{margin:.35rem 0}
a{color:var(--link)}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}
code{background:var(--box);border-radius:.2rem;padding:.05rem .25rem}
pre{background:var(--box);border:1px solid var(--line);border-radius:.4rem;padding:.75rem;
white-space:pre-wrap;margin:.5rem 0}
ul{padding-left:1.2rem;margin:.4rem 0}
.well{color:var(--well);font-weight:600}
.ill{color:var(--ill);font-weight:600}
nav ul{list-style:none;padding:0}
nav li{padding:.15rem 0}
h2 b,nav b{color:var(--faint);font-weight:600;font-size:.85em}
.operation,.schema{border-top:1px solid var(--line);margin-top:1.5rem}
.operation h2,.schema h2{margin-top:1rem}
table{border-collapse:collapse;width:100%;margin:.35rem 0}
th{color:var(--faint);font-weight:400;font-size:.85em}
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0;
border-bottom:1px solid var(--line)}
td:last-child{overflow-wrap:anywhere}
footer{margin-top:3rem;color:var(--faint);font-size:.9em}
@media (max-width:40rem){thead{display:none}
tr{display:block;border-bottom:1px solid var(--line);padding:.3rem 0}
td{display:block;border:0;padding:.05rem 0}
td:not(:first-child,:last-child){display:inline;color:var(--faint);padding-right:.5rem}
td td{padding-left:.75rem}}
""")
_STYLE_SHA256: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CONTENT_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_SHA256}'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
_PAGE: Final = Markup(
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    "<title>{title}</title><style>{style}</style></head>\n"
    "<body>{body}<footer>memrelay {version}</footer></body></html>\n"
)
_WELL: Final = Markup('<p class="well">It is well: it answers, and it takes writes.</p>')
_ILL: Final = Markup(
    '<p class="ill">It answers, but it takes no writes now.</p>'
    "<p>Its operator sees why with <code>relayer doctor</code>, or in its log.</p>"
)
_FRONT: Final = Markup("""
<h1>A memrelay relayer</h1>
<p>This is the server of a long-term memory for AI agents that nobody else can read.</p>
{state}
<h2>What to type next</h2>
<p>Make your keys and an account:</p>
<pre>memrelay init {url}</pre>
<p>In a checkout that is not installed elsewhere, this command is
<code>.venv/bin/memrelay</code>.</p>
<p>If it asks for a token, the operator of this relayer has one:</p>
<pre>MEMRELAY_TOKEN=TOKEN memrelay init {url}</pre>
<p>Then keep a memory, and find it:</p>
<pre>memrelay remember "Anna prefers tea."
memrelay recall "What does Anna drink?"</pre>
<p>To look at a memory here, open <a href="{base}console">the console</a>. Keys stay in the
browser.</p>
<p>If something does not work, <code>memrelay doctor</code> says what is wrong and what to type.</p>
<h2>Documentation</h2>
<ul>
<li><a href="{base}docs">The API of this version</a>: every route, what it takes and what it
answers</li>
<li><a href="{base}schema/openapi.json">The same for programs</a>, an OpenAPI document</li>
<li>The sources of memrelay {version} hold the rest: <code>README.md</code> to begin with,
<code>client/docs</code> for agents, <code>deploy/README.md</code> for operators,
<code>SPEC.md</code> for formats and <code>SECURITY.md</code> for what is protected</li>
</ul>
""")
_DOCS: Final = Markup("""
<p><a href="{base}">This relayer</a></p>
<h1>The API of memrelay {version}</h1>
<p>These are all routes of this relayer, with what they take and answer.
<code>SPEC.md</code> in the sources of this version says what members mean and how to sign.
Programs read <a href="{base}schema/openapi.json">the OpenAPI document</a> that this page is made
of.</p>
{reference}
""")
_NO_CONSOLE: Final = Markup("""
<p><a href="{base}">This relayer</a></p>
<h1>The console is not built</h1>
<p>The console shows people their memory. It is built where Node is there, and this relayer was set
up without it. All else works.</p>
<p>Whoever runs this relayer builds it in the checkout, with Node 20 or later and npm, and starts
the relayer again:</p>
<pre>make console</pre>
<p>A relayer that was installed from a wheel needs one that was made after that:</p>
<pre>make console wheels</pre>
""")
_CONSOLE: Final = "/console"


class Pages:
    """ASGI middleware that answers browsers at `/`, `/docs` and `/console`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        document: Callable[[], bytes],
        is_well: Callable[[], Awaitable[bool]],
        public_url: PublicUrl,
    ) -> None:
        """Take `document`, which gives the OpenAPI document, and `is_well`, the readiness."""
        self._app = app
        self._document = document
        self._is_well = is_well
        self._public_url = public_url
        self._console = Console()
        self._base = f"{public_url.prefix}/" if public_url.prefix else "./"
        self._docs = b""
        self._pages = {"/": self._front, "/docs": self._reference, _CONSOLE: self._no_console}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a page, or pass the request on."""
        is_get = scope["type"] == ScopeType.HTTP and scope["method"] == "GET"
        if is_get and await self._send_console(scope, send):
            return
        make = self._pages.get(scope["path"]) if is_get else None
        if make is None or not _takes_html(scope):
            await self._app(scope, receive, send)
            return
        scope["state"][HEADERS] = {b"content-security-policy": CONTENT_POLICY.encode()}
        scope["path_template"] = scope["path"]  # for the line in the log
        body = await make(Request(scope, receive, send))
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"vary", b"accept"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _send_console(self, scope: Scope, send: Send) -> bool:
        """Answer with a file of the console, if the request is for one; return whether it is."""
        place, _, name = scope["path"].removeprefix("/").partition("/")
        if f"/{place}" != _CONSOLE or name == PAGE or not (name or _takes_html(scope)):
            return False
        if scope["path"] == f"{_CONSOLE}/":  # the page's addresses are relative to the other one
            headers = [(b"location", b"../console"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 308, "headers": headers})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return True
        answer = self._console.answer(name or PAGE, scope)
        if answer is None:
            return False
        scope["state"][HEADERS] = answer.own
        scope["path_template"] = f"{_CONSOLE}/{{file}}" if name else _CONSOLE
        status, headers = answer.status, answer.headers
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})
        return True

    async def _front(self, request: Request[Any, Any, Any]) -> bytes:
        body = _FRONT.format(
            state=_WELL if await self._is_well() else _ILL,
            url=self._public_url.of(request),
            base=self._base,
            version=__version__,
        )
        return _page("memrelay", body)

    async def _no_console(self, _: Request[Any, Any, Any]) -> bytes:
        return _page("The console is not built", _NO_CONSOLE.format(base=self._base))

    async def _reference(self, _: Request[Any, Any, Any]) -> bytes:
        if not self._docs:  # anybody may ask for it, so it is made once
            shown = reference(json.loads(self._document()))
            body = _DOCS.format(reference=shown, base=self._base, version=__version__)
            self._docs = _page("The API of memrelay", body)
        return self._docs


def _page(title: str, body: Markup) -> bytes:
    page = _PAGE.format(title=title, style=STYLE, body=body, version=__version__)
    return page.encode()


def _takes_html(scope: Scope) -> bool:
    """Return whether a request's `Accept` names HTML, as every browser's does."""
    listed = (header(scope, b"accept") or "").lower().split(",")
    for media_type, *parameters in (one.split(";") for one in listed):
        weights = [one.strip() for one in parameters if one.strip().startswith("q=")]
        if media_type.strip() == "text/html":
            return not any(weight.strip("q=0.") == "" for weight in weights)
    return False
