"""The command completion: what a shell needs to complete commands, options and choices.

It does not own the commands: what there is, the parsers say themselves, when the shell asks.
"""

from argparse import Action, ArgumentParser
from collections.abc import Iterable, Sequence

from memrelay.commands.parsers import Adder, find_actions
from memrelay.commands.program import build_parser
from memrelay.commands.shell import Shell

SHELLS = ("bash", "zsh", "fish")
_ASK = "words"  # what the shells call, with the words typed so far

_SCRIPTS = {
    "bash": """\
_memrelay() {
    local IFS=$'\\n'
    COMPREPLY=($(memrelay completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _memrelay memrelay""",
    "zsh": """\
_memrelay() {
    local -a found
    found=("${(@f)$(memrelay completion words -- "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _memrelay memrelay""",
    "fish": """\
function __memrelay_complete
    set -l typed (commandline -opc) (commandline -ct)
    set -l found (memrelay completion words -- $typed[2..] 2>/dev/null)
    if test -n "$found"
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c memrelay -f -a '(__memrelay_complete)'""",
}


def register(add: Adder) -> None:
    """Add the command."""
    parser = add("completion", completion, namespace=False, agent=False)
    parser.add_argument("shell", choices=(*SHELLS, _ASK), metavar="{bash,zsh,fish}")
    words = parser.add_argument("words", nargs="*", metavar="WORD", help="typed, for the scripts")
    words.required = False  # as it is: Python names it among those that are missing


def completion(shell: Shell) -> None:
    """Print what completes commands in bash, zsh or fish."""
    args = shell.args
    lines = find_completions(args.words) if args.shell == _ASK else [_SCRIPTS[args.shell]]
    shell.show({"lines": lines}, lines)


def find_completions(words: Sequence[str]) -> list[str]:
    """Return what the last of these words, which follow the program's name, may become."""
    *before, last = words or [""]
    parser: ArgumentParser = build_parser(before[0] if before else "--help")
    while before and (actions := find_actions(parser)):
        parser = actions.get(before.pop(0), ArgumentParser(add_help=False))
    found = _after_option(parser, before) if before else None
    if found is None:
        found = _options(parser) if last.startswith("-") else _positionals(parser, before)
    return [choice for choice in found if choice.startswith(last)]


def _after_option(parser: ArgumentParser, before: Sequence[str]) -> list[str] | None:
    """Return the choices of an option that wants a value now; None if none does."""
    action = parser._option_string_actions.get(before[-1])
    if action is None or action.nargs == 0:
        return None
    return _choices([action])


def _options(parser: ArgumentParser) -> list[str]:
    return [name for name in parser._option_string_actions if name.startswith("--")]


def _positionals(parser: ArgumentParser, before: Sequence[str]) -> list[str]:
    if actions := find_actions(parser):
        return list(actions)
    if any(not word.startswith("-") for word in before):
        return []  # the choices are those of the first: an action
    return _choices(parser._get_positional_actions()[:1])


def _choices(actions: Iterable[Action]) -> list[str]:
    return [str(choice) for action in actions for choice in action.choices or ()]
