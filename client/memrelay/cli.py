"""The command `memrelay`: its arguments, one-line errors and exit codes.

It does not own what the commands do (`commands.py`, `account_commands.py`). Private keys come from
the profile or the environment, never from arguments, which other users of a machine can see.
"""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memrelay import __version__, account_commands, commands
from memrelay.errors import ConfigError, Invalid, MemrelayError, NotFound
from memrelay.models import KINDS
from memrelay.shell import Shell, warn

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_INTERRUPTED = 0, 1, 2, 3, 130

_EPILOG = """\
settings:
  MEMRELAY_URL, MEMRELAY_ACCOUNT_ID, MEMRELAY_PRIVATE_KEY, MEMRELAY_NAMESPACE,
  MEMRELAY_RELAYER_KEY, MEMRELAY_CUSTODY (auto, sealed, managed), or a profile file (mode 0600):
  --profile, MEMRELAY_PROFILE, else ~/.config/memrelay/profile.json. The environment wins.

exit codes:
  0  done; a recall that finds nothing is done, too
  1  the relayer refused, was not reached or is not to be trusted
  2  wrong arguments or settings
  3  no such memory or key
"""


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run a command and return its exit code."""
    args = build_parser().parse_args(argv)
    shell = Shell(args, os.environ if environ is None else environ)
    try:
        args.command(shell)
        sys.stdout.flush()
    except (MemrelayError, ValueError) as error:
        warn(" ".join(str(error).split()))
        return _exit_code(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has enough; nothing may complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return EXIT_OK


def _exit_code(error: Exception) -> int:
    if isinstance(error, NotFound):
        return EXIT_NOT_FOUND
    # A plain `Invalid` here is about an argument; what a relayer sends raises its subclasses.
    usage = isinstance(error, ConfigError | ValueError) or type(error) is Invalid
    return EXIT_USAGE if usage else EXIT_FAILED


def build_parser() -> ArgumentParser:
    """Return the parser of all commands."""
    parser = ArgumentParser(
        prog="memrelay",
        description="Long-term memory for AI agents that nobody else can read.",
        epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"memrelay {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        name: str, command: Callable[[Shell], None], to: Any = subparsers, namespace: bool = True
    ) -> ArgumentParser:
        added: ArgumentParser = to.add_parser(
            name, help=command.__doc__, description=command.__doc__
        )
        added.set_defaults(command=command)
        added.add_argument("--json", action="store_true", help="print one JSON value")
        added.add_argument("--profile", metavar="PATH", help="the profile file")
        if namespace:
            added.add_argument("--namespace", metavar="NAME", help="instead of the profile's")
        return added

    _add_init(add("init", account_commands.init))
    _add_remember(add("remember", commands.remember))
    _add_recall(add("recall", commands.recall))
    _add_analyze(add("analyze", commands.analyze))
    _add_ask(add("ask", commands.ask))
    _add_list(add("list", commands.list_memories))
    add("get", commands.get).add_argument("id", help="the memory's id")
    add("forget", commands.forget).add_argument("id", nargs="+", help="the memories' ids")
    add("status", account_commands.status)
    add("namespaces", account_commands.namespaces)
    add("receipts", account_commands.receipts)
    add("trust", account_commands.trust).add_argument(
        "relayer_key", help="the relayer's public key"
    )
    keys = subparsers.add_parser("keys", help="Show, add or revoke the keys of the account.")
    actions = keys.add_subparsers(metavar="ACTION", required=True)
    add("list", account_commands.keys_list, actions)
    _add_keys_add(add("add", account_commands.keys_add, actions, namespace=False))
    revoke = add("revoke", account_commands.keys_revoke, actions)
    revoke.add_argument("key", help="public key, its beginning, or label")
    return parser


def _add_init(parser: ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", help="the relayer (else MEMRELAY_URL)")
    parser.add_argument(
        "--custody",
        choices=("sealed", "managed"),
        default="sealed",
        help="sealed (default): the relayer cannot read without you; managed: it can",
    )
    parser.add_argument("--label", help="a name for the account")
    parser.add_argument("--token", help="what the relayer asks of newcomers (or MEMRELAY_TOKEN)")
    parser.add_argument("--relayer-key", metavar="HEX", help="insist on this relayer")
    parser.add_argument("--allow-insecure", action="store_true", help="plain http beyond here")
    parser.add_argument("--force", action="store_true", help="replace the profile")


def _add_remember(parser: ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", help="the text (else standard input)")
    parser.add_argument(
        "--jsonl", metavar="FILE", help="one JSON object with a text per line, or -"
    )
    parser.add_argument("--concurrency", type=int, default=4, help="requests at once (4)")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--tag", action="append", metavar="TAG", help="may be repeated")
    parser.add_argument("--source")
    parser.add_argument("--event-time", metavar="TIME", help="RFC 3339, with an offset")
    parser.add_argument("--metadata", action="append", type=_pair, metavar="KEY=VALUE")
    parser.add_argument("--importance", choices=("vital", "standard", "trivial"))
    parser.add_argument("--confidence", choices=("high", "medium", "low"))
    parser.add_argument("--expires-at", metavar="TIME", help="RFC 3339, with an offset")
    parser.add_argument("--idempotency-key", metavar="KEY", help="store once, however often sent")
    parser.add_argument(
        "--wait",
        type=float,
        nargs="?",
        const=60.0,
        metavar="SECONDS",
        help="until it is found by meaning, too",
    )


def _add_recall(parser: ArgumentParser) -> None:
    parser.add_argument("query", nargs="*", help="the query (else standard input)")
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("--mode", choices=("hybrid", "keyword", "vector"))
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be repeated")
    parser.add_argument("--tag", action="append", metavar="TAG", help="may be repeated")
    parser.add_argument("--source")
    parser.add_argument("--after", metavar="TIME", help="RFC 3339, with an offset")
    parser.add_argument("--before", metavar="TIME", help="RFC 3339, with an offset")
    parser.add_argument("--min-relevance", type=float, default=0.3, help="0 to 1 (0.3)")
    parser.add_argument("--explain", action="store_true", help="say why each one was found")


def _add_analyze(parser: ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", help="the text (else standard input)")
    parser.add_argument("--occurred-at", metavar="TIME", help="what relative dates count from")
    parser.add_argument("--source")


def _add_ask(parser: ArgumentParser) -> None:
    parser.add_argument("question", nargs="*", help="the question (else standard input)")
    parser.add_argument("--limit", type=int, default=5, help="memories to consult (5)")


def _add_list(parser: ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--cursor", help="where the last page ended")
    parser.add_argument("--kind", choices=KINDS)


def _add_keys_add(parser: ArgumentParser) -> None:
    parser.add_argument("--namespace", action="append", metavar="NAME", help="may be repeated")
    parser.add_argument("--whole-account", action="store_true", help="every namespace")
    parser.add_argument("--role", choices=("owner", "writer", "reader"), default="writer")
    parser.add_argument("--label", help="a name for the key")
    parser.add_argument("--expires-days", type=float, metavar="DAYS")
    parser.add_argument("--out", metavar="PATH", help="write the key's own profile there")


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise ArgumentTypeError("metadata is KEY=VALUE")
    return key, value
