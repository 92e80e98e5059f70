"""The surroundings of a command: its arguments, settings, input and output.

It does not own what the commands do. With `--json`, a command prints exactly one JSON value with
the HTTP API's field names; everything else goes to standard error.
"""

import io
import json
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from memrelay.client import Limits, SyncMemoryClient
from memrelay.config import Settings, agent_path, profile_path
from memrelay.errors import ConfigError, MemrelayError, NotAllowed
from memrelay.exchange import Repeating


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
            raise ConfigError(f"There is no profile at {path}; make one with `{command}`.")
        return path

    def client(
        self, settings: Settings | None = None, **limits: Unpack[Limits]
    ) -> SyncMemoryClient:
        """Return a client of these settings, the command's own by default."""
        return SyncMemoryClient.from_settings(
            settings or self.settings(), repeating=self.repeating(), **limits
        )

    @contextmanager
    def newcomer(self) -> Iterator[str | None]:
        """Yield the token that a relayer may ask of whoever founds an account, if one was given.

        Raises:
            NotAllowed: as the relayer said; for want of that token, with where to get and put it.
        """
        try:
            yield self.args.token or self.environ.get("MEMRELAY_TOKEN")
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

    def repeating(self) -> Repeating:
        """Return what tells a person at the terminal, once, why a request is sent again."""
        told = self.args.json or not sys.stderr.isatty()

        def tell(error: MemrelayError) -> None:
            nonlocal told
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
        print(f"{_printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise MemrelayError(otherwise)

    def say(self, line: str) -> None:
        """Print one line at once, of a command that goes on."""
        print(_printable(line), flush=True)

    def show(self, value: Any, lines: Iterable[str]) -> None:
        """Print a value as JSON with `--json`, else the lines made for people."""
        if self.args.json:
            print(json.dumps(value, ensure_ascii=ascii_only(), indent=2))
            return
        for line in lines:
            print(_printable(line))


def _printable(text: str) -> str:
    # A stored text must not be able to steer the terminal.
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


def warn(text: str) -> None:
    """Print one line for people beside the output."""
    print(f"memrelay: {_printable(text)}", file=sys.stderr)


def ascii_only() -> bool:
    """Whether JSON on standard output is to have nothing but ASCII.

    JSON may hold control characters as they are, and a terminal would obey them; an encoding may
    lack other characters.
    """
    return sys.stdout.isatty() or (sys.stdout.encoding or "").lower()[:3] != "utf"


def open_streams() -> None:
    """Let standard streams take any text, and be there if they were closed.

    Raises:
        MemrelayError: standard output is closed, so that nothing could be shown.
    """
    shown = sys.stdout is not None
    # In this order they take the numbers that are free, which no other file must get.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if not shown:
        raise MemrelayError("Standard output is closed; to see nothing, send it to /dev/null.")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As on standard error: what its encoding lacks is readable still, and nothing is lost.
        sys.stdout.reconfigure(errors="backslashreplace")


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
