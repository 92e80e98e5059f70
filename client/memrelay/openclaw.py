"""Adds to OpenClaw's configuration what this plugin needs, and takes it back.

It does not own asking the user, or looking for OpenClaw (`commands/openclaw.py`).

- A configuration is edited only if it is plain JSON: of JSON5, comments would be lost.
- Taking back restores what was there before, and leaves what the user changed since.
- Nothing secret is written: the plugin learns where the gateway is, and the gateway holds the keys.
"""

import copy
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from memrelay.errors import ConfigError
from memrelay.secure_files import read_private, write_private, write_private_text

PLUGIN_ID = "memrelay"
ENTRY = ("plugins", "entries", PLUGIN_ID)
_SHAPE: dict[tuple[str, ...], type] = {
    ("plugins",): dict,
    ("plugins", "allow"): list,
    ("plugins", "deny"): list,
    ("plugins", "load"): dict,
    ("plugins", "load", "paths"): list,
    ("plugins", "slots"): dict,
    ("plugins", "entries"): dict,
    ("tools",): dict,
    ("tools", "allow"): list,
    ("tools", "alsoAllow"): list,
}
_NOT_HANDED_OVER = {"endpoint", "dreaming"}  # the plugin's own, and OpenClaw's
_ALLOWING = {"*", "group:plugins", PLUGIN_ID}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One value of the configuration to set, or with `element` one to append to a list.

    `before` is what stood there, and `depth` how many steps of the path were there.
    """

    path: tuple[str, ...]
    value: Any
    element: bool = False
    before: Any = None
    depth: int = 0

    def __str__(self) -> str:
        place = ".".join(self.path)
        if self.element:
            return f"{place}: add {_json(self.value)}"
        was = "" if self.before is None else f", was {_json(self.before)}"
        return f"{place}: {_json(self.value)}{was}"


class Configuration:
    """A user's `openclaw.json`.

    Raises:
        ConfigError: there is none, or it is not plain JSON that can be edited.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        try:
            self._text = self.path.read_bytes().decode()
            values = json.loads(self._text, object_pairs_hook=_unique)
            # Half a character, or what is very deep, could be read and not be written again.
            self._render(copy.deepcopy(values)).encode()
        except FileNotFoundError:
            raise ConfigError(
                f"OpenClaw has no configuration at {path}; run `openclaw onboard`, or name its "
                "file with --config."
            ) from None
        except (OSError, ValueError, RecursionError):
            raise NotEditable(f"{path} is not plain JSON.") from None
        if not isinstance(values, dict) or "$include" in {*values, *_part(values, "plugins")}:
            raise NotEditable(f"{path} includes other files.")
        self.values: dict[str, Any] = values

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the plugin hands to the gateway, as they stand there."""
        entry = _at(self.values, ENTRY)
        given = _part(entry, "config") if isinstance(entry, dict) else {}
        return {name: value for name, value in given.items() if name not in _NOT_HANDED_OVER}

    def find_missing(self, *, plugin: Path, endpoint: Path) -> list[Change]:
        """Return what has to change for the plugin in that folder to work.

        Raises:
            ConfigError: the user has switched plugins off, or this one.
        """
        for path, kind in _SHAPE.items():
            *steps, last = path
            parent = _at(self.values, tuple(steps))
            if isinstance(parent, dict) and not isinstance(parent.get(last, kind()), kind):
                raise NotEditable(f"{self.path} has something unexpected at {'.'.join(path)}.")
        plugins = _part(self.values, "plugins")
        if plugins.get("enabled") is False:
            raise ConfigError(
                "OpenClaw's plugins are off: `openclaw config unset plugins.enabled`."
            )
        if PLUGIN_ID in plugins.get("deny", ()):
            raise ConfigError(f"{PLUGIN_ID} stands in plugins.deny of {self.path}: take it out.")
        wanted = [
            self._append(("plugins", "load", "paths"), str(plugin)),
            self._set(("plugins", "slots", "memory"), PLUGIN_ID),
            self._set(ENTRY, _entry(_at(self.values, ENTRY), endpoint)),
        ]
        if plugins.get("allow"):
            wanted.append(self._append(("plugins", "allow"), PLUGIN_ID))
        tools = _part(self.values, "tools")
        chosen = "allow" if tools.get("allow") else "alsoAllow"
        if not _ALLOWING & set(tools.get(chosen, ())):
            wanted.append(self._append(("tools", chosen), PLUGIN_ID))
        return [change for change in wanted if not self._holds(change)]

    def with_changes(self, changes: Iterable[Change]) -> str:
        """Return the text with changes made."""
        values = copy.deepcopy(self.values)
        for change in changes:
            _make(values, change)
        return self._render(values)

    def without(self, changes: Iterable[Change]) -> str:
        """Return the text with changes taken back, the last one first."""
        values = copy.deepcopy(self.values)
        for change in reversed(list(changes)):
            _take_back(values, change)
        return self._render(values)

    def replace(self, text: str) -> Path:
        """Write a new text at once, with the file's own mode; return the path of a backup."""
        status = self.path.stat()
        if status.st_uid != os.getuid():
            raise ConfigError(f"{self.path} belongs to another user.")
        if self.path.read_bytes() != self._text.encode():
            raise ConfigError(f"{self.path} was changed meanwhile; run this again.")
        backup = self.path.with_name(f"{self.path.name}.before-{PLUGIN_ID}")
        write_private_text(backup, self._text)
        write_private_text(self.path, text)
        self.path.chmod(status.st_mode & 0o777)
        return backup

    def _set(self, path: tuple[str, ...], value: Any) -> Change:
        before = _at(self.values, path)
        return Change(path=path, value=value, before=before, depth=_depth(self.values, path))

    def _append(self, path: tuple[str, ...], value: Any) -> Change:
        return Change(path=path, value=value, element=True, depth=_depth(self.values, path))

    def _holds(self, change: Change) -> bool:
        found = _at(self.values, change.path)
        return change.value in (found or ()) if change.element else bool(found == change.value)

    def _render(self, values: Mapping[str, Any]) -> str:
        indent = re.search(r"\n([ \t]+)", self._text)
        text = json.dumps(values, ensure_ascii=False, indent=indent[1] if indent else 2)
        ending = self._text[len(self._text.rstrip()) :]
        return (text.replace("\n", "\r\n") if "\r\n" in self._text else text) + ending


