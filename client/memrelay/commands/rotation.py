"""The command rotate: new keys for the whole account, and its memories sealed under them.

It does not own the rotation itself (`operations/rotation.py`).

- Rotation is done as soon as the relayer has accepted it; what follows, sealing anew, may be
  interrupted anywhere and goes on with --resume.
"""

import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from memrelay.commands.key_choice import (
    KEY_HELP,
    YES_HELP,
    ChosenKey,
    choose_keys,
    end_agents,
)
from memrelay.commands.parsers import Adder
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.errors import ConfigError, Conflict, MemrelayError
from memrelay.local_time import when
from memrelay.models import Rotation
from memrelay.operations.rotation import RESEALS
from memrelay.sync_client import SyncMemoryClient

_POLL_S, _POLL_S_MAX = 0.25, 2.0
_STALLED_S = 120.0  # without any progress: what is left cannot be opened for now
_WHY = {"missing": "its stored bytes are missing", "later": "it is of a later release"}


def register(add: Adder) -> None:
    """Add the command."""
    _add_arguments(add("rotate", rotate, namespace=False, agent=False))


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--revoke",
        action="append",
        metavar="KEY",
        default=[],
        help=f"withdraw it first; repeatable: {KEY_HELP}",
    )
    parser.add_argument(
        "--reseal",
        nargs="?",
        const="all",
        choices=RESEALS,
        help="what is sealed anew: what revoked keys could read (the default), all, or none",
    )
    parser.add_argument(
        "--namespace", action="append", metavar="NAME", help="seal this one anew; repeatable"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the sealing")
    parser.add_argument("--resume", action="store_true", help="go on with sealing, rotate no more")
    parser.add_argument("--status", action="store_true", help="only show how far it is")
    parser.add_argument("--yes", action="store_true", help=YES_HELP)


def rotate(shell: Shell) -> None:
    """Give everybody new keys, and seal memories anew under them.

    Those who are revoked get none.
    """
    args = shell.args
    if args.reseal and args.namespace:
        raise ConfigError("Choose either --reseal or --namespace.")
    if (args.resume or args.status) and args.revoke:
        raise ConfigError("--revoke belongs to a new rotation.")
    if args.status and (args.reseal or args.namespace):
        raise ConfigError("--status changes nothing; --resume takes --reseal and --namespace.")
    with shell.client(is_long=True) as client:
        shown: dict[str, Any] = {}
        going = choose_keys(shell, client, args.revoke) if args.revoke else []
        ended: list[str] = []
        if not args.status:
            shown = _resume(client, shell) if args.resume else _begin(client, shell, going)
            ended = end_agents(shell, client, going)
        progress = client.rotation()
        if not args.status and not args.no_wait:
            progress = _follow(client, progress)
            shown["retired"] = _retire(client, progress)
        shown |= {"epochs": list(client.live_epochs()), "progress": progress.to_json()}
    shell.show(shown, [*_format_revoked(going, ended), *_lines(shown, progress)])
    if progress.remaining and not (args.status or args.no_wait):
        raise MemrelayError(
            f"{progress.remaining} cannot be sealed anew for now: the relayer is busy, or lacks "
            "their stored bytes. `memrelay rotate --resume` tries again."
        )


def _begin(client: SyncMemoryClient, shell: Shell, going: Sequence[ChosenKey]) -> dict[str, Any]:
    rotated = client.rotate(revoke=[key.public_key for key in going], reseal=_choice(shell))
    return rotated.to_json()


def _resume(client: SyncMemoryClient, shell: Shell) -> dict[str, Any]:
    if shell.args.reseal or shell.args.namespace:
        client.reseal(_choice(shell))
    return {}


def _choice(shell: Shell) -> str | Sequence[str]:
    return list(shell.args.namespace or ()) or shell.args.reseal or "revoked"


def _follow(client: SyncMemoryClient, progress: Rotation) -> Rotation:
    """Keep the relayer in keys until nothing is left, or nothing goes on; return how it ended."""
    pause_s, moved_s, left = _POLL_S, time.monotonic(), -1
    try:
        with ProgressLine(sys.stderr, "sealed anew") as line:
            line(progress.done, of=progress.total)
            while progress.remaining:
                if progress.remaining != left:
                    left, moved_s = progress.remaining, time.monotonic()
                stalled = time.monotonic() - moved_s > _STALLED_S
                if stalled or len(progress.blocked) == progress.remaining:
                    break
                time.sleep(pause_s)
                pause_s = min(_POLL_S_MAX, pause_s * 1.5)
                progress = client.rotation(lend=True)
                line(progress.done, of=progress.total)
    except KeyboardInterrupt:
        warn("the new keys count; `memrelay rotate --resume` goes on with sealing anew")
        raise
    return progress


def _retire(client: SyncMemoryClient, progress: Rotation) -> bool:
    """Let the older epochs go if nothing is sealed under them any more; whether they went."""
    if progress.older or len(client.live_epochs()) < 2:
        return False
    try:
        client.retire_epochs()
    except Conflict as error:
        if progress.unrestored and error.code == "epoch.in_use":
            return False  # what is not restored yet needs them
        raise
    return True


def _format_revoked(keys: Sequence[ChosenKey], agents: Sequence[str]) -> list[str]:
    lines = [f"revoked   {key}" for key in keys]
    lines += [f"ended     {name}: its profile is deleted" for name in agents]
    return [*lines, "          old keys open nothing that is new"] if lines else []


def _lines(shown: dict[str, Any], progress: Rotation) -> list[str]:
    lines = [f"epoch     {progress.epoch}, since {when(progress.started_at)}"]
    if progress.total:
        lines.append(f"sealed    {progress.done} of {progress.total} under the newest keys")
    if progress.waiting_for_keys:
        lines.append(f"waiting   {progress.waiting_for_keys} for keys: memrelay rotate --resume")
    lines += [
        f"blocked   {one.id} in {one.namespace}: {_WHY.get(one.problem, one.problem)}"
        for one in progress.blocked
    ]
    if progress.older:
        lines.append(
            f"older     {progress.older} under older keys, which everybody keeps for them;"
            " `memrelay rotate --resume --reseal` ends that"
        )
    elif progress.unrestored and not shown.get("retired"):
        lines.append(
            "older     not known: the relayer lost its database and still restores what it had;"
            " recall in every namespace, then `memrelay rotate --resume`"
        )
    elif progress.epoch > 1:
        lines.append(
            "older     nothing: once the old bytes are erased, in two minutes if no store is away,"
            " no older key opens anything kept here"
        )
    return lines
