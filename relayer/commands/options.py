"""The commands' common parts: options for settings, answers for people and scripts.

Not here: the commands, how a failure is printed (`failures.py`).
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import click
import uvloop
from click.core import ParameterSource

from relayer.commands.failures import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, Exit
from relayer.commands.parsers import Setting
from relayer.errors import NotAllowed, NotFound, RelayerError
from relayer.identity import IdentityError
from relayer.installation import NotInstalled
from relayer.postgres.embedded import PostgresError
from relayer.sealed.keys import (
    AccountId,
    PublicKey,
    parse_account,
    parse_public_key,
)
from relayer.sealed.primitives import CryptoError
from relayer.settings import SECRET, Settings, SettingsError, variable
from relayer.tables import format_rows

T = TypeVar("T")

SHOWN: Final = "the process list shows what is typed here"
SECRET_BYTES_MAX: Final = 64 * 2**10  # of a file with a secret; a URL or a token has far less


def settings_options(*names: str) -> Callable[[Any], Any]:
    """Return options for settings, all or those named, each with its variable, unit and default.

    A secret may stand in a file instead, which the variable with `_FILE` behind its name names.
    """

    def decorate(command: Any) -> Any:
        for item in reversed(fields(Settings)):
            if names and item.name not in names:
                continue
            unit = f" [{item.metadata['unit']}]" if item.metadata["unit"] else ""
            secret = item.name in SECRET
            file = (
                f"; or {variable(item.name)}_FILE, a file that holds it: {SHOWN}" if secret else ""
            )
            command = click.option(
                "--" + item.name.replace("_", "-"),
                item.name,
                cls=Setting,
                type=_click_type(item.type),
                default=item.default,
                envvar=variable(item.name),
                show_envvar=True,
                show_default=not secret and item.default not in ("", None),
                help=item.metadata["text"] + file + unit,
                callback=_read_given_or_file if secret else None,
            )(command)
        return command

    return decorate


def _read_given_or_file(context: click.Context, option: click.Parameter, value: str) -> str:
    name = f"{variable(str(option.name))}_FILE"
    path = os.environ.get(name, "")
    if not path:
        return value
    if context.get_parameter_source(str(option.name)) is not ParameterSource.DEFAULT:
        given = f"{name} is set, and so is what it would give: leave one of them out."
        raise Exit(EXIT_USAGE, given)
    try:
        with open(path, "rb") as file:
            found = file.read(SECRET_BYTES_MAX + 1)
        text = found.decode().strip()
    except OSError as error:
        failed = f"{name} names a file that cannot be read: {error.strerror}."
        raise Exit(EXIT_USAGE, failed) from None
    except UnicodeDecodeError:
        raise Exit(EXIT_USAGE, f"{name} names a file that is not text.") from None
    if not text or len(found) > SECRET_BYTES_MAX:
        raise Exit(EXIT_USAGE, f"{name} names a file that is {'too long' if text else 'empty'}.")
    return text


def _click_type(annotation: Any) -> Any:
    if get_origin(annotation) is Literal:
        return click.Choice(get_args(annotation))
    return click.Path(path_type=Path, file_okay=False) if annotation is Path else annotation


STORAGE: Final = (
    "data_dir",
    "database_url",
    "database_direct_url",
    "key_file",
    "blob_store",
    "s3_endpoint",
    "s3_region",
    "s3_access_key_id",
    "s3_secret_access_key",
    "s3_plain_http",
    "request_timeout_s",
)
storage_options = settings_options(*STORAGE)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
account_option = click.option(
    "--account",
    "account_text_",
    required=True,
    metavar="ID",
    help="The account's id, or 8 of its digits or more.",
)


def settings_of(values: dict[str, Any]) -> Settings:
    """Return the settings that options and variables give.

    Raises:
        Exit: one is out of range; the message names it.
    """
    try:
        return Settings(**values)
    except SettingsError as error:
        raise Exit(EXIT_USAGE, str(error), "settings") from None


def show(data: Any, as_json: bool, text: Callable[[], str]) -> None:
    """Print for a script or for a person.

    Raises:
        Exit: there is no room for it where it goes.
    """
    try:
        click.echo(json.dumps(data) if as_json else text())
    except BrokenPipeError:
        raise  # who reads it has had enough; click ends quietly
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python tries once more
        raise Exit(EXIT_FAILED, f"cannot print: {error.strerror}") from None


def run(work: "Coroutine[Any, Any, T]") -> T:
    """Run a command's work; its expected failures become one line and an exit code."""
    try:
        return uvloop.run(work)
    except NotAllowed as error:
        raise Exit(EXIT_USAGE, f"{error.message}{_way_out(error)}", error.code) from None
    except NotFound as error:
        raise Exit(EXIT_NOT_FOUND, error.message, error.code) from None
    except RelayerError as error:
        raise Exit(EXIT_FAILED, error.message, error.code) from None
    except NotInstalled as error:
        raise Exit(EXIT_FAILED, f"{error}: {error.do}", "not_installed") from None
    except SettingsError as error:
        raise Exit(EXIT_FAILED, str(error), "settings") from None
    except (IdentityError, PostgresError, CryptoError) as error:
        raise Exit(EXIT_FAILED, str(error)) from None


def _way_out(error: NotAllowed) -> str:
    if error.code != "owner_key_required":
        return ""
    return " Give it with --owner-key-file FILE or in RELAYER_OWNER_KEY; it is used in memory only."


def account_of(text: str) -> AccountId:
    """Return the account that an option names.

    Raises:
        click.BadParameter: it cannot be one.
    """
    return _parse(parse_account, text)


def public_key_of(text: str) -> PublicKey:
    """Return the key that an option names.

    Raises:
        click.BadParameter: it cannot be one.
    """
    return _parse(parse_public_key, text)


def _parse(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except CryptoError as error:
        raise click.BadParameter(str(error)) from None


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows for a person at a terminal, or whole values for a pipe."""
    return "\n".join(format_rows(rows, terminal_width())) or "none"


def terminal_width() -> int | None:
    """Return the terminal's number of columns, None where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
