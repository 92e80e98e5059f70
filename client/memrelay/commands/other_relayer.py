"""Says what to do where another relayer answers than the pinned one.

It does not own the pin (`trust_store.py`) or the check of it (`session.py`), and is imported when
that has failed.
"""

import shlex

from memrelay.commands.shell import Shell
from memrelay.config import VARIABLES, Settings, read_profile
from memrelay.errors import ConfigError, UntrustedRelayer

_PIN, _URL = VARIABLES["relayer_key"], VARIABLES["url"]


def explain_other_relayer(shell: Shell, error: UntrustedRelayer) -> UntrustedRelayer:
    """Return the error with where the pin is, and what to type if the account moved there."""
    try:
        settings, path = shell.settings(), shell.profile_path()
        values = read_profile(path, missing_ok=True)
    except ConfigError:  # as of `init`, which has no profile yet
        return error
    environ = {} if getattr(shell.args, "agent", None) else shell.environ
    place = _find_pin(settings, values.get("relayer_key"), str(path), environ.get(_PIN))
    told = [str(error), f"The pin is in {place}."]
    if (url := environ.get(_URL)) and values.get("url") not in {None, url}:
        told.append(f"{_URL} names another relayer than that profile: `unset {_URL}` goes back.")
    if environ.get(_PIN) or not path.exists():
        command = f"export {_PIN}=KEY"
    else:
        command = f"memrelay trust KEY{_options(shell)}"
    told.append(f"If the account moved there, ask its operator for KEY, and type `{command}`.")
    return UntrustedRelayer(error.code, " ".join(told))


def _find_pin(settings: Settings, pinned: object, profile: str, variable: str | None) -> str:
    if variable:
        return f"the variable {_PIN}"
    if pinned is not None or settings.seen_path is None:
        return profile
    return f"{settings.seen_path}, of the first contact"


def _options(shell: Shell) -> str:
    given = (("--profile", shell.args.profile), ("--agent", getattr(shell.args, "agent", None)))
    return "".join(f" {name} {shlex.quote(value)}" for name, value in given if value)
