"""The checks that need no relayer: the profile, the environment, and what was seen before.

It does not own reading them (`config.py`).
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from memrelay.config import VARIABLES, Settings, read_profile
from memrelay.doctor.case import Case
from memrelay.doctor.findings import Verdict, describe_move, describe_repair, ok, problem, warning
from memrelay.errors import ConfigError
from memrelay.sealed.keys import mask_key


def check_profile(case: Case) -> Verdict:
    """Tell whether there are settings, private and well-formed."""
    if case.agent and not case.path.exists():
        detail = f"There is no profile at {case.path}."
        return problem(detail, case.agents(f"provision {case.agent}"))
    try:
        values = read_profile(case.path, missing_ok=not case.required)
        account = mask_key(case.settings.account_id)
    except ConfigError as error:
        if wrong := _wrong_variables(case):
            detail = f"{error} The profile is well: {' or '.join(wrong)} is wrong."
            return problem(detail, f"unset {' '.join(wrong)}")
        edit = f"${{EDITOR:-vi}} {shlex.quote(str(case.path))}"
        begin = "init URL" if "MEMRELAY_URL" in case.environ else "init --local"
        mended = describe_repair(case.path, edit) if case.path.exists() else case.command(begin)
        return problem(str(error), mended)
    place = str(case.path) if values else "the environment"
    return ok(f"{place}: key {case.settings.masked_key} of account {account}")


def _wrong_variables(case: Case) -> list[str]:
    """Return the variables that spoil a profile which is well without them."""
    if not _loads(case.path, {}):
        return []
    given = {name: value for name in VARIABLES.values() if (value := case.overrides.get(name))}
    alone = [name for name, value in given.items() if not _loads(case.path, {name: value})]
    return alone or list(given)


def _loads(path: Path, environ: Mapping[str, str]) -> bool:
    try:
        Settings.load(path, environ=environ)
    except ConfigError:
        return False
    return True


def check_environment(case: Case) -> Verdict:
    """Tell which variables win over the profile."""
    if case.agent:
        return ok("it does not count for an agent's own profile")
    try:
        alone = Settings.load(case.path, environ={})
    except ConfigError:
        return ok("it is needed: the profile alone does not suffice")
    differing = [
        variable
        for name, variable in VARIABLES.items()
        if (value := case.overrides.get(variable))
        and getattr(Settings.load(case.path, environ={variable: value}), name)
        != getattr(alone, name)
    ]
    if differing:
        detail = f"The environment overrides the profile: {', '.join(differing)}."
        return warning(detail, f"unset {' '.join(differing)}")
    return ok("it does not override the profile")


def check_swap(case: Case) -> Verdict:
    """Tell whether texts and keys of what runs here may be swapped to a disk in clear."""
    swaps = find_plain_swaps(case.system)
    if swaps is None:
        return ok("this system does not tell where it swaps to")
    if not swaps:
        return ok("no swap on a disk that is not encrypted")
    detail = f"Swap is not known to be encrypted: {', '.join(swaps)}. Texts and keys may be left"
    return warning(f"{detail} there.", f"sudo swapoff {shlex.quote(swaps[0])}")


def find_plain_swaps(root: Path) -> list[str] | None:
    """Return where memory may be swapped to that is not known to be encrypted.

    Empty: nowhere. None: the system does not tell. `root` is where /proc and /sys are.
    """
    try:
        lines = (root / "proc/swaps").read_text().splitlines()[1:]
    except OSError:
        return None
    return [name for name in (line.split()[0] for line in lines) if not _is_safe(root, name)]


def _is_safe(root: Path, swap: str) -> bool:
    """Return whether a swap is a device that dm-crypt encrypts, or in memory without a disk."""
    block = root / "sys/block" / Path(os.path.realpath(swap)).name
    try:
        if block.name.startswith("zram"):
            return (block / "backing_dev").read_text().strip() == "none"
        return (block / "dm/uuid").read_text().startswith("CRYPT-")
    except OSError:
        return False


def check_history(case: Case) -> Verdict:
    """Tell whether this client knows what the relayer showed it before."""
    path = case.settings.seen_path
    if path is None:
        detail = "What the relayer showed is forgotten with each process: nowhere to keep it."
        return warning(detail, case.command("init URL"))
    try:
        seen = case.trust_state
    except ConfigError as error:
        return problem(str(error), describe_repair(path, describe_move(path)))
    receipts = max(seen.receipt_seq, seen.checked_seq)
    return ok(f"grants up to {seen.grant_serial}, receipts up to {receipts}")
