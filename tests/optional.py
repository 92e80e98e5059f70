"""Optional values that a test knows to be there."""

from typing import TypeVar

T = TypeVar("T")


def unwrap(value: T | None) -> T:
    """Return a value that is not None, such as the pipe of a process that was given one."""
    assert value is not None
    return value