class NotEditable(ConfigError):
    """A configuration that has to be edited by hand."""


class Record:
    """The record of changes to a configuration, kept beside the profile until they are undone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, config: Path) -> list[Change]:
        """Return what was changed in a configuration."""
        found = self._all().get(str(config), [])
        try:
            return [Change(**{**values, "path": tuple(values["path"])}) for values in found]
        except (KeyError, TypeError):
            raise self._make_damaged_error() from None

    def write(self, config: Path, changes: list[Change]) -> bool:
        """Keep what was changed in a configuration, or forget it; return whether any is left."""
        kept = {**self._all(), str(config): [asdict(change) for change in changes]}
        kept = {name: values for name, values in kept.items() if values}
        if kept:
            write_private(self._path, kept)
        else:
            self._path.unlink(missing_ok=True)
        return bool(kept)

    def _all(self) -> dict[str, Any]:
        data = read_private(self._path)
        try:
            return dict(json.loads(data)) if data else {}
        except (ValueError, TypeError, RecursionError):
            raise self._make_damaged_error() from None

    def _make_damaged_error(self) -> ConfigError:
        return ConfigError(f"{self._path} is damaged; remove it.")


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the configuration that OpenClaw itself would use."""
    home = Path(environ.get("OPENCLAW_HOME") or environ.get("HOME") or Path.home())
    if chosen := environ.get("OPENCLAW_CONFIG_PATH", "").strip():
        return _in_home(chosen, home)
    state = environ.get("OPENCLAW_STATE_DIR", "").strip()
    folder = _in_home(state, home) if state else home / ".openclaw"
    return folder / "openclaw.json"


def copy_plugin(folder: Path) -> None:
    """Put the plugin's files into a folder of their own.

    OpenClaw refuses files with more than one hard link, which some installers make of packages.
    """
    shutil.rmtree(folder, ignore_errors=True)
    with resources.as_file(resources.files("memrelay.openclaw_plugin")) as source:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__*"))


def fragment(*, plugin: Path, endpoint: Path) -> dict[str, Any]:
    """Return what to merge by hand into a configuration that cannot be edited."""
    return {
        "plugins": {
            "load": {"paths": [str(plugin)]},
            "slots": {"memory": PLUGIN_ID},
            "entries": {PLUGIN_ID: _entry(None, endpoint)},
        },
        "tools": {"alsoAllow": [PLUGIN_ID]},
    }


def _entry(existing: Any, endpoint: Path) -> dict[str, Any]:
    entry = existing if isinstance(existing, dict) else {}
    # With its dreaming, OpenClaw loads memory-core as well, and with it tools of the same names.
    settings = {"dreaming": {"enabled": False}, **_part(entry, "config")}
    return {
        **entry,
        "enabled": True,
        "hooks": {**_part(entry, "hooks"), "allowConversationAccess": True},
        "config": {**settings, "endpoint": str(endpoint)},
    }


def _make(values: dict[str, Any], change: Change) -> None:
    *steps, last = change.path
    node = values
    for step in steps:
        node = node.setdefault(step, {})
    if change.element:
        node.setdefault(last, []).append(change.value)
    else:
        node[last] = change.value


def _take_back(values: dict[str, Any], change: Change) -> None:
    nodes = [values]
    for step in change.path[:-1]:
        nodes.append(_part(nodes[-1], step))
    node, last = nodes[-1], change.path[-1]
    if change.element:
        if change.value in (node.get(last) or ()):
            node[last].remove(change.value)
    elif change.path == ENTRY or node.get(last) == change.value:
        if change.before is None:
            node.pop(last, None)
        else:
            node[last] = change.before
    # What was made on the way goes again, unless something else is in it by now.
    for depth in range(len(change.path) - 1, change.depth - 1, -1):
        if nodes[depth].get(change.path[depth]) in ({}, []):
            del nodes[depth][change.path[depth]]


def _part(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        values = values.get(step) if isinstance(values, dict) else None
    return values


def _depth(values: Any, path: tuple[str, ...]) -> int:
    return next((n for n in range(len(path)) if _at(values, path[: n + 1]) is None), len(path))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name occurs twice")
    return values


def _in_home(text: str, home: Path) -> Path:
    return home / text[2:] if text.startswith("~/") else Path(text).absolute()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
