"""Finds what somebody meant by a command, an action or an option that there is not.

Not here: the refusal (`failures.py`), for which alone this is imported.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

_SUGGESTIONS_MAX: Final = 2
_CHARACTERS_MAX: Final = 40  # comparing takes the product of both lengths
_LIKENESS: Final = 0.6

# What other programs call it; of the names before each, those that there are here count.
COMMANDS: Final[Mapping[str, str]] = {
    "serve": "start run up server launch daemon listen boot",
    "health": "status ping alive ready healthcheck info",
    "doctor": "diagnose debug test troubleshoot status",
    "account": "accounts user users tenant tenants",
    "account create": "register signup",
    "key": "keys token tokens grant grants",
    "identity": "id pubkey whoami",
    "model": "models embedder download",
    "model fetch": "fetch",
    "blobs": "blob objects store bucket",
    "backup": "backups dump export save snapshot",
    "backup restore": "restore load import",
    "migrate": "upgrade migration migrations update",
    "check": "verify fsck audit validate",
    "rebuild": "recover repair rescue",
    "reindex": "index embed vectors",
    "top": "stats monitor metrics ps usage",
    "completion": "completions autocomplete complete",
    "create": "add make new init",
    "add": "create make new grant",
    "list": "ls all show",
    "show": "get print list cat",
    "erase": "delete del rm remove close drop purge destroy",
    "revoke": "delete del rm remove drop erase end",
    "rotate": "renew replace change",
    "fetch": "download get pull install",
    "copy": "cp sync",
    "move": "mv migrate rename",
    "accept": "yes ok allow",
    "restore": "load import recover",
}
# These belong to the client, whose program is called otherwise.
OF_THE_CLIENT: Final = frozenset(
    "agents analyze ask consolidate edit export forget gateway get import init list mcp recall"
    " remember review try".split()
)
OPTIONS: Final[Mapping[str, str]] = {
    "--data-dir": "--dir --data --folder --path -d",
    "--database-url": "--db --database --dsn --postgres",
    "--host": "--bind --address --listen -b",
    "--port": "-p",
    "--workers": "--processes -w",
    "--llm-model": "--llm --model -m",
    "--embedder": "--embedding --embeddings",
    "--json": "--format --output -o -j",
    "--yes": "--force --confirm -y -f",
    "--expires": "--ttl --until --expire --lifetime --expires-at --expires-days",
    "--namespaces": "--namespace --ns -n",
    "--account": "--id --account-id -a",
    "--status": "--dry-run",
    "--label": "--name --title",
    "--to": "--target --destination --dest",
    "--source": "--from",
    "--once": "-1",
    "--help": "-?",
}


def suggest_command(given: str, choices: Collection[str], *, is_first: bool) -> str:
    """Return the question whether a command was meant, behind a semicolon; empty if none is near.

    `is_first` tells the program's own commands from the actions of one of them.
    """
    if is_first and given in OF_THE_CLIENT:
        return f"; did you mean memrelay {given}?"
    return _ask(given, choices, COMMANDS)


def suggest_option(given: str, choices: Collection[str]) -> str:
    """Return the question whether an option was meant, as `suggest_command` does."""
    return _ask(given, choices, OPTIONS)


def _ask(given: str, choices: Collection[str], meant: Mapping[str, str]) -> str:
    word = given.casefold()
    synonyms = [
        name
        for name, others in meant.items()
        if word in others.split() and name.partition(" ")[0] in choices
    ]
    found = (synonyms or _find_like(word, choices))[:_SUGGESTIONS_MAX]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _find_like(word: str, choices: Collection[str]) -> list[str]:
    if len(word) > _CHARACTERS_MAX:
        return []
    names = {name.strip("-"): name for name in choices}
    close = get_close_matches(word.strip("-"), names, n=_SUGGESTIONS_MAX, cutoff=_LIKENESS)
    return [names[name] for name in close]
