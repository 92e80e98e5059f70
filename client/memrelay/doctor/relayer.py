"""The checks of the relayer: is it reached, is it one, does its clock agree, is it the pinned one.

It does not own why it is not reached (`refusals.py`) or what it makes of the key (`key.py`).
"""

import shlex
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from memrelay.answers import Answer, read_json_object
from memrelay.doctor.case import Case
from memrelay.doctor.findings import Verdict, ok, problem, warning
from memrelay.doctor.local import find_local_problem
from memrelay.errors import ServerError, UntrustedRelayer
from memrelay.sealed.keys import mask_key

CLOCK_SKEW_S_MAX = 300  # beyond it, the relayer refuses every signature
CLOCK_SKEW_S_WARN = 60
_DATE_AGE_S_MAX = 3  # it has whole seconds, and a server writes it anew about once a second
API_MAJOR = "1"


@dataclass(frozen=True, kw_only=True)
class Health(Answer):
    """The health that a relayer states."""

    status: str


def check_relayer(case: Case) -> Verdict:
    """Tell whether a relayer answers."""
    if (found := find_local_problem(case)) is not None:
        return found
    url = case.settings.url
    response = case.health.response
    try:
        health = Health.from_json(read_json_object(response.content))
    except ServerError:
        health = None
    if health is None or not response.is_success:
        detail = f"Something else than a relayer answers at {url} ({response.status_code})."
        return problem(detail, f"curl -i {shlex.quote(str(url))}")
    return ok(f"{url} answers: {health.status}")


def check_version(case: Case) -> Verdict:
    """Tell whether the relayer and this client speak the same protocol."""
    version = case.client.version()
    api = str(version.get("apiVersion"))
    if api.partition(".")[0] != API_MAJOR:
        detail = f"The relayer speaks version {api} of the protocol, this client {API_MAJOR}."
        newer = f"{detail} A checkout of the relayer's release has the client for it."
        return problem(newer, "pip install --upgrade ./client")
    return ok(f"relayer {version.get('relayerVersion')}, protocol {api}")


def check_clock(case: Case) -> Verdict:
    """Tell how far this machine's clock is from the relayer's."""
    heard = case.health
    try:
        told = parsedate_to_datetime(heard.response.headers.get("date", ""))
        least_s = (heard.asked - told).total_seconds() - _DATE_AGE_S_MAX
        most_s = (heard.come - told).total_seconds()
    except (ValueError, TypeError):  # a time without a zone is none either
        return ok("the relayer does not tell its time")
    ahead_s = 0 if least_s <= 0 <= most_s else round((least_s + most_s) / 2)
    skew_s = abs(ahead_s)
    off = f"{skew_s} s {'ahead of' if ahead_s > 0 else 'behind'} the relayer's"
    detail = f"This machine's clock is {off}"
    if skew_s > CLOCK_SKEW_S_MAX:
        return problem(f"{detail}; {CLOCK_SKEW_S_MAX} are allowed.", case.set_clock())
    if skew_s > CLOCK_SKEW_S_WARN:
        return warning(f"{detail}.", case.set_clock())
    return ok(off if skew_s else "as the relayer's")


def check_identity(case: Case) -> Verdict:
    """Tell whether the relayer is the one that this client trusts."""
    pin = case.settings.relayer_key or case.trust_state.relayer_key
    try:
        relayer = case.client.statement().relayer.hex()
    except UntrustedRelayer as error:
        if pin is None or error.code != "pin":
            return problem(str(error), "relayer doctor")
        return problem(f"{error} Trust it only if its operator gives you its KEY.", case.trust())
    return ok(f"{mask_key(relayer)}, {'as pinned' if pin else 'pinned now, at first contact'}")
