"""Failures of commands: one line or one JSON object, and an exit code.

Not here: what may have been meant (`suggestions.py`), which error of the relayer ends with which
code (`options.py`).
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import click

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_INTERRUPTED = 0, 1, 2, 3, 130

MEANINGS: Final[Mapping[int, str]] = {
    EXIT_OK: "done",
    EXIT_FAILED: "it failed, or what was checked does not hold",
    EXIT_USAGE: "wrong arguments or settings",
    EXIT_NOT_FOUND: "no such account or key",
    EXIT_INTERRUPTED: "ended by Ctrl-C",
}


class Failure(click.ClickException):
    """A command's end with words, an exit code, and a code that scripts know it by."""

    def __init__(
        self, exit_code: int, message: str, code: str = "failed", *, as_json: bool = False
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it for the class and reads it so
        self.code = code
        self.as_json = as_json

    def show(self, file: Any = None) -> None:
        """Print it where errors go, as `memrelay` prints its own."""
        told = {"error": self.message, "code": self.code, "request_id": None}
        line = " ".join(self.message.split())
        line = "".join(char if char.isprintable() else "\ufffd" for char in line)
        click.echo(json.dumps(told) if self.as_json else f"relayer: {line}", file=file, err=True)


class Exit(Failure):
    """A failure that a command means."""


def render(failure: click.ClickException, *, as_json: bool) -> click.ClickException:
    """Return a failure in the form that whoever asked reads."""
    if isinstance(failure, click.exceptions.NoArgsIsHelpError) and not as_json:
        return failure  # which shows the help
    if isinstance(failure, Failure):
        code, message = failure.code, failure.message
    elif isinstance(failure, click.UsageError):
        code, message = "arguments", _describe_usage(failure)
    else:
        code, message = "failed", failure.format_message()
    return Failure(failure.exit_code, message, code, as_json=as_json)


def _describe_usage(failure: click.UsageError) -> str:
    text = _describe(failure).rstrip(".")
    return f"{text} (see `{failure.ctx.command_path} --help`)" if failure.ctx else text


def _describe(failure: click.UsageError) -> str:
    match failure:
        case click.exceptions.NoArgsIsHelpError():
            return "a command is missing"
        case click.exceptions.NoSuchCommand() if failure.ctx is not None:
            return _describe_command(failure.command_name, failure.ctx)
        case click.NoSuchOption() if failure.ctx is not None:
            return _describe_option(failure.option_name, failure.ctx)
        case click.MissingParameter() if failure.param is not None:
            return f"{_name(failure.param)} is missing"
        case click.BadParameter() if failure.param is not None or failure.param_hint is not None:
            hint = failure.param_hint
            name = hint if isinstance(hint, str) else _name(failure.param) if failure.param else ""
            return f"{name}: {failure.message}"
        case click.BadParameter():
            return failure.message
        case _:
            return failure.format_message()


def _name(parameter: click.Parameter) -> str:
    """Return how a parameter is typed: `--account`, or FOLDER."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name


def _describe_command(name: str, context: click.Context) -> str:
    from relayer.commands.suggestions import suggest_command  # noqa: PLC0415 - for a refusal only

    noun = "command" if context.parent is None else "action"
    assert isinstance(context.command, click.Group)  # nothing else looks for commands
    names = context.command.list_commands(context)
    return f"there is no {noun} {name}{suggest_command(name, names, is_first=not context.parent)}"


def _describe_option(name: str, context: click.Context) -> str:
    from relayer.commands.suggestions import suggest_option  # noqa: PLC0415 - for a refusal only

    parameters = context.command.get_params(context)
    names = [option for one in parameters for option in one.opts if option.startswith("--")]
    meant = suggest_option(name, names)
    if isinstance(context.command, click.Group) and name.startswith("--") and not meant:
        return f"{name} goes behind the command"
    return f"there is no option {name}{meant}"
