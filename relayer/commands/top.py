"""`relayer top`: what a running relayer does, again and again.

Not here: what is shown (`relayer.monitoring.top`).

- It asks one address, by one token, and follows nobody elsewhere with it.
- Ctrl-C leaves the terminal as it was.
"""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from relayer.commands.failures import Exit
from relayer.commands.options import json_option, settings_options, terminal_width
from relayer.commands.parsers import Command
from relayer.monitoring.top import Figures, NoMetrics, Reading, as_lines, parse
from relayer.run_file import SOCKET_SCHEME, find_url, split_socket_url
from relayer.tables import cut

EVERY_S: Final = 2.0
TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 16 * 2**20
_DEFAULT_URL: Final = "http://127.0.0.1:8000"
_ENTER: Final = "\x1b[?1049h\x1b[?25l"  # a screen of its own, without a cursor
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


class _Away(Exception):
    """The relayer did not answer; the message says how."""


@click.command("top", cls=Command)
@settings_options("data_dir", "metrics_token")
@click.option("--url", default="", help="Relayer to ask; default: the one of this data folder.")
@click.option("--once", is_flag=True, help="Print once, without a screen; as if into a pipe.")
@json_option
def top_command(data_dir: Path, metrics_token: str, url: str, once: bool, as_json: bool) -> None:
    """Show what a running relayer does, every two seconds.

    That is requests, their stages, models, jobs, connections and caches.
    """
    url = (url or find_url(data_dir) or _DEFAULT_URL).rstrip("/")
    if not url.startswith(("http://", "https://", SOCKET_SCHEME)):
        raise Exit(2, "--url begins with http://, https:// or unix://")
    try:
        if once or as_json or not sys.stdout.isatty():
            _print_once(url, metrics_token, as_json=as_json)
        else:
            _watch(url, metrics_token)
    except _Away as error:
        raise Exit(1, str(error)) from None


def _print_once(url: str, token: str, *, as_json: bool) -> None:
    told = Figures(_read(url, token), None).as_json()
    text = (
        json.dumps(told)
        if as_json
        else "\n".join(as_lines(told, title=url, width=terminal_width()))
    )
    click.echo(text)


def _watch(url: str, token: str) -> None:
    """Show it until Ctrl-C."""
    before: Reading | None = None
    now = _read(url, token)  # who cannot be reached at first had better be told at once
    with _screen(), contextlib.suppress(KeyboardInterrupt):
        while True:
            if now is not before:
                width, _ = shutil.get_terminal_size()
                _draw(as_lines(Figures(now, before).as_json(), title=url, width=width))
            before = now
            time.sleep(EVERY_S)
            try:
                now = _read(url, token)
            except _Away as error:
                _draw([str(error), "", "asking again; Ctrl-C ends"])


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    """Yield a screen of our own, given back however it ends."""
    click.echo(_ENTER, nl=False)
    try:
        yield
    finally:
        click.echo(_LEAVE, nl=False)


def _draw(lines: list[str]) -> None:
    width, height = shutil.get_terminal_size()
    room = height - 1
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines: a higher terminal"]
    shown = [cut(line, width) + _REST_OF_LINE for line in lines]
    click.echo(_HOME + "\r\n".join(shown) + _REST_OF_SCREEN, nl=False)


def _read(url: str, token: str) -> Reading:
    """Read the relayer's metrics as they are now.

    Raises:
        _Away: it does not answer, or not that.
    """
    import httpx2  # noqa: PLC0415  # other commands need no HTTP

    headers = {"authorization": f"Bearer {token}"} if token else {}
    base, socket = split_socket_url(url)
    way = httpx2.HTTPTransport(uds=socket) if socket else None
    try:
        with (
            httpx2.Client(trust_env=False, timeout=TIMEOUT_S, transport=way) as client,
            client.stream("GET", f"{base}/metrics", headers=headers) as answer,
        ):
            if answer.status_code != 200:
                raise _Away(_refusal(url, answer.status_code))
            body = b""
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    raise _Away(f"{url}/metrics answers far too much")
        return parse(body.decode("utf-8", "replace"), time.monotonic())
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        raise _Away(f"no relayer answers at {url}; `relayer doctor` says more") from error
    except NoMetrics as error:
        raise _Away(f"{url}/metrics: {error}") from None


def _refusal(url: str, status: int) -> str:
    if status == 403:
        return f"{url}/metrics wants its token: --metrics-token or RELAYER_METRICS_TOKEN"
    return f"{url}/metrics answers {status}"
