"""The checks of what remembers for agents here: who is to use a gateway, the gateway, its spool.

It does not own what these need (`openclaw.py`, `gateway/`).
"""

import re
import shlex
from pathlib import Path

from memrelay import __version__
from memrelay.doctor.case import Case
from memrelay.doctor.findings import Verdict, ok, problem, skipped, warning
from memrelay.errors import ConfigError, TransportError
from memrelay.gateway.endpoint import Endpoint, endpoint_path
from memrelay.openclaw import PLUGIN_ID, Configuration, config_path

WAITING_S_WARN = 600  # a gateway that reaches its relayer delivers at once
_SWITCHES = ("recall", "capture")
_TURN = re.compile(r"(\d{13})-.*\.turn")


def check_openclaw(case: Case) -> Verdict:
    """Tell whether an OpenClaw that is to use the plugin is set up for it."""
    path = config_path(case.environ)
    if not path.exists():
        return skipped("there is no OpenClaw here")
    if f'"{PLUGIN_ID}"' not in path.read_text(encoding="utf-8", errors="replace"):
        return skipped("OpenClaw does not use memrelay: `memrelay openclaw install` sets it up")
    case.gateway_wanted = True
    # The same place that the installation writes to.
    plugin = case.main_path.absolute().with_name("openclaw-plugin")
    try:
        missing = Configuration(path).missing(plugin=plugin, endpoint=_endpoint_path(case))
    except ConfigError as error:
        return problem(str(error), "memrelay openclaw install")
    if missing or not plugin.is_dir():
        places = ", ".join(".".join(change.path) for change in missing) or str(plugin)
        return problem(f"OpenClaw's set-up lacks {places}.", "memrelay openclaw install")
    return ok(str(path))


def check_gateway(case: Case) -> Verdict:
    """Tell whether the local gateway runs, and what it reaches."""
    path = _endpoint_path(case)
    endpoint = Endpoint.read(path)
    if endpoint is None:
        if case.gateway_wanted:
            return problem("No gateway runs, and OpenClaw needs one.", "memrelay gateway")
        return skipped("none runs here: agents that need one have `memrelay gateway`")
    try:
        status = endpoint.ask("status")
    except TransportError:
        return problem("A gateway was started, but does not answer.", "memrelay gateway")
    except ConfigError:
        detail = f"Another gateway answers than the one that wrote {path}."
        return problem(detail, f"rm {shlex.quote(str(path))}")
    if status["version"] != __version__:
        detail = f"The gateway still runs version {status['version']}, not {__version__}."
        return warning(detail, f"kill {status['pid']}")
    away = [key["key"] for key in status["keys"] if not key["healthy"]]
    if away:
        detail = f"The gateway does not reach the relayer of {', '.join(away)}."
        return warning(detail, "memrelay gateway status")
    settings = status["settings"]
    recall, capture = ("on" if settings[f"auto_{what}"] else "off" for what in _SWITCHES)
    keys = ", ".join(key["key"] for key in status["keys"])
    return ok(f"process {status['pid']} holds {keys}; recall is {recall}, capture {capture}")


def check_spool(case: Case) -> Verdict:
    """Tell how many captured turns wait for the relayer, and for how long."""
    folder = _endpoint_path(case).with_name("spool")
    began = [int(m[1]) / 1000 for path in _files(folder) if (m := _TURN.fullmatch(path.name))]
    damaged = sum(path.suffix == ".damaged" for path in _files(folder))
    if damaged:
        detail = f"{damaged} captured turns are damaged and were set aside."
        return warning(detail, f"rm {shlex.quote(str(folder))}/*.damaged")
    if not began:
        return ok("no captured turn waits")
    age_s = round(case.clock() - min(began))
    detail = f"{len(began)} captured turns wait for the relayer, the oldest for {age_s} s"
    if age_s < WAITING_S_WARN:
        return ok(detail)
    return warning(f"{detail}.", "memrelay gateway")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _endpoint_path(case: Case) -> Path:
    return endpoint_path(case.main_path, case.environ)
