"""The command console: people's own copy of the page that shows them their memory.

It does not own what is served (`console_server.py`), or the page (`client/console/`).
"""

import signal
import sys
import threading
import webbrowser
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager

from memrelay.commands.console_server import Forwarding, read_files, serve
from memrelay.commands.parsers import Adder, parse_nonempty, whole
from memrelay.commands.shell import Shell
from memrelay.config import VARIABLES, parse_switch, profile_path, read_profile
from memrelay.errors import ConfigError


def register(add: Adder) -> None:
    """Add the command console."""
    _add_options(add("console", console, namespace=False, agent=False))


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "url", nargs="?", type=parse_nonempty, help="the relayer (else the profile's)"
    )
    parser.add_argument(
        "--port", type=whole(0, 65535), default=0, metavar="N", help="where to listen; 0: any port"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def console(shell: Shell) -> None:
    """Serve the console here, for a browser on this machine.

    It is the page that relayers serve at /console, from this installation, so that no relayer's
    operator can alter it. It passes what the page asks on to the relayer. It reads no key: the
    page takes those from you, and keeps them in the browser.
    """
    files = read_files()
    url, allow_insecure = _find_relayer(shell)
    forwarding = Forwarding(url, allow_insecure=allow_insecure)
    try:
        with _await_signal() as stop, serve(files, forwarding, shell.args.port) as port:
            address = f"http://localhost:{port}/console"
            value = {"url": address, "relayer": url, "sha256": files.sha256}
            lines = [
                f"console   {address}",
                f"relayer   {url}",
                f"sha256    {files.sha256}, of the page, which pins its script and style",
                "advice    open it in a browser on this machine; Ctrl-C ends it",
            ]
            shell.show(value, lines)
            sys.stdout.flush()
            if shell.args.open:
                webbrowser.open(address)
            stop.wait()
    finally:
        forwarding.close()


@contextmanager
def _await_signal() -> Iterator[threading.Event]:
    """Yield what is set once somebody ends the command."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _find_relayer(shell: Shell) -> tuple[str, bool]:
    """Return the relayer's URL, and if it may be plain http beyond this machine."""
    path = profile_path(shell.args.profile, shell.environ)
    values = read_profile(path, missing_ok=True)
    url = shell.args.url or shell.environ.get("MEMRELAY_URL") or values.get("url")
    if not isinstance(url, str):
        raise ConfigError(
            "Name the relayer: `memrelay console URL`. With a profile, its relayer is taken."
        )
    said = shell.environ.get(VARIABLES["allow_insecure"]) or values.get("allow_insecure", False)
    return url, parse_switch(said)
