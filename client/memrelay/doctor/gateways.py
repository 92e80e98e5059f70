"""The checks of what remembers for agents here: Hermes, OpenClaw, the gateway and its spool.

It does not own what these need (`hermes/`, `openclaw.py`, `gateway/`).
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from memrelay import __version__
from memrelay.config import spool_folder
from memrelay.doctor.case import Case
from memrelay.doctor.findings import (
    Verdict,
    describe_move,
    describe_repair,
    ok,
    problem,
    skip,
    warning,
)
from memrelay.errors import ConfigError, TransportError
from memrelay.gateway.endpoint import Endpoint, endpoint_path
from memrelay.gateway.serve import REFUSES
from memrelay.gateway.settings import GatewaySettings, settings_path, settings_table
from memrelay.gateway.spool import SpoolKey, find_kept_time, key_of
from memrelay.hermes import home as hermes
from memrelay.hermes.interpreter import find_install_command, interpreter
from memrelay.openclaw import ENTRY, PLUGIN_ID, Configuration, config_path
from memrelay.plurals import format_count

WAITING_S_WARN = 600  # a gateway that reaches its relayer delivers at once
_SWITCHES = ("recall", "capture")


def check_hermes(case: Case) -> Verdict:
    """Tell whether a Hermes that is to use the provider is set up for it."""
    try:
        home = hermes.home_path(None, case.environ)
    except ConfigError:
        return skip("there is no Hermes here")
    install = case.local("hermes install")
    installed = hermes.plugin_path(home).exists()
    try:
        chosen = hermes.Configuration(home).provider == hermes.PROVIDER
    except ConfigError as error:
        # What is not written in plain lines may still say the right thing.
        edit = f"${{EDITOR:-vi}} {shlex.quote(str(home / 'config.yaml'))}"
        return warning(f"{error} See that memory.provider is memrelay.", edit)
    if not (installed or chosen):
        return skip(f"Hermes does not use memrelay: `{install}` sets it up")
    if not chosen:
        return problem("Hermes has the provider, but has not chosen it.", install)
    if not hermes.plugin_is_written(home):
        return problem(
            "The provider's files for Hermes are missing, or another version's.", install
        )
    return _hermes_profile(case, home) or _hermes_python(case) or ok(str(home))


def _hermes_profile(case: Case, home: Path) -> Verdict | None:
    try:
        settings = hermes.HermesSettings.load(home)
    except ConfigError as error:
        path = shlex.quote(str(hermes.settings_path(home)))
        return problem(str(error), f"${{EDITOR:-vi}} {path}")
    used = settings.choose_profile(hermes.identity_of(home), case.environ)
    if settings.profile and not used.exists():
        detail = f"Hermes is to use the profile {used}, which is not there."
        return problem(detail, case.local("hermes install"))
    return None


def _hermes_python(case: Case) -> Verdict | None:
    python = interpreter(case.environ)
    if python is None:
        detail = "The command hermes is not on the PATH: which Python runs it was not found."
        return warning(detail, "ls ~/.local/bin")
    try:
        command = find_install_command(python)
    except ConfigError as error:
        return warning(str(error), f"ls -l {shlex.quote(str(python))}")
    detail = f"The Python of Hermes, {python}, cannot import memrelay."
    return problem(detail, command) if command else None


def check_openclaw(case: Case) -> Verdict:
    """Tell whether an OpenClaw that is to use the plugin is set up for it."""
    path = config_path(case.environ)
    install = case.local("openclaw install")
    if not path.exists():
        return skip("there is no OpenClaw here")
    if not _openclaw_uses_us(case):
        return skip(f"OpenClaw does not use memrelay: `{install}` sets it up")
    # The same place that the installation writes to.
    plugin = case.main_path.absolute().with_name("openclaw-plugin")
    try:
        configuration = Configuration(path)
        missing = configuration.find_missing(plugin=plugin, endpoint=_endpoint_path(case))
    except ConfigError as error:
        return problem(str(error), install)
    if missing or not plugin.is_dir():
        places = ", ".join(".".join(change.path) for change in missing) or str(plugin)
        return problem(f"OpenClaw's set-up lacks {places}.", install)
    try:
        GatewaySettings.of(configuration.settings)  # as the gateway reads them of the plugin
    except ConfigError as error:
        place = ".".join((*ENTRY, "config"))
        return problem(f"{place}: {error}", f"${{EDITOR:-vi}} {shlex.quote(str(path))}")
    return ok(str(path))


def _openclaw_uses_us(case: Case) -> bool:
    path = config_path(case.environ)
    return path.exists() and f'"{PLUGIN_ID}"' in path.read_text(encoding="utf-8", errors="replace")


def check_gateway(case: Case) -> Verdict:
    """Tell whether the local gateway can start, runs, and what it reaches."""
    try:
        settings_table(None, case.main_path, case.environ)
    except ConfigError as error:
        path = settings_path(case.main_path, case.environ)
        edit = f"${{EDITOR:-vi}} {shlex.quote(str(path))}"
        return problem(str(error), edit if path.is_file() else describe_move(path))
    path = _endpoint_path(case)
    start = case.local("gateway")
    try:
        endpoint = Endpoint.read(path)
    except ConfigError as error:
        return problem(str(error), describe_repair(path, f"rm {shlex.quote(str(path))}"))
    if endpoint is None:
        if _openclaw_uses_us(case):
            return problem("No gateway runs, and OpenClaw needs one.", start)
        return skip(f"none runs here: agents that need one have `{start}`")
    try:
        status = endpoint.ask("status")
    except TransportError:
        return problem("A gateway was started, but does not answer.", start)
    except ConfigError:
        detail = f"Another gateway answers than the one that wrote {path}."
        return problem(detail, f"rm {shlex.quote(str(path))}")
    if status["version"] != __version__:
        detail = f"The gateway still runs version {status['version']}, not {__version__}."
        return warning(detail, f"kill {status['pid']}")
    refused = [key["key"] for key in status["keys"] if key.get("state") == REFUSES]
    if refused:
        detail = f"The gateway holds {', '.join(refused)}, which the relayer refuses."
        return problem(detail, case.local("agents list"))
    away = [key["key"] for key in status["keys"] if not key["healthy"]]
    if away:
        detail = f"The gateway does not reach the relayer of {', '.join(away)}."
        return warning(detail, case.local("gateway status"))
    settings = status["settings"]
    recall, capture = ("on" if settings[f"auto_{what}"] else "off" for what in _SWITCHES)
    keys = ", ".join(key["key"] for key in status["keys"])
    return ok(f"process {status['pid']} holds {keys}; recall is {recall}, capture {capture}")


def check_spool(case: Case) -> Verdict:
    """Tell how many captured turns wait for the relayer, since when, and whether with a key."""
    folder = spool_folder(case.main_path, case.environ)
    names = [path.name for path in _files(folder)]
    began = [since for name in names if (since := find_kept_time(name)) is not None]
    damaged = sum(name.endswith(".damaged") for name in names)
    if damaged:
        detail = f"{format_count(damaged, 'captured turn')} set aside as damaged."
        return warning(detail, f"rm {shlex.quote(str(folder))}/*.damaged")
    if not began:
        return ok("no captured turn waits")
    age_s = round(case.clock() - min(began))
    waiting = format_count(len(began), "captured turn")
    detail = f"{waiting} not delivered to the relayer yet, the oldest for {age_s} s"
    if age_s < WAITING_S_WARN:
        return ok(detail)
    return _find_orphans(case, folder, names) or warning(f"{detail}.", case.local("gateway"))


def _find_orphans(case: Case, folder: Path, names: Sequence[str]) -> Verdict | None:
    """Find turns that wait for no key here, as of a revoked agent; no gateway can open them."""
    here = {SpoolKey.of(identity).name for identity in case.identities()}
    orphans = [
        name for name in names if find_kept_time(name) is not None and key_of(name) not in here
    ]
    if not orphans:
        return None
    strangers = sorted({key_of(name) for name in orphans})
    detail = (
        f"{format_count(len(orphans), 'captured turn')} sealed for a key that is not here any "
        "more: no gateway can deliver them. Unless a program of yours has that key, they are lost."
    )
    files = " ".join(f"{shlex.quote(str(folder))}/*-{key}-*" for key in strangers)
    return warning(detail, f"rm {files}")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _endpoint_path(case: Case) -> Path:
    return endpoint_path(case.main_path, case.environ)
