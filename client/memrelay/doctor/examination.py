"""Every check, in order, and what each one rests on.

It does not own the checks (`machine.py`, `relayer.py`, `key.py`, `gateways.py`).

- A check whose ground is gone is not looked at, so that one cause makes one problem.
- Nothing changes but what every client keeps of the relayers it has seen; the probe alone stores a
  memory, and forgets it.
"""

import shlex
from collections.abc import Callable, Iterator

from memrelay.config import Unconnectable
from memrelay.doctor import gateways, key, machine, relayer
from memrelay.doctor.case import Case
from memrelay.doctor.findings import PROBLEM, SKIPPED, Finding, Verdict, problem, skip
from memrelay.doctor.refusals import explain_unreachable
from memrelay.errors import MemrelayError, ServerError
from memrelay.transport import httpx

Check = Callable[[Case], Verdict]

CHECKS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "profile": (machine.check_profile, ()),
    "environment": (machine.check_environment, ("profile",)),
    "history": (machine.check_history, ("profile",)),
    "relayer": (relayer.check_relayer, ("profile",)),
    "version": (relayer.check_version, ("relayer", "history")),
    "clock": (relayer.check_clock, ("relayer",)),
    "identity": (relayer.check_identity, ("version", "clock")),
    "key": (key.check_key, ("version", "clock")),
    "grants": (key.check_grants, ("identity", "key")),
    "namespace": (key.check_namespace, ("grants",)),
    "custody": (key.check_custody, ("grants",)),
    "storage": (key.check_storage, ("grants",)),
    "recalls": (key.check_recalls, ("grants",)),
    "facts": (key.check_facts, ("grants",)),
    "agents": (key.check_other_keys, ("grants",)),
    "search": (key.check_search, ("namespace", "custody")),
    "hermes": (gateways.check_hermes, ()),
    "openclaw": (gateways.check_openclaw, ()),
    "gateway": (gateways.check_gateway, ()),
    "spool": (gateways.check_spool, ()),
    "swap": (machine.check_swap, ()),
}
PROBE: dict[str, tuple[Check, tuple[str, ...]]] = {"probe": (key.check_probe, ("search",))}


def examine(case: Case, *, probe: bool = False) -> Iterator[Finding]:
    """Yield what each check finds."""
    lost: set[str] = set()
    try:
        for name, (check, needs) in (CHECKS | (PROBE if probe else {})).items():
            gone = next((need for need in needs if need in lost), None)
            verdict = (
                skip(f"not looked at before this is well: {gone}")
                if gone
                else _try_check(check, case)
            )
            if verdict.state in {PROBLEM, SKIPPED}:
                lost.add(name)
            yield Finding(check=name, **verdict._asdict())
    finally:
        case.close()


def _try_check(check: Check, case: Case) -> Verdict:
    try:
        return check(case)
    except httpx.HTTPError as error:
        return explain_unreachable(error, case.inquiry.url)
    except ServerError as error:
        return problem(str(error), "relayer doctor")
    except Unconnectable as error:
        return problem(str(error), "env | grep -i -e _proxy -e ssl_cert")
    except MemrelayError as error:
        return problem(str(error), case.command("doctor"))
    except OSError as error:
        path = shlex.quote(str(error.filename))
        return problem(f"{path} cannot be read: {error.strerror}.", f"ls -ld {path}")
