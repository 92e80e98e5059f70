"""The command `relayer`: flags and variables in, text or JSON out, exit codes.

Not here: what the commands do (`serve.py`, `provision.py`, `check.py`, `reindex.py`, `doctor.py`,
`model.py`).

Exit codes: 0 done; 1 it failed, or what was checked does not hold; 2 the call needs something else.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Coroutine
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import click

from relayer import __version__, check, provision
from relayer.clock import utc_now
from relayer.embedding import model
from relayer.errors import NotAllowed, RelayerError
from relayer.identity import IdentityError
from relayer.logs import configure
from relayer.postgres.embedded import PostgresError
from relayer.process import forbid_core_files
from relayer.running import running_url
from relayer.sealed.grants import Role
from relayer.sealed.keys import (
    AccountId,
    Identity,
    account_text,
    parse_account,
    parse_namespace,
    parse_public_key,
)
from relayer.sealed.primitives import CryptoError
from relayer.settings import SECRET, Settings, SettingsError, variable
from relayer.storage import Storage, opened

_DAYS: Final = re.compile(r"([1-9][0-9]{0,4})([dhm])")
T = TypeVar("T")
_UNITS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}


def settings_options(*names: str) -> Callable[[Any], Any]:
    """Options for settings, all or those named, each with its variable, unit and default."""

    def decorate(command: Any) -> Any:
        for item in reversed(fields(Settings)):
            if names and item.name not in names:
                continue
            unit = f" [{item.metadata['unit']}]" if item.metadata["unit"] else ""
            command = click.option(
                "--" + item.name.replace("_", "-"),
                item.name,
                type=_click_type(item.type),
                default=item.default,
                envvar=variable(item.name),
                show_envvar=True,
                show_default=item.name not in SECRET and item.default not in ("", None),
                help=item.metadata["text"] + unit,
            )(command)
        return command

    return decorate


def _click_type(annotation: Any) -> Any:
    if get_origin(annotation) is Literal:
        return click.Choice(get_args(annotation))
    return click.Path(path_type=Path, file_okay=False) if annotation is Path else annotation


STORAGE: Final = ("data_dir", "database_url", "key_file", "blob_store")
storage_options = settings_options(*STORAGE)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def settings_of(values: dict[str, Any]) -> Settings:
    """The settings that options and variables give.

    Raises:
        Exit: one is out of range; the message names it.
    """
    try:
        return Settings(**values)
    except SettingsError as error:
        raise Exit(2, str(error)) from None


def show(data: Any, as_json: bool, text: Callable[[], str]) -> None:
    """Print for a script or for a person."""
    click.echo(json.dumps(data) if as_json else text())


def run(work: "Coroutine[Any, Any, T]") -> T:
    """Run a command's work; its expected failures become one line and an exit code."""
    try:
        return asyncio.run(work)
    except NotAllowed as error:
        raise Exit(2, f"{error.message}{_way_out(error)}") from None
    except RelayerError as error:
        raise Exit(1, error.message) from None
    except (SettingsError, IdentityError, PostgresError, CryptoError) as error:
        raise Exit(1, str(error)) from None


def _way_out(error: NotAllowed) -> str:
    if error.code != "owner_key_required":
        return ""
    return " Give it with --owner-key-file FILE or in RELAYER_OWNER_KEY; it is used in memory only."


