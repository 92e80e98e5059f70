"""What we are made of: pinned, hashed, under licences that bind nobody, and from no index by name.

Not here: known weaknesses, which only a network can tell (SECURITY.md); whether all of it installs
(`test_wheels.py`).

- Licences are read from the installed packages. Whatever a package says of its licence has to be
  on the list, wherever it says it; one that says nothing is not let pass.
"""

import re
import tomllib
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "deploy/requirements"
FILES = ("runtime", "otel", "dev", "hermes", "openai", "bench", "swift", "deploy", "memwal-next")
ONNX = "../../relayer/embedding/onnx"  # which `relayer model fetch` reads, so it is packed

PERMISSIVE = frozenset(
    """0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause CC0-1.0 ISC MIT MIT-0 PSF-2.0 Zlib""".split()
)
# Copyleft of single files, which we do not change: for tools, and by name for what is served with.
WEAK = frozenset(["MPL-2.0"])
WEAK_AT_RUNTIME = {
    "certifi": "a list of certificates, not code",
}
# What packages write in place of SPDX's names.
SPELT = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
}
_PINNED = re.compile(
    r"([a-z0-9][a-z0-9-]*)(?:\[([a-z0-9,-]+)\])?"
    r"==([0-9][0-9a-z.]*)((?: --hash=sha256:[0-9a-f]{64})+)"
)


class Pin(NamedTuple):
    """One line of a requirements file."""

    name: str
    extras: frozenset[str]
    version: str
    hashes: frozenset[str]


OWN = [Pin("memrelay-relayer", frozenset(), "", frozenset())]


