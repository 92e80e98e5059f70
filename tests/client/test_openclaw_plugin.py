"""The files of OpenClaw's plugin agree with the gateway, and with each other."""

import json
import re
from dataclasses import fields
from importlib import resources
from typing import Any

import pytest

from memrelay import ConfigError, __version__
from memrelay.commands.openclaw import OPENCLAW_MIN
from memrelay.gateway import GatewaySettings
from memrelay.gateway.settings import PROFILES
from tests.generate_plugin import TOOLS, files

PLUGIN = resources.files("memrelay.openclaw_plugin")
TYPES: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
# Of the gateway's process, not of a connection; `endpoint` and `dreaming` are the plugin's own.
NOT_PLUGIN = {"spool_bytes_max", "spool_turns_max", "capture_retry_s"}
OWN = {"endpoint", "dreaming", "profile"}


def text(name: str) -> str:
    return PLUGIN.joinpath(name).read_text()


def manifest() -> Any:
    return json.loads(text("openclaw.plugin.json"))


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = manifest()["configSchema"]["properties"][name]
    return found


def camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


SETTINGS = {
    camel(item.name): getattr(GatewaySettings(), item.name)
    for item in fields(GatewaySettings)
    if item.name not in NOT_PLUGIN
}


@pytest.mark.parametrize("name", files())
def test_tools_and_skill_are_the_gateways(name: str) -> None:
    """capability 2.24: the plugin ships a skill file that says which tool is for what."""
    assert text(name) == files()[name], "run `python -m tests.generate_plugin`"


def test_the_manifest_declares_the_tools() -> None:
    """OpenClaw refuses to register a tool that the manifest does not declare."""
    names = [tool.name for tool in TOOLS]
    assert manifest()["contracts"]["tools"] == names
    assert list(manifest()["toolMetadata"]) == names
    assert manifest()["skills"] == ["./skills"]


def test_the_manifest_knows_every_setting_and_no_other() -> None:
    """capability 2.25: the plugin is configured by name, autoCapture and autoRecall too."""
    described = manifest()["configSchema"]
    assert set(described["properties"]) == {*SETTINGS, *OWN}
    assert described["additionalProperties"] is False
    assert schema("profile")["enum"] == list(PROFILES)
    assert set(manifest()["uiHints"]) <= set(described["properties"])


@pytest.mark.parametrize(("name", "value"), SETTINGS.items())
def test_a_setting_has_the_same_type_and_bounds(name: str, value: object) -> None:
    """capability 0.45: OpenClaw refuses what the gateway would refuse, before the plugin starts."""
    described = schema(name)
    assert described["type"] == TYPES[type(value)]
    # A default here would override the gateway's own settings file.
    assert "default" not in described
    for allowed in (
        *described.get("enum", ()),
        *(described[bound] for bound in ("minimum", "maximum") if bound in described),
    ):
        GatewaySettings.of({name: allowed})
    for refused in _beyond(described):
        with pytest.raises(ConfigError, match="is "):
            GatewaySettings.of({name: refused})


def _beyond(described: dict[str, Any]) -> list[Any]:
    if "minimum" in described:
        return [described["minimum"] - 1, described["maximum"] + 1]
    return ["something else"] if "enum" in described else []


def test_the_manifest_names_no_secret() -> None:
    """capability 0.40: there is no setting for a private key, so none gets into openclaw.json."""
    names = manifest()["configSchema"]["properties"]
    assert not [name for name in names if re.search("key|secret|token$|password", name, re.I)]


def test_the_versions_agree() -> None:
    """capability 2.25: the plugin names the oldest OpenClaw that it works with."""
    package = json.loads(text("package.json"))
    assert package["version"] == __version__
    floor = f">={'.'.join(map(str, OPENCLAW_MIN))}.0"
    assert package["openclaw"]["compat"]["pluginApi"] == floor
    assert package["openclaw"]["install"]["minHostVersion"] == floor
    assert package["openclaw"]["extensions"] == ["./index.js"]


def test_it_takes_the_memory_slot() -> None:
    assert (manifest()["id"], manifest()["kind"]) == ("memrelay", "memory")


@pytest.mark.parametrize("name", ["index.js", "link.js"])
def test_it_imports_nothing_that_reaches_further(name: str) -> None:
    """OpenClaw refuses plugins that start processes; this one talks to a local socket only."""
    imported = set(re.findall(r'from "([^"]+)"', text(name)))
    assert imported <= {"node:fs", "node:net", "node:os", "node:path", "./link.js"}
    assert not re.search(r"\b(import\(|require\(|eval\(|Function\(|fetch\(|https?:)", text(name))