class Exit(click.ClickException):
    """A failure with its exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click declares it for the class and reads it so


@click.group(context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="relayer")
def main() -> None:
    """Long-term memory for AI agents that nobody else can read: the server."""
    forbid_core_files()


@main.command("serve")
@settings_options()
def serve_command(**values: Any) -> None:
    """Migrate, then serve in the foreground; prints one line with "ready" and the URL."""
    from relayer.serve import serve  # noqa: PLC0415  # other commands need no model

    settings = settings_of(values)
    configure(settings.log_level)
    if settings.rate_limit == "off":
        click.echo("WARNING: request limits are OFF. Benchmarks only.", err=True)
    run(serve(settings, lambda url: click.echo(f"relayer {__version__} ready at {url}")))


@main.group()
def account() -> None:
    """Accounts on this relayer."""


@account.command("create")
@storage_options
@click.option("--label", default="", help="A name for people.")
@click.option(
    "--custody",
    type=click.Choice(["managed", "sealed"]),
    default="sealed",
    show_default=True,
    help="managed: the relayer may use the keys (MemWal's clients need it); sealed: clients only.",
)
@json_option
def account_create(label: str, custody: Any, as_json: bool, **values: Any) -> None:
    """Create an account; prints its founder key once."""
    settings = settings_of(values)

    async def work() -> dict[str, Any]:
        async with opened(settings) as storage:
            new = await provision.create_account(
                storage, label=label, custody=custody, clock=utc_now
            )
            return _key_json(new, settings, storage) | {"label": label}

    data = run(work())
    show(data, as_json, lambda: _key_text(data))


@account.command("list")
@storage_options
@json_option
def account_list(as_json: bool, **values: Any) -> None:
    """List accounts."""

    async def work() -> list[dict[str, Any]]:
        async with opened(settings_of(values)) as storage:
            return await provision.list_accounts(storage)

    accounts = run(work())
    show({"accounts": accounts}, as_json, lambda: _table(accounts))


@main.group()
def key() -> None:
    """Keys of an account."""


owner_option = click.option(
    "--owner-key-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File with the owner's private key, 64 hex digits; or RELAYER_OWNER_KEY.",
)
account_option = click.option("--account", "account_text_", required=True, metavar="ID")


@key.command("add")
@storage_options
@account_option
@click.option("--namespaces", default="", help="Comma-separated; none: the whole account.")
@click.option(
    "--role",
    type=click.Choice(["reader", "writer", "owner"]),
    default="writer",
    show_default=True,
)
@click.option("--label", default="", help="A name for people.")
@click.option("--expires", default=None, help="90d, 12h, 30m, or an RFC 3339 time.")
@owner_option
@json_option
def key_add(
    account_text_: str,
    namespaces: str,
    role: Role,
    label: str,
    expires: str | None,
    owner_key_file: Path | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Make a key and grant it something; prints it once."""
    settings = settings_of(values)

    async def work() -> dict[str, Any]:
        async with opened(settings) as storage:
            new = await provision.add_key(
                storage,
                account=_account(account_text_),
                namespaces=[parse_namespace(n) for n in namespaces.split(",") if n.strip()],
                role=role,
                label=label,
                expires_at=parse_expiry(expires, utc_now()),
                owner=_owner(owner_key_file),
                clock=utc_now,
            )
            return _key_json(new, settings, storage) | {"label": label, "role": role}

    data = run(work())
    show(data, as_json, lambda: _key_text(data))


@key.command("list")
@storage_options
@account_option
@json_option
def key_list(account_text_: str, as_json: bool, **values: Any) -> None:
    """List the keys of an account."""

    async def work() -> list[dict[str, Any]]:
        async with opened(settings_of(values)) as storage:
            return await provision.list_keys(storage, _account(account_text_))

    keys = run(work())
    show({"keys": keys}, as_json, lambda: _table(keys))


@key.command("revoke")
@storage_options
@account_option
@click.option("--key", "key_text", required=True, metavar="PUBLIC_KEY")
@owner_option
@json_option
def key_revoke(
    account_text_: str, key_text: str, owner_key_file: Path | None, as_json: bool, **values: Any
) -> None:
    """Withdraw everything a key was given, from the next request on."""

    async def work() -> None:
        async with opened(settings_of(values)) as storage:
            await provision.revoke_key(
                storage,
                account=_account(account_text_),
                key=parse_public_key(key_text),
                owner=_owner(owner_key_file),
                clock=utc_now,
            )

    run(work())
    note = "Stolen copies of what it could read stay readable to it until the account is rotated."
    data = {"public_key": key_text, "revoked": True, "note": note}
    show(data, as_json, lambda: f"revoked {key_text}\n{note}")


@main.group("model")
def model_group() -> None:
    """The built-in embedding model."""


@model_group.command("fetch")
@settings_options("model_dir")
@click.option(
    "--source",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder with model.safetensors and tokenizer.json, instead of the package.",
)
@json_option
def model_fetch(model_dir: str, source: Path | None, as_json: bool) -> None:
    """Get the model's weights, check their digests, build its graph."""
    folder = Path(model_dir) if model_dir else model.default_folder()

    async def work() -> None:
        await asyncio.to_thread(
            model.fetch, folder, progress=lambda line: click.echo(line, err=True), source=source
        )

    run(work())
    show({"model_dir": str(folder)}, as_json, lambda: f"model ready in {folder}")


@main.command("check")
@storage_options
@json_option
def check_command(as_json: bool, **values: Any) -> None:
    """Verify every blob against its name, every row against its blob, every chain."""

    async def work() -> check.Report:
        async with opened(settings_of(values)) as storage:
            return await check.check(storage)

    report = run(work())
    show(report.as_json(), as_json, report.as_text)
    sys.exit(0 if report.ok else 1)


