"""The commands that tell what happens: events as they come, and the webhooks that are told of them.

It does not own the stream (`events.py` of the package) or the check at the other end
(`webhooks.py`).
"""

import json
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Iterator, Sequence

from memrelay.commands.ids import find_among
from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell, text_of
from memrelay.commands.tables import Column
from memrelay.errors import ConfigError, MemrelayError, NotFound
from memrelay.events import Event, parse_place
from memrelay.local_time import when
from memrelay.sync_client import SyncMemoryClient
from memrelay.webhooks import EVENTS, Webhook


def register(add: Adder) -> None:
    """Add the commands that tell what happens."""
    _add_events(add("events", events, namespace=False))
    hooks = add.group("webhooks", "Have a web server told what happens to the account.")
    hooks("list", list_webhooks, namespace=False, agent=False)
    _add_webhook(hooks("add", add_webhook, namespace=False, agent=False))
    for name, command in (("remove", remove_webhook), ("test", try_webhook)):
        added = hooks(name, command, namespace=False, agent=False)
        added.add_argument("id", help="the webhook's id; 8 digits suffice")


def _add_events(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--after",
        type=_place,
        metavar="PLACE",
        help="from after this: an event's `place`, or a receipt's number; 0: from the beginning",
    )
    parser.add_argument("--follow", action="store_true", help="go on with what is yet to happen")


def _place(text: str) -> str:
    try:
        return parse_place(text)
    except ConfigError:
        raise ArgumentTypeError("a receipt's number, or the place of an event") from None


def _add_webhook(parser: ArgumentParser) -> None:
    parser.add_argument(
        "url",
        help="where to post; https, unless the relayer allows its network; "
        "-: read from standard input, as other users of this machine can see arguments",
    )
    parser.add_argument(
        "--id",
        dest="webhook_id",
        metavar="ID",
        help="change this one, keeping its secret and what is not named",
    )
    parser.add_argument(
        "--event", action="append", choices=EVENTS, metavar="TYPE",
        help=f"only these; repeatable: {', '.join(EVENTS)}",
    )  # fmt: skip
    parser.add_argument(
        "--only", action="append", metavar="NAMESPACE", help="only of these; repeatable"
    )
    parser.add_argument(
        "--paused", action=BooleanOptionalAction, help="tell nothing for now, or tell again"
    )
    parser.add_argument("--new-secret", action="store_true", help="replace its secret")


def events(shell: Shell) -> None:
    """Show what happened, by ids; with --follow, what happens.

    With --json, there is one value a line.
    """
    args = shell.args
    after = 0 if args.after is None and not args.follow else args.after
    with shell.client(is_long=args.follow) as client:
        for event in client.events(after=after, follow=args.follow):
            line = json.dumps(event.to_json()) if args.json else _line(event)
            shell.say(line)


def _line(event: Event) -> str:
    where = event.namespace or "-"
    return f"{when(event.time)}  {event.type}  {where}  {' '.join(event.ids)}"


def list_webhooks(shell: Shell) -> None:
    """List the account's webhooks, and how telling them goes."""
    with shell.client() as client:
        found = client.list_webhooks()
    value = {"webhooks": [hook.to_json() for hook in found]}
    shell.show_table(value, _COLUMNS, [*map(_row, found)])


_COLUMNS = (
    Column("ID", is_id=True),
    Column("STATE"),
    Column("HOST"),
    Column("EVENTS", is_text=True),
    Column("NAMESPACES", rank=1),
    Column("TROUBLE"),
)


def _summary(hook: Webhook) -> str:
    return "  ".join(filter(None, _row(hook)))


def _row(hook: Webhook) -> Sequence[str]:
    state = "active" if hook.active else "paused"
    trouble = f"{hook.problem} ({hook.attempts} times)" if hook.problem else ""
    only = "" if hook.namespaces is None else f"only of {', '.join(hook.namespaces)}"
    return (hook.id, state, hook.host, " ".join(hook.events), only, trouble)


def add_webhook(shell: Shell) -> None:
    """Have a URL told what happens from now on; its secret is shown once."""
    args = shell.args
    url = text_of([args.url]).strip()
    with shell.client() as client:
        was = _webhook(client, args.webhook_id) if args.webhook_id is not None else None
        paused = args.paused if args.paused is not None else was is not None and not was.active
        made = client.put_webhook(
            url,
            webhook_id=None if was is None else was.id,
            events=args.event or (was.events if was else EVENTS),
            namespaces=args.only or (was.namespaces if was else None),
            active=not paused,
            new_secret=args.new_secret,
        )
    once = {} if made.secret is None else {"secret": made.secret}
    shell.show(made.to_json() | once, _format_webhook(made))


def _webhook(client: SyncMemoryClient, webhook_id: str) -> Webhook:
    hooks = client.list_webhooks()
    wanted = find_among(webhook_id, lambda: [hook.id for hook in hooks], "webhooks").lower()
    for hook in hooks:
        if hook.id == wanted:
            return hook
    raise NotFound("No such webhook.", status=404, code="not_found")


def _find_webhook(client: SyncMemoryClient, given: str) -> str:
    return find_among(given, lambda: [hook.id for hook in client.list_webhooks()], "webhooks")


def _format_webhook(hook: Webhook) -> Iterator[str]:
    yield _summary(hook)
    if hook.secret is not None:
        yield f"Its secret, shown only here: {hook.secret}"


def remove_webhook(shell: Shell) -> None:
    """Remove a webhook."""
    with shell.client() as client:
        gone = client.remove_webhook(_find_webhook(client, shell.args.id))
    shell.show(gone.to_json(), [f"{gone.id}  {'removed' if gone.removed else 'not found'}"])
    if not gone.removed:
        raise NotFound("No such webhook.", status=404, code="not_found")


def try_webhook(shell: Shell) -> None:
    """Tell a webhook that this is a test, and show whether it takes it."""
    with shell.client() as client:
        trial = client.try_webhook(_find_webhook(client, shell.args.id))
    shell.show(trial.to_json(), [f"{trial.id}  {trial.problem or f'taken ({trial.status})'}"])
    if not trial.delivered:
        raise MemrelayError(f"The webhook did not take it: {trial.problem}.")
