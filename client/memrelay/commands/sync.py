"""The command that keeps two relayers of an account in step.

It does not own the order of steps (`replication/`) or exit codes (`cli.py`).
"""

import hashlib
import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memrelay.commands.parsers import Adder, public_key
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import Settings, expand_home, trust_store_path
from memrelay.errors import (
    ConfigError,
    MemrelayError,
    NotAuthenticated,
    NotGranted,
    RateLimited,
    TransportError,
    Unavailable,
    UntrustedRelayer,
)
from memrelay.plurals import format_count
from memrelay.replication.agreement import Agreement, agreement_path, held_agreement
from memrelay.replication.replicator import Outcome, Replicator
from memrelay.replication.side import Side
from memrelay.sealed.keys import normalise_namespace
from memrelay.sealed.objects import from_base64
from memrelay.sync_client import SyncMemoryClient
from memrelay.unix_sockets import parse_socket

_DEADLINE_S = 300.0  # rate limits count minutes, and a long sync sits some of them out
_POLL_S, _POLL_S_MAX = 1.0, 30.0
_NOUNS = {
    "new": "new memory",
    "revisions": "newer revision",
    "erased": "erasure",
    "states": "state",
}


def register(add: Adder) -> None:
    """Add the command."""
    _add_sync(add("sync", sync, namespace=False, agent=False))


def _add_sync(parser: ArgumentParser) -> None:
    parser.add_argument(
        "other", metavar="OTHER", help="the profile of the account at the other relayer, or its URL"
    )
    parser.add_argument(
        "--namespace", action="append", metavar="NAME", help="only this one; repeatable"
    )
    parser.add_argument("--follow", action="store_true", help="go on, as long as it runs")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument(
        "--found", action="store_true", help="found the account there first, as its founder"
    )
    parser.add_argument(
        "--relayer-key", type=public_key, metavar="KEY", help="the key of the relayer at a URL"
    )
    parser.add_argument("--token", help="for --found, where the relayer asks newcomers for one")


def sync(shell: Shell) -> None:
    """Bring two relayers of the account into step.

    Both have the same memories afterwards. Keys stay where they are. With --follow and --json,
    there is one value a line.
    """
    args = shell.args
    if args.follow and args.dry_run:
        raise ConfigError("Choose either --follow or --dry-run.")
    names = None if not args.namespace else sorted(set(map(normalise_namespace, args.namespace)))
    with _opened_pair(shell) as pair:
        if not args.follow:
            outcome = pair.sync(names, is_dry=args.dry_run)
            shell.show(pair.describe(outcome, is_dry=args.dry_run), pair.format_lines(outcome))
            return _refuse_unsettled(outcome)
        _follow(shell, pair, names)


@dataclass
class _Pair:
    """Both relayers, and what they agreed on."""

    sides: tuple[Side, Side]
    agreement: Agreement

    def sync(self, names: Sequence[str] | None, *, is_dry: bool = False) -> Outcome:
        """Bring them into step once."""
        for side in self.sides:
            side.refresh()
        _check_keys(self.sides)
        with ProgressLine(sys.stderr, "brought", "change") as progress:
            replicator = Replicator(self.sides, self.agreement, progress=progress, is_dry=is_dry)
            return replicator.run(names)

    def describe(self, outcome: Outcome, *, is_dry: bool) -> dict[str, Any]:
        """Return what came of it as JSON."""
        return {
            "relayers": [
                {
                    "url": side.url,
                    "relayer_key": side.relayer.hex(),
                    **{name: outcome.taken[n][name] for name in _NOUNS},
                }
                for n, side in enumerate(self.sides)
            ],
            "conflicts": outcome.conflicts,
            "unsettled": [{"id": i, "why": why} for i, why in sorted(outcome.unsettled.items())],
            "dry_run": is_dry,
        }

    def format_lines(self, outcome: Outcome) -> Iterator[str]:
        """Yield what came of it, for people."""
        for n, side in enumerate(self.sides):
            taken = outcome.taken[n]
            told = [format_count(taken[name], noun) for name, noun in _NOUNS.items() if taken[name]]
            yield f"{side.url}: {', '.join(told) or 'nothing new'}"
        if outcome.conflicts:
            count = format_count(len(outcome.conflicts), "memory")
            yield f"Both edits of {count} are kept; `memrelay review` shows them."
        for item, why in sorted(outcome.unsettled.items()):
            yield f"{item}: {why}"


def _refuse_unsettled(outcome: Outcome) -> None:
    if outcome.unsettled:
        count = format_count(len(outcome.unsettled), "memory")
        raise MemrelayError(f"{count} could not be brought into step.")