@main.command("reindex")
@settings_options()
@click.option("--account", "account_text_", default=None, metavar="ID", help="This account only.")
@click.option("--status", "status_only", is_flag=True, help="Only say how far everything is.")
@click.option(
    "--force",
    is_flag=True,
    help="Make every vector again, for another model file behind the same name; restart the "
    "relayer first, which remembers the vectors of queries.",
)
@json_option
def reindex_command(
    account_text_: str | None, status_only: bool, force: bool, as_json: bool, **values: Any
) -> None:
    """Bring all memories up to today's embedding model and words, and say how far they are.

    A running relayer does this by itself; here its progress is followed. Without one it is done
    here, with the embedder that these settings name. Exit code 1: something is left, and the last
    line says why.
    """
    from relayer import reindex  # noqa: PLC0415  # as above

    settings = settings_of(values)
    account = None if account_text_ is None else _account(account_text_)
    progress = _Progress()
    try:
        if status_only:
            report = run(reindex.status(settings, account=account))
        else:
            report = run(reindex.reindex(settings, account=account, force=force, tell=progress))
    except KeyboardInterrupt:
        raise Exit(
            1, "Stopped here. What is done stays done; a running relayer goes on by itself."
        ) from None
    finally:
        progress.end()
    standings = report.as_json()["accounts"]
    show(report.as_json(), as_json, lambda: f"{_table(standings)}\n{report.as_text()}")
    sys.exit(0 if report.ok else 1)


class _Progress:
    """Prints a report on standard error: over itself on a terminal, else a line a change."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, report: Any) -> None:
        line = report.as_text()
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{line}", err=True, nl=False)
        elif line != self._shown:
            click.echo(line, err=True)
        self._shown = line

    def end(self) -> None:
        """Make room for what comes next."""
        if self._shown and sys.stderr.isatty():
            click.echo(err=True)


@main.command("doctor")
@settings_options()
@click.option(
    "--key", default="", metavar="HEX", help="How this public key, or one so begun, stands."
)
@json_option
def doctor_command(key: str, as_json: bool, **values: Any) -> None:
    """Say what is wrong with this installation, and what to type."""
    from relayer import doctor  # noqa: PLC0415  # as above

    findings = run(doctor.examine(settings_of(values), key))
    show({"findings": findings}, as_json, lambda: doctor.as_text(findings))
    sys.exit(0 if all(f["ok"] for f in findings) else 1)


def parse_expiry(text: str | None, now: datetime) -> datetime | None:
    """A moment from "90d" or RFC 3339.

    Raises:
        click.BadParameter: neither, or in the past.
    """
    if text is None:
        return None
    if match := _DAYS.fullmatch(text):
        return now + int(match[1]) * _UNITS[match[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or moment <= now:
        raise click.BadParameter("--expires is 90d, 12h, 30m, or a future RFC 3339 time.")
    return moment


def _account(text: str) -> AccountId:
    try:
        return parse_account(text)
    except CryptoError as error:
        raise click.BadParameter(str(error)) from None


def _owner(file: Path | None) -> Identity | None:
    text = file.read_text() if file else os.environ.get("RELAYER_OWNER_KEY", "")
    if not text.strip():
        return None
    try:
        return Identity(bytes.fromhex(text.strip()))
    except (ValueError, CryptoError):
        raise click.BadParameter("the owner's key is 64 hex digits") from None


def _key_json(new: provision.NewKey, settings: Settings, storage: Storage) -> dict[str, Any]:
    return {
        "account_id": account_text(new.account),
        "public_key": new.identity.public_key.hex(),
        "private_key": new.identity.seed.hex(),
        "server_url": running_url(settings.data_dir),
        "relayer_key": storage.identity.public_key.hex(),
        "custody": new.custody,
    }


def _key_text(data: dict[str, Any]) -> str:
    shown = [f"{name:12} {value}" for name, value in data.items() if value not in (None, "")]
    return "\n".join([*shown, "", "The private key is shown once and stored nowhere: keep it."])


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "none"
    texts = [{k: _cell(v) for k, v in row.items()} for row in rows]
    widths = {k: max(len(k), *(len(t[k]) for t in texts)) for k in texts[0]}
    lines = ["  ".join(k.ljust(w) for k, w in widths.items())]
    return "\n".join(lines + ["  ".join(t[k].ljust(w) for k, w in widths.items()) for t in texts])


def _cell(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else "-" if value is None else str(value)


if __name__ == "__main__":
    main()
