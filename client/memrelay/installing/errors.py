"""The error of a file that has to be edited by hand, and how a place in it is named."""

from memrelay.errors import ConfigError

Steps = tuple[str | int, ...]  # names of members, and numbers of elements


class NotEditable(ConfigError):
    """A configuration that has to be edited by hand; the message says why, without a full stop."""
