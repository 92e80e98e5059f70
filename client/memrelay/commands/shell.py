"""The surroundings of a command: its arguments, settings, input and output.

It does not own what the commands do. With `--json`, a command prints exactly one JSON value with
the HTTP API's field names; everything else goes to standard error.
"""

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from memrelay.client import Limits
from memrelay.commands.streams import ascii_only, printable, warn
from memrelay.config import Settings, agent_path, agent_paths, is_loopback, profile_path
from memrelay.errors import ConfigError, MemrelayError, NotAllowed, Starting
from memrelay.exchange import Repeating, is_refused
from memrelay.sync_connection import SyncConnection
from memrelay.transport import httpx
from memrelay.unix_sockets import parse_socket

if TYPE_CHECKING:
    from memrelay.commands.tables import Column
    from memrelay.sync_client import SyncMemoryClient


@dataclass(frozen=True)
class Shell:
    """A command's surroundings: its arguments and the environment."""

    args: Namespace
    environ: Mapping[str, str]

    def settings(self) -> Settings:
        """Return the settings of this command."""
        namespace = getattr(self.args, "namespace", None)
        chosen = namespace if isinstance(namespace, str) else None
        agent = getattr(self.args, "agent", None)
        if agent is None:
            return Settings.load(self.args.profile, environ=self.environ, namespace=chosen)
        # Who names an agent means its key, also where the environment holds another one.
        return Settings.load(self.profile_path(), environ={}, namespace=chosen)

    def profile_path(self) -> Path:
        """Return the path of the profile that this command works with.

        Raises:
            ConfigError: it is that of an agent which has none.
        """
        agent = getattr(self.args, "agent", None)
        if agent is None:
            return profile_path(self.args.profile, self.environ)
        path = agent_path(agent, self.args.profile, self.environ)
        if not path.exists():
            owner = ["--profile", self.args.profile] if self.args.profile else []
            command = shlex.join(["memrelay", "agents", "provision", agent, *owner])
            from memrelay.commands.suggestions import suggest  # noqa: PLC0415 - for a slip only

            meant = suggest(agent, agent_paths(self.args.profile, self.environ))
            told = [f"There is no profile at {path}.", meant[:1].upper() + meant[1:]]
            raise ConfigError(" ".join(filter(None, [*told, f"`{command}` makes one."])))
        return path

    def client(
        self, settings: Settings | None = None, *, is_long: bool = False, **limits: Unpack[Limits]
    ) -> "SyncMemoryClient":
        """Return a client of these settings, the command's own by default.

        Of a command that `is_long`, requests are repeated also while the relayer here is restarted.
        """
        from memrelay.sync_client import SyncMemoryClient  # noqa: PLC0415 - with all operations

        chosen = settings or self.settings()
        return SyncMemoryClient.from_settings(
            chosen, repeating=self.make_repeat_notice(chosen.url, is_long=is_long), **limits
        )

    def connection(self) -> SyncConnection:
        """Return what a command runs the operations on that it imports itself."""
        settings = self.settings()
        return SyncConnection.from_settings(
            settings, repeating=self.make_repeat_notice(settings.url)
        )

    @contextmanager
    def newcomer(self) -> Iterator[str | None]:
        """Yield the token that a relayer may ask of whoever founds an account, if one was given.

        Raises:
            NotAllowed: as the relayer said; for want of that token, with where to get and put it.
        """
        try:
            yield getattr(self.args, "token", None) or self.environ.get("MEMRELAY_TOKEN")
        except NotAllowed as error:
            if error.code != "registration.token":
                raise
            raise NotAllowed(
                "This relayer lets nobody in without its token, and this was none: ask its"
                " operator, and set MEMRELAY_TOKEN (or --token, which shows in lists of processes)",
                status=error.status,
                code=error.code,
                request_id=error.request_id,
            ) from None

    def make_repeat_notice(self, url: str, *, is_long: bool = False) -> Repeating:
        """Return what tells a person at the terminal, once, why a request is sent again.

        It raises the error where another attempt is of no use: on this machine, who refuses a
        connection will still do so in some seconds. A long command may outlive a restart.
        """
        told = self.args.json or not sys.stderr.isatty()

        def tell(error: MemrelayError) -> None:
            nonlocal told
            if isinstance(error, Starting):  # it takes seconds, whoever waits
                warn(str(error))
                return
            if not is_long and is_refused(error) and _is_here(url):
                raise error
            if not told:
                warn(f"{' '.join(str(error).split()).removesuffix('.')}; trying again.")
            told = True

        return tell

    def confirm(self, question: str, *, otherwise: str = "Nothing was erased.") -> None:
        """Return if a person at the terminal says yes.

        Raises:
            ConfigError: nobody is there to ask.
            MemrelayError: the answer is no; it says `otherwise`.
        """
        if not sys.stdin.isatty():
            raise ConfigError("Nobody is there to ask; say --yes.")
        print(f"{printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise MemrelayError(otherwise)

    def say(self, line: str) -> None:
        """Print one line at once, of a command that goes on."""
        print(printable(line), flush=True)

    def show(self, value: Any, lines: Iterable[str]) -> None:
        """Print a value as JSON with `--json`, else the lines made for people."""
        if self.args.json:
            print(json.dumps(value, ensure_ascii=ascii_only(), indent=2))
            return
        for line in lines:
            print(printable(line))

    def show_table(
        self, value: Any, columns: "Sequence[Column]", rows: Sequence[Sequence[str]]
    ) -> None:
        """Print a value as JSON with `--json`, else a row a line: a table on a terminal."""
        from memrelay.commands.tables import format_table  # noqa: PLC0415 - for lists alone

        self.show(value, format_table(columns, () if self.args.json else rows))


def _is_here(url: str) -> bool:
    """Return whether a relayer is on this machine, at a port or at a socket."""
    return parse_socket(url) is not None or is_loopback(httpx.URL(url).host)


def text_of(words: Sequence[str]) -> str:
    """Return the text of the arguments, or of standard input without any (or with `-`).

    Raises:
        ConfigError: there is none.
    """
    if words and list(words) != ["-"]:
        text = " ".join(words)
    else:
        text = "" if sys.stdin.isatty() and not words else sys.stdin.read().strip("\n")
    if not text.strip():
        raise ConfigError("Give the text as arguments or on standard input.")
    return text
