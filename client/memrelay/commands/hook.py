"""The command `memrelay hook`: a coding agent's event, from standard input to standard output.

It does not own what an event means (`coding/`). A host takes exit code 2 for "stop the user's
prompt", so the code is 0 whatever happens; `cli.py` sees to it.
"""

import logging
import sys
from typing import Final

from memrelay.coding.hosts import EVENTS, HOSTS, PROMPT
from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import agent_name
from memrelay.errors import ConfigError

DELIVER: Final = "deliver"
_INPUT_BYTES_MAX: Final = 16 * 1024 * 1024


def register(add: Adder) -> None:
    """Add the command hook."""
    parser = add("hook", hook, namespace=False, agent=False)
    parser.add_argument("event", choices=(*EVENTS, DELIVER), help="what happened")
    parser.add_argument("--host", choices=tuple(HOSTS), required=True, help="where it happened")
    parser.add_argument("--agent", metavar="NAME", required=True, help="whose key to use")


def hook(shell: Shell) -> None:
    """Answer an event of a coding agent, which runs this command.

    The exit code is 0 whatever happens.
    """
    from memrelay.coding.delivery import begin_delivery, deliver  # noqa: PLC0415
    from memrelay.coding.hook import UNUSABLE, Hook, tell_unusable  # noqa: PLC0415
    from memrelay.coding.memory import CodingMemory, hooks_folder, outage_of  # noqa: PLC0415

    logging.getLogger("memrelay").addHandler(logging.NullHandler())
    args, environ = shell.args, shell.environ
    host = HOSTS[args.host]
    if args.event != DELIVER and sys.stdin.isatty():
        raise ConfigError(f"{host.title} runs this command, with JSON on standard input.")
    given = None if args.event == DELIVER else host.read(_read_input())
    try:
        memory = CodingMemory.load(args.agent, host.source, args.profile, environ)
    except ConfigError as error:
        outage = outage_of(hooks_folder(args.profile, environ), agent_name(args.agent))
        outage.note_failure(UNUSABLE)
        is_untold = args.event == PROMPT and outage.take_untold() is not None
        notice = tell_unusable(host.name) if is_untold else None
        print(host.write(args.event, context=None, notice=notice), end="")
        return warn(str(error))
    if given is None:
        return deliver(memory)
    options = ["--host", host.name, "--agent", memory.agent]
    if args.profile:
        options += ["--profile", args.profile]
    answer = Hook(memory, lambda: begin_delivery(options, environ)).handle(args.event, given)
    print(host.write(args.event, context=answer.context, notice=answer.notice), end="")


def _read_input() -> bytes:
    data = sys.stdin.buffer.read(_INPUT_BYTES_MAX + 1)
    if len(data) > _INPUT_BYTES_MAX:
        raise ConfigError("The input is too long.")
    return data
