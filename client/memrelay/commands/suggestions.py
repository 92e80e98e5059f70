"""Finds what somebody meant by a command, an action, an option or a choice that there is not.

It does not own the refusal (`parsers.py`), for which alone it is imported.
"""

from collections.abc import Collection, Mapping
from difflib import SequenceMatcher, get_close_matches

_SUGGESTIONS_MAX = 2
_CHARS_MAX = 40  # comparing takes the product of both lengths
_LIKENESS = 0.6
_BEHIND_MAX = 0.2  # a second one that is less like it than that would only confuse

# What other programs call it; of the names behind each, those that there are here count.
_COMMANDS: Mapping[str, str] = {
    "recall": "search find query grep lookup retrieve",
    "remember": "add save store put write note insert new create memorize memorise",
    "provision": "add create new",
    "add": "create new put grant",
    "forget": "delete del rm remove erase drop purge",
    "revoke": "delete del rm remove drop end",
    "remove": "delete del rm drop revoke",
    "undo": "revert rollback delete rm remove",
    "get": "show cat read view open print",
    "list": "ls all dir show",
    "show": "get cat view print info",
    "edit": "update change correct modify fix",
    "settings": "config configure set preferences options",
    "history": "log revisions diff versions",
    "events": "log logs watch tail follow stream",
    "status": "info whoami ping version",
    "init": "login setup signup register join start",
    "doctor": "check diagnose debug health test",
    "try": "trial demo preview sample",
    "test": "try ping check",
    "export": "backup dump download save",
    "import": "restore load upload migrate",
    "consolidate": "tidy compact dedupe dedup merge clean cleanup",
    "ask": "question chat answer",
    "analyze": "extract learn ingest analyse facts",
    "gateway": "serve server daemon run",
    "webhooks": "hooks webhook",
    "keys": "key token tokens grant grants",
    "agents": "agent",
    "namespaces": "namespace ns spaces",
    "usage": "quota size du",
    "stats": "statistics count counts summary overview top",
    "console": "browser ui gui web dashboard",
    "timeline": "calendar journal diary chronology",
    "verify": "audit prove",
    "rotate": "rekey renew",
    "approve": "accept allow yes ok",
    "reject": "deny refuse no",
    "agents provision": "provision",
    "keys revoke": "revoke",
    "keys recover": "recover",
}
_OPTIONS: Mapping[str, str] = {
    "--limit": "--max --count --top --number -n -l -k",
    "--namespace": "--ns --space --project -n",
    "--kind": "--type --category",
    "--tag": "--tags --label -t",
    "--json": "--format --output -o -j",
    "--yes": "--force --confirm -y -f",
    "--force": "--yes --overwrite -f -y",
    "--expires-at": "--ttl --until --expire --lifetime",
    "--expires": "--ttl --until --expire --lifetime --expires-at",
    "--ttl": "--expires --expires-at --keep",
    "--after": "--from --start --newer",
    "--before": "--to --end --older",
    "--dry-run": "--simulate --preview --check",
    "--out": "--output --file -o",
    "--min-relevance": "--threshold --min-score --relevance",
    "--agent": "--as --name -a",
    "--profile": "--config -c -p",
    "--mode": "--search",
    "--help": "-?",
    "--follow": "-f --watch",
}


def suggest(given: str, choices: Collection[str]) -> str:
    """Return the question whether one of the choices was meant, empty if none is like it."""
    found = list(dict.fromkeys((*_synonyms(given, choices), *_likenesses(given, choices))))
    if not found:
        return ""
    return f"did you mean {' or '.join(found[:_SUGGESTIONS_MAX])}?"


def _synonyms(given: str, choices: Collection[str]) -> list[str]:
    meant = _OPTIONS if given.startswith("-") else _COMMANDS
    word = given.casefold()
    return [
        name
        for name, others in meant.items()
        if word in others.split() and name.partition(" ")[0] in choices
    ]


def _likenesses(given: str, choices: Collection[str]) -> list[str]:
    if len(given) > _CHARS_MAX:
        return []
    names = {name.casefold(): name for name in choices if len(name) > 2}
    close = get_close_matches(given.casefold(), names, n=_SUGGESTIONS_MAX, cutoff=_LIKENESS)
    likeness = {name: SequenceMatcher(None, given.casefold(), name).ratio() for name in close}
    return [names[name] for name in close if likeness[name] >= likeness[close[0]] - _BEHIND_MAX]
