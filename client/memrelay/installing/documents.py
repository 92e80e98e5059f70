"""Configurations as texts that can be changed in one place, whatever their form.

It does not own a form (`json_text.py`, `toml_text.py`, `yaml_text.py`) or files
(`config_files.py`).

- Each edit is checked: the new text, read again, differs from the old one by this edit alone.
  Otherwise nothing is changed, and a person is told to do it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from memrelay.installing.errors import NotEditable, Steps

Form = Literal["json", "toml", "yaml"]
ABSENT = object()  # in place of a value that is not there


@dataclass(frozen=True)
class Document:
    """A configuration's text and its value, an object.

    Raises:
        NotEditable: the text is not of this form, or holds no object.
    """

    text: str
    form: Form

    def __post_init__(self) -> None:
        value = self._module.read(self.text)
        if not isinstance(value, dict):
            raise NotEditable("it holds no object")
        object.__setattr__(self, "_value", value)

    @property
    def value(self) -> Mapping[str, Any]:
        """The value of the text."""
        value: dict[str, Any] = self.__dict__["_value"]
        return value

    def get(self, path: Steps) -> Any:
        """Return the value at a path, `ABSENT` if there is none."""
        return get(self.value, path)

    def depth(self, path: Steps) -> int:
        """Return how many steps of a path are there."""
        found = (n for n in range(len(path)) if get(self.value, path[: n + 1]) is ABSENT)
        return next(found, len(path))

    def with_value(self, path: Steps, value: Any) -> "Document":
        """Return the document with a value at a path; objects missing on the way are made.

        Raises:
            NotEditable: the text cannot be changed there alone.
        """
        wanted = _copy_along(self.value, path)
        _set(wanted, path, value)
        return self._check(self._module.set_value(self.text, path, value), wanted)

    def with_element(self, path: Steps, value: Any) -> "Document":
        """Return the document with one more element at the end of a list, made if missing.

        Raises:
            NotEditable: the text cannot be changed there alone.
        """
        wanted = _copy_along(self.value, path)
        found = get(wanted, path)
        if not isinstance(found, list) and found is not ABSENT:
            raise NotEditable(f"{'.'.join(map(str, path))} is no list")
        _set(wanted, path, [*found, value] if isinstance(found, list) else [value])
        return self._check(self._module.append(self.text, path, value), wanted)

    def without(self, path: Steps, *, depth: int | None = None) -> "Document":
        """Return the document without what stands at a path.

        Objects and lists that are empty then go, too, but for the outer `depth` steps of the path.

        Raises:
            NotEditable: the text cannot be changed there alone.
        """
        if self.get(path) is ABSENT:
            return self
        kept = len(path) - 1 if depth is None else depth
        while len(path) - 1 > kept and len(self.get(path[:-1])) == 1:
            path = path[:-1]
        wanted = _copy_along(self.value, path)
        del get(wanted, path[:-1])[path[-1]]
        return self._check(self._module.remove(self.text, path), wanted, _prune(wanted, path))

    @property
    def _module(self) -> Any:
        return import_module(f"memrelay.installing.{self.form}_text")

    def _check(self, text: str, *wanted: Any) -> "Document":
        try:
            changed = Document(text, self.form)
        except NotEditable:
            changed = None
        if changed is None or not any(_is_same(changed.value, value) for value in wanted):
            raise NotEditable("it is written in a way that cannot be changed in one place")
        return changed


def get(value: Any, path: Steps) -> Any:
    """Return what stands at a path in a value, `ABSENT` if nothing does."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(value, list) or not 0 <= step < len(value):
                return ABSENT
        elif not isinstance(value, dict) or step not in value:
            return ABSENT
        value = value[step]
    return value


def _copy_along(value: Mapping[str, Any], path: Steps) -> dict[str, Any]:
    """Return a copy of a value whose parts on a path can be changed; all others are shared."""
    root = dict(value)
    part: Any = root
    for step in path:
        inner = get(part, (step,))
        if not isinstance(inner, dict | list):
            break
        part[step] = inner.copy()
        part = part[step]
    return root


def _set(root: dict[str, Any], path: Steps, new: Any) -> None:
    value: Any = root
    for step in path[:-1]:
        if isinstance(value, dict) and step not in value:
            value[step] = {}
        value = get(value, (step,))
    if not isinstance(value, list if isinstance(path[-1], int) else dict):
        raise NotEditable(f"{'.'.join(map(str, path))} does not lead through objects")
    value[path[-1]] = new  # type: ignore[index]


def _prune(value: dict[str, Any], path: Steps) -> dict[str, Any]:
    """Return a value without what is empty on a path: TOML has no line for it."""
    value = _copy_along(value, path)
    for length in range(len(path) - 1, 0, -1):
        if get(value, path[:length]) not in ({}, []):
            break
        del get(value, path[: length - 1])[path[length - 1]]
    return value


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same, order and types included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(
            _is_same(mine, its) for mine, its in zip(one, other, strict=True)
        )
    return bool(one == other) or repr(one) == repr(
        other
    )  # what is no number is not equal to itself
