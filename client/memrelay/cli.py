"""The command `memrelay`: its groups, one-line errors and exit codes.

It does not own what the commands do and take (`commands/`). Private keys come from the profile or
the environment, never from arguments, which other users of a machine can see.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence

from memrelay.commands import catalogue
from memrelay.commands.exit_codes import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOT_FOUND,
    EXIT_OK,
    EXIT_USAGE,
)
from memrelay.commands.program import VERSION, build_parser
from memrelay.commands.streams import open_streams, tell_error, warn
from memrelay.errors import (
    ConfigError,
    Invalid,
    MemrelayError,
    NotFound,
    NotGranted,
    NotStarted,
    ServerError,
    TimedOut,
    TransportError,
    UntrustedRelayer,
)

__all__ = [
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_NOT_FOUND",
    "EXIT_OK",
    "EXIT_USAGE",
    "build_parser",
    "main",
]


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run a command and return its exit code."""
    given = sys.argv[1:] if argv is None else list(argv)
    if given[:1] != ["hook"]:
        return _main(given, environ, is_process=argv is None)
    # A coding agent takes a hook's code 2 for "stop the user's prompt", and others for a fault.
    try:
        _main(given, environ, is_process=argv is None)
    except (Exception, SystemExit) as error:
        if not isinstance(error, SystemExit):
            warn(f"The hook failed ({type(error).__name__}).")
    return EXIT_OK


def _main(given: list[str], environ: Mapping[str, str] | None, *, is_process: bool) -> int:
    as_json = False
    if given[:1] == ["help"]:  # as many programs have it
        given = [*given[1:], "--help"]
    try:
        open_streams()
        if given == ["--version"]:  # to build a parser takes as long as all the rest
            print(VERSION, flush=True)
            return EXIT_OK
        args = _arguments(given, is_process=is_process)
        as_json = args.json
        _run(args, os.environ if environ is None else environ, is_process=is_process)
        sys.stdout.flush()
        if not as_json:
            _tell_times(args)
    except (MemrelayError, ValueError) as error:
        _tell(error, as_json=as_json, is_first=given[:1] == ["init"])
        return _exit_code(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        # Whoever reads from a broken pipe has enough; a full disk is worth a word.
        if not isinstance(error, BrokenPipeError):
            told = f"{error.filename or 'The output'}: {error.strerror or type(error).__name__}."
            _tell(MemrelayError(told), as_json=as_json)
        # What could not be written is not tried again at exit, which would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return EXIT_OK


def _tell(error: Exception, *, as_json: bool, is_first: bool = False) -> None:
    """Print one line, or with `--json` one JSON value in a line.

    With `is_first`, there is no profile yet that the doctor could look at.
    """
    told = _format_error(error)
    if isinstance(error, NotFound):  # the exit code says so, too
        told = error.message
    explains_itself = isinstance(error, NotStarted)
    if isinstance(error, TransportError) and not error.sent and not explains_itself:
        advice = _NO_RELAYER if is_first else "`memrelay doctor` says more."
        told = f"{told.removesuffix('.')}; {advice}"
    code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
    request_id = None
    if as_json and isinstance(error, ServerError):
        told, code, request_id = error.message, error.code, error.request_id
    elif isinstance(error, Invalid):
        code = error.code
    tell_error(told, code=code, request_id=request_id, as_json=as_json)


_NO_RELAYER = "does a relayer run there? `memrelay init --local` starts one of your own."
# What is more particular comes first.
_CODES: Mapping[type[Exception], str] = {
    TimedOut: "timed_out",
    TransportError: "unreachable",
    NotGranted: "not_granted",
    ConfigError: "settings",
    ValueError: "arguments",
    Exception: "failed",
}


def _format_error(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError | UnicodeEncodeError):
        # Of an argument or of standard input; what is shown is escaped instead.
        return f"The text is not {error.encoding.upper()}."
    return " ".join(str(error).split())


def _exit_code(error: Exception) -> int:
    if isinstance(error, NotFound):
        return EXIT_NOT_FOUND
    # A plain `Invalid` here is about an argument; what a relayer sends raises its subclasses.
    usage = isinstance(error, ConfigError | ValueError) or type(error) is Invalid
    return EXIT_USAGE if usage else EXIT_FAILED


def _arguments(given: Sequence[str], *, is_process: bool) -> Namespace:
    asked = _find_command_word(given)
    if is_process and (asked is None or catalogue.is_command(asked)):
        from memrelay.process import forbid_core_files  # noqa: PLC0415 - not for `--version`

        forbid_core_files()  # the environment may hold a key already
    try:
        return build_parser(asked).parse_args(given)
    finally:
        sys.stdout.flush()  # what asks for help or the version ends here


def _run(args: Namespace, environ: Mapping[str, str], *, is_process: bool) -> None:
    # The command's own module has loaded them; help and the version do without.
    from memrelay.commands.shell import Shell  # noqa: PLC0415
    from memrelay.process import keep_what_was_loaded  # noqa: PLC0415

    if is_process:  # a gateway, for instance
        keep_what_was_loaded()
    shell = Shell(args, environ)
    try:
        args.command(shell)
    except UntrustedRelayer as error:
        if error.code != "pin":
            raise
        from memrelay.commands.other_relayer import explain_other_relayer  # noqa: PLC0415 - rare

        raise explain_other_relayer(shell, error) from error


def _tell_times(args: Namespace) -> None:
    """Tell people how the times were read that are not in RFC 3339: the zone is this machine's."""
    for name, value in vars(args).items():
        if (note := getattr(value, "note", None)) is not None:
            warn(f"--{name.replace('_', '-')} {note}.")


def _find_command_word(given: Sequence[str]) -> str | None:
    """Return the word that may be a command, None where one may stand behind an option."""
    first = given[0] if given else "--help"
    is_odd = first.startswith("-") and first not in {"-h", "--help", "--help-all", "--version"}
    return None if is_odd else first
