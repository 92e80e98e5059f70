"""Lists the commands: the module of each, and its line in what `--help` shows.

A command's module is imported when that command is asked for, and no other is: most need more time
to import than to run. It does not own the commands' arguments, which their modules register.
"""

from collections.abc import Mapping
from importlib import import_module

from memrelay.commands.parsers import Adder

GROUPS: Mapping[str, Mapping[str, str]] = {
    "account": {
        "init": "Make keys and an account, and write the profile.",
        "status": "Show the relayer, the account, this key, the gateway's switches and the"
        " namespaces.",
        "receipts": "Check the account's history against what was seen before.",
        "trust": "Pin another relayer key in the profile.",
    },
    "keys": {"keys": "Show, add or revoke the keys of the account; recover it."},
    "rotation": {
        "rotate": "Give everybody new keys, but those who are revoked, and seal memories anew"
        " under them.",
    },
    "agents": {"agents": "Give each agent its own keys; see, replace and revoke them."},
    "verify": {
        "verify": "Check the whole history and everything stored against it; exit code 0 only if"
        " all holds.",
        "checkpoint": "Write a signed checkpoint of the account's history, to compare with later"
        " or elsewhere.",
    },
    "events": {
        "events": "Show what happened, by ids; with --follow, what happens. With --json, one value"
        " a line.",
        "webhooks": "Have a web server told what happens to the account.",
    },
    "memories": {
        "remember": "Store one memory; `import` stores those of files.",
        "analyze": "Store the facts of a text.",
    },
    "recall": {
        "recall": "Show the memories that fit a query.",
        "ask": "Answer a question from memories.",
    },
    "listing": {
        "list": "Show memories and who wrote them, newest first.",
        "get": "Show one memory.",
        "history": "Show all revisions of a memory, newest first: who wrote what, and what was"
        " changed.",
        "namespaces": "Show the namespaces: their size, last write and how long they keep; or"
        " change the last.",
        "usage": "Show what the account uses of what it may use.",
    },
    "correcting": {
        "edit": "Correct a memory; what it said before stays in its history.",
        "pin": "Protect memories: never superseded by rule, merged, or expired by their namespace.",
        "unpin": "Take memories' protection away.",
        "review": "Show the memories that somebody should look at, and decide on them.",
        "settings": "Show what the account has chosen, for all its keys; change some of it.",
    },
    "consolidating": {
        "consolidate": "Tidy a namespace up; everything is listed and can be undone.",
    },
    "forgetting": {
        "forget": "Erase memories with their history: by id, those that fit, or all of"
        " --namespace.",
        "close": "Erase the whole account: memories, keys, history. Nobody can bring it back.",
    },
    "transfer": {
        "import": "Bring memories and conversations along from files of other programs, or an"
        " archive.",
        "export": "Write memories to files that people can read and edit, or everything to an"
        " archive.",
    },
    "mcp": {"mcp": "Offer the memory to an MCP client, which starts this command."},
    "doctor": {"doctor": "Say what is wrong, and what to type; exit code 1 if anything is."},
    "gateway": {
        "gateway": "Run the local gateway, which holds the agents' keys and answers their hooks"
        " and tools.",
    },
    "openclaw": {"openclaw": "The memory of the agents of an OpenClaw on this machine."},
    "hermes": {"hermes": "The memory of a Hermes Agent on this machine."},
    "hook": {
        "hook": "Answer an event of a coding agent, which runs this command; exit code 0 whatever"
        " happens.",
    },
}
SUMMARIES = {name: text for commands in GROUPS.values() for name, text in commands.items()}
_GROUP_OF = {name: group for group, commands in GROUPS.items() for name in commands}


def is_command(name: str) -> bool:
    """Return whether there is such a command."""
    return name in _GROUP_OF


def register(name: str, add: Adder) -> None:
    """Import the module of a command and let it add the command."""
    _register(_GROUP_OF[name], add)


def register_all(add: Adder) -> None:
    """Import all modules and let each add its commands."""
    for group in GROUPS:
        _register(group, add)


def _register(group: str, add: Adder) -> None:
    import_module(f"memrelay.commands.{group}").register(add)