def pins(text: str) -> list[Pin]:
    """The pins of a requirements file, which has nothing else."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        match = _PINNED.fullmatch(line)
        assert match is not None, line
        hashes = re.findall(r"sha256:(\w+)", match[4])
        assert len(set(hashes)) == len(hashes), line
        extras = frozenset(filter(None, (match[2] or "").split(",")))
        found.append(Pin(match[1], extras, match[3], frozenset(hashes)))
    assert len({pin.name for pin in found}) == len(found)
    return found


def pinned(file: str) -> dict[str, Pin]:
    """Name → pin of one of our requirements files."""
    text = (REQUIREMENTS / f"{file}.txt").read_text(encoding="utf-8")
    return {pin.name: pin for pin in pins(text)}


def claims(package: Message) -> list[str]:
    """Everything that a package says of its licence."""
    said = [str(value) for value in package.get_all("License-Expression", [])]
    # Some put the whole text there: it begins with its name.
    texts = (str(value).strip() for value in package.get_all("License", []))
    said += [re.split(r"\n|\s{2,}", text)[0] for text in texts if text and text != "UNKNOWN"]
    for value in map(str, package.get_all("Classifier", [])):
        if value.startswith("License :: "):
            said.append(value.rpartition(" :: ")[2])
    return said


def permitted(claim: str, allowed: frozenset[str]) -> bool:
    """Whether these licences allow what a claim or an SPDX expression says."""
    plain = SPELT.get(claim.lower())
    if plain is not None:
        return plain in allowed
    if "(" in claim or " WITH " in claim:
        return False  # nobody says so by now; whoever does is looked at by a person
    return any(
        all(SPELT.get(one.lower(), one) in allowed for one in re.split(r" AND |, ", way))
        for way in claim.split(" OR ")
    )


def refused(package: Message, allowed: frozenset[str]) -> list[str]:
    """What a package says that is not allowed; that it says nothing, if so."""
    said = claims(package)
    return [claim for claim in said if not permitted(claim, allowed)] if said else ["nothing"]


@pytest.mark.parametrize(("file", "asked_min"), [("runtime", 1), ("dev", 3), ("otel", 1)])
def test_what_is_asked_for_with_extras_is_pinned_with_them(file: str, asked_min: int) -> None:
    """Pip 23, which comes with Python 3.11, else takes the newest version, for which is no hash."""
    found = pinned(file)
    packages = [*found.values(), *OWN] if file == "runtime" else [*found.values()]
    asked = [wanted for package in packages for wanted in required(package) if wanted.extras]
    assert len(asked) >= asked_min
    for wanted in asked:
        name = wanted.name.lower().replace("_", "-")
        assert wanted.extras <= found[name].extras, str(wanted)


def required(package: Pin) -> list[Requirement]:
    """What an installed package needs here."""
    chosen = [{"extra": extra} for extra in ("", *package.extras)]
    every = map(Requirement, metadata.requires(package.name) or ())
    return [w for w in every if w.marker is None or any(map(w.marker.evaluate, chosen))]


def distribution(*said: tuple[str, str]) -> Message:
    """The metadata of a package that says this."""
    message = Message()
    for name, value in said:
        message[name] = value
    return message


@pytest.mark.parametrize("file", [*FILES, ONNX])
def test_everything_is_pinned_and_hashed_and_nothing_names_an_index(file: str) -> None:
    text = (REQUIREMENTS / f"{file}.txt").read_text(encoding="utf-8")
    assert pins(text)
    assert "://" not in text


@pytest.mark.parametrize(
    "line",
    [
        "h11",
        "h11==0.16.0",
        "h11>=0.16.0 --hash=sha256:" + "0" * 64,
        "h11==0.16.* --hash=sha256:" + "0" * 64,
        "h11==0.16.0 --hash=sha256:" + "0" * 63,
        "h11==0.16.0 --hash=md5:" + "0" * 32,
        "h11 @ file:///h11.whl --hash=sha256:" + "0" * 64,
        "--index-url https://index.example/simple",
        "--extra-index-url https://index.example/simple",
        "--trusted-host index.example",
        "-e .",
        "-r other.txt",
    ],
)
def test_a_line_that_is_no_pin_is_seen(line: str) -> None:
    with pytest.raises(AssertionError):
        pins(f"# made by pip-compile\n{line}\n    # via us\n")


@pytest.mark.parametrize(
    ("one", "other", "shared_min"),
    [("runtime", "dev", 11), ("otel", "dev", 11), ("runtime", "otel", 3), (ONNX, "dev", 1)],
)
def test_the_same_package_has_the_same_files_wherever_it_is_pinned(
    one: str, other: str, shared_min: int
) -> None:
    """What is served with is what the checks run with; two files can be installed together."""
    first, second = pinned(one), pinned(other)
    both = first.keys() & second.keys()
    assert len(both) >= shared_min
    assert [name for name in both if first[name] != second[name]] == []


@pytest.mark.parametrize(
    ("folder", "extra", "file"),
    [
        ("", None, "runtime"),
        ("client", None, "runtime"),
        ("", "model", ONNX),
        ("", "otel", "otel"),
        ("client", "openai", "openai"),
    ],
)
def test_all_that_we_name_is_pinned(folder: str, extra: str | None, file: str) -> None:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    named = project["optional-dependencies"][extra] if extra else project["dependencies"]
    assert named
    served = pinned(file)
    for text in named:
        requirement = Requirement(text)
        assert served[requirement.name].version in requirement.specifier, text


def test_the_oldest_openai_package_that_the_client_takes_is_that_of_hermes() -> None:
    """`make test` runs the middleware with it, `make test-openai` with the newest one."""
    extras = tomllib.loads((ROOT / "client/pyproject.toml").read_text())["project"]
    (named,) = extras["optional-dependencies"]["openai"]
    oldest = pinned("hermes")["openai"].version.removesuffix(".0")
    after = int(pinned("openai")["openai"].version.partition(".")[0]) + 1
    assert named == f"openai>={oldest},<{after}"


@pytest.mark.parametrize("file", ["runtime", "otel", "dev"])
def test_what_is_pinned_is_what_is_installed(file: str) -> None:
    other = {n: p.version for n, p in pinned(file).items() if metadata.version(n) != p.version}
    assert other == {}


SERVED = pinned("runtime").keys() | pinned("otel").keys() | pinned(ONNX).keys()


@pytest.mark.parametrize("name", sorted(SERVED))
def test_a_release_is_made_of_permissive_licences(name: str) -> None:
    allowed = PERMISSIVE | WEAK if name in WEAK_AT_RUNTIME else PERMISSIVE
    assert refused(_installed(name), allowed) == []


@pytest.mark.parametrize("name", sorted(pinned("dev").keys() - SERVED))
def test_tools_have_licences_that_stay_with_them(name: str) -> None:
    assert refused(_installed(name), PERMISSIVE | WEAK) == []


def test_an_exception_is_one_that_is_needed() -> None:
    for name in WEAK_AT_RUNTIME:
        assert refused(_installed(name), PERMISSIVE) != []


def _installed(name: str) -> Message:
    found = metadata.metadata(name)
    assert isinstance(found, Message)
    return found


@pytest.mark.parametrize(
    "said",
    [
        (),
        (("License", "UNKNOWN"),),
        (("License-Expression", "AGPL-3.0-or-later"),),
        (("License-Expression", "GPL-3.0-only"),),
        (("License-Expression", "LGPL-2.1-or-later"),),
        (("License-Expression", "MPL-2.0"),),
        (("License-Expression", "MIT AND GPL-2.0-only"),),
        (("License-Expression", "GPL-2.0-only OR LGPL-2.1-only"),),
        (("License-Expression", "(MIT OR GPL-2.0-only) AND SSPL-1.0"),),
        (("License-Expression", "GPL-3.0-only WITH GCC-exception-3.1"),),
        (("License-Expression", "CC-BY-NC-4.0"),),
        (("License-Expression", "BUSL-1.1"),),
        (("License", "Free for non-commercial use"),),
        (("License", "GNU AFFERO GENERAL PUBLIC LICENSE\nVersion 3"),),
        (("License", "MIT, GPL"),),
        (("Classifier", "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"),),
        (("Classifier", "License :: Other/Proprietary License"),),
        (("Classifier", "License :: OSI Approved"),),
        (("License", "MIT"), ("Classifier", "License :: Free for non-commercial use")),
        (("License-Expression", "MIT"), ("License", "AGPL-3.0")),
    ],
)
def test_a_licence_that_binds_is_seen(said: tuple[tuple[str, str], ...]) -> None:
    assert refused(distribution(*said), PERMISSIVE) != []


@pytest.mark.parametrize(
    "said",
    [
        (("License-Expression", "MIT"),),
        (("License-Expression", "MIT AND PSF-2.0"),),
        (("License-Expression", "GPL-2.0-only OR Apache-2.0"),),
        (("License", "MIT License  Copyright (c) 2022 Somebody  Permission is"),),
        (("Classifier", "License :: OSI Approved :: Apache Software License"),),
        (("License", "MIT, BSD"), ("Classifier", "License :: OSI Approved :: MIT License")),
    ],
)
def test_a_permissive_licence_is_known_in_its_spellings(said: tuple[tuple[str, str], ...]) -> None:
    assert refused(distribution(*said), PERMISSIVE) == []
