"""Lists the commands: the module of each, and its line in what `--help` shows.

A command's module is imported when that command is asked for, and no other is: most need more time
to import than to run. It does not own the commands' arguments, which their modules register.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module

from memrelay.commands.parsers import Adder

GROUPS: Mapping[str, Mapping[str, str]] = {
    "account": {
        "init": "Make keys and an account, and write the profile.",
        "status": "Show the relayer, the account, this key and the namespaces.",
        "receipts": "Check the account's history against what was seen before.",
        "trust": "Pin another relayer key in the profile.",
    },
    "trial": {"try": "Show what a memory would know of your notes, chats or files."},
    "local": {"local": "Show, end or move the relayer that commands start here."},
    "join": {"join": "Make a key here, and ask to be let into somebody's account."},
    "keys": {"keys": "Show, add or revoke the keys of the account; recover it."},
    "rotation": {
        "rotate": "Give everybody new keys, and seal memories anew under them.",
    },
    "agents": {"agents": "Give each agent its own keys; see, replace and revoke them."},
    "verify": {
        "verify": "Check the whole history, and everything stored against it.",
        "checkpoint": "Write a signed checkpoint of the account's history.",
    },
    "events": {
        "events": "Show what happened, by ids; with --follow, what happens.",
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
    "lists": {
        "list": "Show memories and who wrote them, newest first.",
        "get": "Show one memory.",
        "history": "Show all revisions of a memory, and what was changed.",
        "namespaces": "Show the namespaces, or change how one keeps and is searched.",
        "usage": "Show what the account uses of what it may use.",
    },
    "console": {"console": "Serve the console here, for a browser on this machine."},
    "stats": {"stats": "Count memories by day, writer, kind and namespace."},
    "timeline": {"timeline": "Show memories under the day, week or month they are of."},
    "corrections": {
        "edit": "Correct a memory; what it said before stays in its history.",
        "pin": "Protect memories from being superseded, merged or expired.",
        "unpin": "Take memories' protection away.",
        "review": "Show the memories that wait for a decision, and decide.",
        "settings": "Show the account's settings, for all its keys; change some.",
    },
    "consolidation": {
        "consolidate": "Tidy a namespace up; everything is listed and can be undone.",
    },
    "deletion": {
        "forget": "Erase memories with their history, for good.",
        "close": "Erase the whole account; nobody can bring it back.",
    },
    "transfer": {
        "import": "Store memories and conversations of other programs' files.",
        "export": "Write memories to files for people, or all to an archive.",
    },
    "sync": {"sync": "Bring two relayers of the account into step."},
    "mcp": {"mcp": "Offer the memory to an MCP client."},
    "doctor": {"doctor": "Say what is wrong, and what to type."},
    "gateway": {
        "gateway": "Run the local gateway, which remembers for the agents here.",
    },
    "openclaw": {"openclaw": "The memory of the agents of an OpenClaw on this machine."},
    "completion": {"completion": "Print what completes commands in bash, zsh or fish."},
    "hermes": {"hermes": "The memory of a Hermes Agent on this machine."},
    "coding": {
        "claude": "The memory of Claude Code on this machine.",
        "codex": "The memory of Codex on this machine.",
        "gemini": "The memory of Gemini CLI on this machine.",
    },
    "hook": {
        "hook": "Answer an event of a coding agent, which runs this command.",
    },
}
# As the help lists them; those of every day are all that the short one shows.
EVERYDAY = ("to begin", "every day", "keys and agents")
SECTIONS: Mapping[str, Sequence[str]] = {
    "to begin": (
        *("try", "init", "join", "import", "claude", "codex", "gemini", "mcp", "openclaw"),
        *("hermes", "doctor"),
    ),
    "every day": (
        *("remember", "recall", "ask", "list", "get", "timeline", "edit", "forget", "review"),
        *("stats", "status", "export", "console"),
    ),
    "keys and agents": ("keys", "agents", "rotate"),
    "what memories are and become": (
        *("analyze", "history", "pin", "unpin", "consolidate", "namespaces", "settings", "usage"),
    ),
    "what was done, and whether it holds": (
        *("receipts", "verify", "checkpoint", "events", "webhooks"),
    ),
    "this machine, and the account": (
        *("local", "gateway", "hook", "completion", "sync", "trust", "close"),
    ),
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
