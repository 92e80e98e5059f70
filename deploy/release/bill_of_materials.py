"""The bill of materials of a release (CycloneDX 1.6): both wheels, and what they were tested with.

Not here: which versions those are (`deploy/requirements/runtime.txt`, which pip-compile writes).

- Of one commit it has always the same bytes: its number comes from the commit, its time, too.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

_PIN: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA: Final = re.compile(r"    #(?: via|  ) +([A-Za-z0-9._-]+)")


@dataclass
class Pin:
    """A pinned package: the SHA-256 of each of its files, and what needs it."""

    name: str
    version: str
    sha256: list[str] = field(default_factory=list)
    needed_by: list[str] = field(default_factory=list)


def parse_pins(requirements: str) -> list[Pin]:
    """Return what a file of pip-compile pins, in its order."""
    pins: list[Pin] = []
    for line in requirements.splitlines():
        if found := _PIN.match(line):
            pins.append(Pin(found[1], found[2]))
        elif found := _HASH.search(line):
            pins[-1].sha256.append(found[1])
        elif found := _VIA.match(line):
            pins[-1].needed_by.append(found[1])
    return pins


def make_bill(
    *,
    version: str,
    commit: str,
    committed_at_s: int,
    wheels: Mapping[str, str],
    pins: Sequence[Pin],
    requirements_name: str,
) -> str:
    """Return the bill as JSON, checked against the schema.

    `wheels` are the SHA-256 of our own by their packages' names. `requirements_name` is the file of
    the release that has the pins.

    Raises:
        ValueError: it does not fit the schema.
    """
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"memrelay:{commit}"))
    bom.metadata.timestamp = datetime.fromtimestamp(committed_at_s, UTC)
    root = Component(name="memrelay", version=version, type=ComponentType.APPLICATION)
    root.bom_ref.value = f"memrelay-release@{version}"
    bom.metadata.component = root
    ours = {name: _our_component(name, version, digest) for name, digest in wheels.items()}
    others = {pin.name: _other_component(pin, requirements_name) for pin in pins}
    needs: dict[str, list[Component]] = {name: [] for name in (*ours, *others)}
    for pin in pins:
        for name in pin.needed_by:
            if name in needs:
                needs[name].append(others[pin.name])
    for component in (*ours.values(), *others.values()):
        bom.components.add(component)
        bom.register_dependency(component, needs[component.name])
    bom.register_dependency(root, ours.values())
    text: str = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the bill of materials does not fit its schema: {error}")
    return text + "\n"


def _our_component(name: str, version: str, sha256: str) -> Component:
    # A purl of a registry would name whatever is there under this name.
    return Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"{name}@{version}",
        purl=PackageURL("generic", None, name, version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
    )


def _other_component(pin: Pin, requirements_name: str) -> Component:
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(requirements_name),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in pin.sha256],
    )
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{pin.name}@{pin.version}",
        purl=PackageURL("pypi", None, pin.name, pin.version),
        external_references=[files],
    )