@contextmanager
def _opened_pair(shell: Shell) -> Iterator[_Pair]:
    settings, other = shell.settings(), _find_other(shell)
    if other.account_id != settings.account_id:
        raise ConfigError(
            "The two profiles are of different accounts; what is sealed names its account, so only"
            " one account can be at both relayers."
        )
    with ExitStack() as stack:
        here, there = (
            stack.enter_context(shell.client(one, is_long=True, deadline_s=_DEADLINE_S))
            for one in (settings, other)
        )
        if here.statement().relayer == _read_key(there):
            raise ConfigError("Both are the same relayer; name another one.")
        if shell.args.found and not shell.args.dry_run:
            _found(shell, here, there)
        sides = (Side(here), _open_other(there))
        relayers = (sides[0].relayer.hex(), sides[1].relayer.hex())
        path = agreement_path(shell.profile_path(), settings.account_id, relayers)
        yield _Pair(sides, stack.enter_context(held_agreement(path, relayers)))


def _find_other(shell: Shell) -> Settings:
    """Return the settings at the other relayer: those of a profile, or these keys at a URL."""
    other, settings = shell.args.other, shell.settings()
    if "://" not in other and parse_socket(other) is None:
        return Settings.load(expand_home(other), environ={})
    digest = hashlib.blake2b(other.encode(), digest_size=4).hexdigest()
    profile = shell.profile_path()
    beside = profile.with_name(f"{profile.stem}.{digest}{profile.suffix}")
    seen: Path | None = None
    if settings.seen_path is not None:
        seen = trust_store_path(beside, settings.account_id)
    return replace(
        settings, url=other, relayer_key=shell.args.relayer_key, custody="auto", seen_path=seen
    )


def _found(shell: Shell, here: SyncMemoryClient, there: SyncMemoryClient) -> None:
    """Found the account at the other relayer with the grant that it began with."""
    [first, *_], _ = here.export_page("grants")
    with shell.newcomer() as token:
        there.found_again(
            grant=from_base64(first["object"], "grant"),
            label=here.account().label or "",
            token=token,
        )


def _read_key(there: SyncMemoryClient) -> bytes:
    """Return the other relayer's key.

    Raises:
        UntrustedRelayer: it is not the one that is pinned there, whatever this profile pins.
    """
    try:
        return there.statement().relayer
    except UntrustedRelayer as error:
        raise UntrustedRelayer("other", f"{there.settings.url}: {error}") from error


def _open_other(client: SyncMemoryClient) -> Side:
    try:
        return Side(client)
    except NotAuthenticated as error:
        raise NotGranted(
            "The account is not at the other relayer, or not with this key. Its founder types"
            " `memrelay sync OTHER --found`."
        ) from error


def _check_keys(sides: tuple[Side, Side]) -> None:
    """Return if both relayers know the same epochs, and this key owns the account at both.

    Raises:
        NotGranted: it does not.
        MemrelayError: keys were rotated at one of them alone.
    """
    rings = [side.opener.keyring for side in sides]
    if any("owner" not in ring.roles for ring in rings):
        raise NotGranted("Only an owner's key brings two relayers into step.")
    ids = [{root.epoch: root.root_id for root in ring.roots()} for ring in rings]
    if any(ids[1].get(epoch, root) != root for epoch, root in ids[0].items()):
        raise MemrelayError(
            "The account has other keys at the other relayer: what one sealed does not open there."
        )
    if rings[0].epoch != rings[1].epoch:
        ahead = 0 if rings[0].epoch > rings[1].epoch else 1
        raise MemrelayError(
            f"Keys were rotated at {sides[ahead].url} alone, and keys do not travel by a sync."
            f" Write an archive there and import it at {sides[1 - ahead].url}."
        )


def _follow(shell: Shell, pair: _Pair, names: Sequence[str] | None) -> None:
    """Bring both into step again whenever something happened at one, until the command is ended."""
    pause_s, is_away = _POLL_S, False
    while True:
        try:
            outcome = pair.sync(names)
            if outcome.count or outcome.unsettled:
                value = pair.describe(outcome, is_dry=False)
                lines = [json.dumps(value)] if shell.args.json else pair.format_lines(outcome)
                for line in lines:
                    shell.say(line)
            if is_away:
                warn("Both relayers answer again.")
            pause_s, is_away = _POLL_S, False
            _wait_for_news(pair, outcome)
        except (TransportError, Unavailable, RateLimited) as error:
            if not is_away:
                warn(f"{' '.join(str(error).split()).removesuffix('.')}; trying again.")
            is_away = True
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_S_MAX)


def _wait_for_news(pair: _Pair, outcome: Outcome) -> None:
    """Return once either chain of receipts has gone on from where it was read to."""
    pause_s = _POLL_S
    while True:
        for side, end in zip(pair.sides, outcome.ends, strict=True):
            page = side.client.receipt_page(end.seq, 1)
            if (page.seq, page.head) != (end.seq, end.head.hex()):
                return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_S_MAX)
