"""`relayer serve`: what starts, when it is ready and what to do next, then notes.

Not here: serving (`serve.py`, `workers/`), the same for an operator who asks (`upkeep/doctor.py`).

- Standard output has one line, when requests are answered. All else goes to standard error.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import click

from relayer import __version__
from relayer.commands.options import run, settings_of, settings_options
from relayer.commands.parsers import Command
from relayer.installation import at, is_made_by_serving
from relayer.logs import configure
from relayer.process import pause_collection
from relayer.run_file import SOCKET_SCHEME
from relayer.settings import (
    Settings,
    is_local,
    list_unknown_variables,
    may_lack_tls,
    open_to_this_machine,
    variable,
)

_WITHOUT_TOKEN: Final = {"registration": "create accounts", "/metrics": "read /metrics"}
OPEN_HERE: Final = (
    "NOTE: Every program on this machine can {} without a token. If a proxy here lets other"
    " machines in, they can do the same: set RELAYER_PUBLIC_URL to the address that clients use"
    " (deploy/README.md)."
)
BY_RULES: Final = (
    "NOTE: No language model is set, so rules find the facts in conversations. A model finds more:"
    " set RELAYER_LLM_MODEL to one that the server at OPENAI_BASE_URL has (deploy/README.md)."
)
LACKS_TLS: Final = (
    "WARNING: {} leads to another machine. If somebody between says that it has no TLS, the"
    " connection goes on without: add ?sslmode=verify-full&sslrootcert=PATH (deploy/README.md), or"
    " ?sslmode=disable to mean it."
)


@click.command("serve", cls=Command)
@settings_options()
def serve_command(**values: Any) -> None:
    """Run the relayer until Ctrl-C.

    A first start makes the database and the relayer's key in the data folder. A new release brings
    the database up to date. One line says when requests are answered, and where.
    """
    settings = settings_of(values)
    click.echo(first_line(settings), err=True)
    with pause_collection():
        from relayer.serve import serve  # noqa: PLC0415  # other commands need no model
        from relayer.workers.supervisor import supervise  # noqa: PLC0415  # as above

    configure(settings.log_level)
    for warning in _warnings(settings):
        click.echo(warning, err=True)

    def ready(url: str) -> None:
        click.echo(ready_line(settings, url))
        for note in notes(settings):
            click.echo(note, err=True)

    run((supervise if settings.workers > 1 else serve)(settings, ready))


def first_line(settings: Settings) -> str:
    """Return the first line, of what is being started."""
    made = " It makes a database there first; that takes some seconds."
    folder = settings.data_dir.absolute()
    more = made if is_made_by_serving(settings) else ""
    return f"relayer {__version__} is starting with its data in {folder}.{more}"


def ready_line(settings: Settings, url: str) -> str:
    """Return the line that says where requests are answered, and what to do next."""
    several = f" ({settings.workers} workers)" if settings.workers > 1 else ""
    shown = settings.public_url.rstrip("/") or url
    page = "" if shown.startswith(SOCKET_SCHEME) else f" open {shown} in a browser, or"
    command = _next_command(settings, shown)
    return f"relayer {__version__} ready at {url}{several} -{page} type: {command}"


def notes(settings: Settings) -> list[str]:
    """Return what an operator should know of these settings, a sentence or two each."""
    can = [_WITHOUT_TOKEN[found] for found in open_to_this_machine(settings)]
    found = [OPEN_HERE.format(" and ".join(can))] if can else []
    return found + ([] if settings.llm_model else [BY_RULES])


def _warnings(settings: Settings) -> list[str]:
    found = []
    if unknown := list_unknown_variables(os.environ):
        found.append(f"WARNING: no such setting, so without effect: {', '.join(unknown)}")
    if settings.rate_limit == "off":
        found.append("WARNING: request limits are OFF. Benchmarks only.")
    for name in ("database_url", "database_direct_url"):
        if may_lack_tls(getattr(settings, name)) and "PGSSLMODE" not in os.environ:
            found.append(LACKS_TLS.format(variable(name)))
    return found


def _next_command(settings: Settings, url: str) -> str:
    """Return what makes the first account: the client's command, or the relayer's own."""
    is_open = settings.registration == "open" or (
        settings.registration == "auto" and is_local(settings)
    )
    if is_open:
        return f"{_beside('memrelay')} init {url}"
    if settings.registration != "closed" and settings.registration_token:
        return f"MEMRELAY_TOKEN=TOKEN memrelay init {url}"
    return f"{_beside('relayer')} account create{at(settings)}"


def _beside(program: str) -> str:
    """Return how a program of this installation is called from where this one was."""
    path = Path(sys.argv[0]).with_name(program)
    found = shutil.which(program)
    if not path.is_file() or (found is not None and Path(found).samefile(path)):
        return program
    return shlex.quote(str(path))
