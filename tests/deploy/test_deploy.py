"""`deploy/` says what is so: its settings exist, its commands parse, its files fit one another.

Not here: linters, and running any of it (`make test-deploy`, `deploy/README.md` says which).
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from litestar import Router

from relayer import __version__
from relayer.__main__ import main
from relayer.health import ask
from relayer.routes.router import all_routes
from relayer.settings import SECRET, Limits, Settings, variable
from tests.deploy.dockerfile import read

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OURS = ("Dockerfile", "*.md", "compose/*", "systemd/memrelay-relayer.service", "kubernetes/*")
FILES = sorted(path for one in OURS for path in DEPLOY.glob(one) if path.is_file())
KNOWN = {variable(item.name) for item in fields(Settings)}
IN_FILES = {f"{variable(name)}_FILE" for name in SECRET}


def documents(path: Path) -> list[Any]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one is not None]


def manifests() -> dict[str, Any]:
    """Every object of the cluster by kind, but for the list of them."""
    found = [one for path in (DEPLOY / "kubernetes").glob("*.yaml") for one in documents(path)]
    return {one["kind"]: one for one in found if one["kind"] != "Kustomization"}


def composition() -> Any:
    [found] = documents(DEPLOY / "compose/compose.yaml")
    return found


def values(found: Any) -> Iterator[Any]:
    """Every key and value in a document."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield key
            yield from values(value)
    elif isinstance(found, list):
        for one in found:
            yield from values(one)
    else:
        yield found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(DEPLOY).as_posix())
def test_every_setting_that_is_named_exists(path: Path) -> None:
    named = set(re.findall(r"\b(?:RELAYER|OPENAI)_[A-Z0-9_]*[A-Z0-9]\b", path.read_text()))
    assert named - KNOWN - IN_FILES == set()


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("compose", composition()["services"]["relayer"]["environment"]),
        ("kubernetes", manifests()["ConfigMap"]["data"]),
    ],
    ids=["compose", "kubernetes"],
)
def test_the_settings_that_are_given_are_ones_to_start_with(
    path: str, given: dict[str, str]
) -> None:
    """As the command line would take them, with a secret of the right form in each file."""
    secrets = dict.fromkeys(SECRET, f"postgresql://a:{'b' * 40}@c/d")
    chosen: dict[str, Any] = {}
    for item in fields(Settings):
        if f"{variable(item.name)}_FILE" in given:
            chosen[item.name] = secrets[item.name]
        elif variable(item.name) in given:
            text = re.sub(r"\$\{MEMRELAY_HOST\b[^}]*\}", "a.example", given[variable(item.name)])
            chosen[item.name] = int(text) if item.type is int else text
    settings = Settings(**chosen)
    assert settings.registration == "token"
    assert settings.public_url.startswith("https://")
    assert not SECRET & {item.name for item in fields(Settings) if variable(item.name) in given}


def told_commands() -> list[tuple[str, list[str]]]:
    """Every `relayer …` that a page tells to type, or a file runs, as words behind `relayer`."""
    found: list[tuple[str, str]] = []
    for path in FILES:
        text = path.read_text()
        if path.suffix == ".md":  # in backquotes, a command may be named without its arguments
            blocks = re.findall(r"^    (.*)$", text, re.MULTILINE)
            found += [(path.name, line) for line in blocks]
            found += [(f"{path.name} `", code) for code in re.findall(r"`([^`\n]+)`", text)]
        elif path.suffix == ".service":
            found += [(path.name, line) for line in re.findall(r"^ExecStart=(.*)$", text, re.M)]
    for stage in read(DEPLOY / "Dockerfile"):
        found += [("Dockerfile", one.rest) for one in stage.instructions if one.word == "RUN"]
    image = read(DEPLOY / "Dockerfile")[-1]
    entry = [*image.fact("ENTRYPOINT").arguments, *image.fact("CMD").arguments]
    found.append(("Dockerfile", shlex.join(entry)))
    command = re.compile(r"(?:^|[\s/])(?:relayer )+([a-z]+(?: .*)?)$")
    return [
        (page, shlex.split(re.split(r" \\?\| ", match[1])[0]))
        for page, line in found
        if (match := command.search(line))
    ]


def parsed(words: list[str]) -> click.Context:
    """The command that these words call, with its options understood and nothing done."""
    command: click.Command = main
    context = click.Context(main, info_name="relayer")
    while isinstance(command, click.Group):
        name, words = words[0], words[1:]
        inner = command.get_command(context, name)
        if inner is None:
            raise click.UsageError(f"no command {name}")
        command, context = inner, click.Context(inner, parent=context, info_name=name)
    command.parse_args(context, words)
    return context


COMMANDS = told_commands()


def test_enough_is_found_to_be_looked_at() -> None:
    assert {" ".join(words[:2]) for _, words in COMMANDS} >= {
        *("serve", "model fetch", "backup create", "backup restore", "blobs copy", "health"),
        *("identity rotate", "identity show", "reindex --status"),
    }


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=[f"{page}-{'_'.join(words)}" for page, words in COMMANDS]
)
def test_every_command_that_is_told_is_one(
    page: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("RELAYER_")]:
        monkeypatch.delenv(name)
    try:
        parsed(words)
    except click.exceptions.Exit:
        assert words[-1] in ("--help", "--help-all")
    except click.MissingParameter:
        assert page.endswith("`")


@pytest.mark.parametrize(
    "line", ["serve --prot 1", "backups create x", "backup create", "health x"]
)
def test_a_command_that_is_none_is_seen(line: str) -> None:
    with pytest.raises(click.UsageError):
        parsed(line.split())


def test_commands_get_the_settings_of_the_service(tmp_path: Path) -> None:
    [function] = re.findall(r"^    (relayer\(\) .*)$", (DEPLOY / "README.md").read_text(), re.M)
    unit = (DEPLOY / "systemd/memrelay-relayer.service").read_text()
    given = dict(re.findall(r"\b(RELAYER_(?:DATA|MODEL)_DIR)=(\S+)", unit))
    assert re.findall(r"\bEnvironmentFile=-(.*)$", unit, re.M) == ["/etc/memrelay/relayer.env"]
    settings, program = tmp_path / "relayer.env", tmp_path / "relayer"
    url = "postgresql://u:p@db/memrelay?sslmode=verify-full&application_name=a"
    settings.write_text(f"RELAYER_BLOB_STORE=file:/srv/blobs\nRELAYER_DATABASE_URL='{url}'\n")
    program.write_text('#!/bin/sh\nenv\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    for name, here in (
        ("sudo -u memrelay ", ""),
        ("/etc/memrelay/relayer.env", str(settings)),
        ("/opt/memrelay/bin/relayer", str(program)),
    ):
        assert name in function
        function = function.replace(name, here)
    told = subprocess.run(
        ["sh", "-c", f'{function}\nrelayer backup create "/a b"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    given |= {"RELAYER_BLOB_STORE": "file:/srv/blobs", "RELAYER_DATABASE_URL": url}
    assert {f"{name}={value}" for name, value in given.items()} <= set(told)
    assert told[-1] == "<backup><create></a b>"


def test_a_reload_that_comes_too_early_ends_no_service_for_good() -> None:
    unit = (DEPLOY / "systemd/memrelay-relayer.service").read_text()
    assert "ExecReload=/bin/kill -HUP $MAINPID\n" in unit
    assert "RestartForceExitStatus=SIGHUP\n" in unit


def links(path: Path) -> Iterator[tuple[Path, str]]:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" not in target:
            file, _, place = target.partition("#")
            yield (path.parent / file if file else path), place


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.md")), ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for file, place in links(path):
        assert file.exists(), file
        if place:
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert place in {
                re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles
            }


def test_an_image_has_a_version_and_no_registry() -> None:
    named = [one["image"] for one in composition()["services"].values()]
    named += [stage.image for stage in read(DEPLOY / "Dockerfile")]
    for image in named:
        name, _, tag = image.partition(":")
        assert tag not in ("", "latest"), image
        assert "." not in name.partition("/")[0], image
    listed = documents(DEPLOY / "kubernetes/kustomization.yaml")[0]["images"]
    used = {one["image"] for one in pods()}
    assert used == {one["name"] for one in listed} == {"memrelay-relayer"}
    release = read(DEPLOY / "Dockerfile")[-1].fact("LABEL").pairs
    assert release["org.opencontainers.image.version"] == __version__
    wheels = re.findall(r"\bmemrelay\w*-([\d.]+)-py3", (DEPLOY / "Dockerfile").read_text())
    assert (set(wheels), len(wheels)) == ({__version__}, 4)
    assert {one["newTag"] for one in listed} == {__version__}
    assert composition()["services"]["relayer"]["image"] == f"memrelay-relayer:{__version__}"


def pods() -> list[Any]:
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    return [*pod["initContainers"], *pod["containers"]]


def test_ports_agree() -> None:
    port = str(Settings().port)
    assert read(DEPLOY / "Dockerfile")[-1].fact("EXPOSE").rest == port
    assert f"reverse_proxy relayer:{port} " in (DEPLOY / "compose/Caddyfile").read_text()
    assert str(manifests()["Service"]["spec"]["ports"][0]["port"]) == port
    assert str(pods()[-1]["ports"][0]["containerPort"]) == port
    assert str(manifests()["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"]) == port


def test_one_user_everywhere() -> None:
    stage = read(DEPLOY / "Dockerfile")[-1]
    user, group = stage.fact("USER").rest.split(":")
    assert user.isdecimal()
    assert user != "0"
    assert any(f"--uid {user} " in one.rest for one in stage.instructions if one.word == "RUN")
    chosen = manifests()["Deployment"]["spec"]["template"]["spec"]["securityContext"]
    assert (chosen["runAsUser"], chosen["runAsGroup"]) == (int(user), int(group))


def test_nothing_in_the_cluster_has_a_right_it_does_not_need() -> None:
    """The profile `restricted` of the pod security standards, and a root that is not written to."""
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert {"hostNetwork", "hostPID", "hostIPC"} & set(pod) == set()
    assert {kind for one in pod["volumes"] for kind in one} == {"name", "emptyDir", "secret"}
    for one in pods():
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "limits" in one["resources"]


def test_nothing_in_the_composition_has_a_right_it_does_not_need() -> None:
    services = composition()["services"]
    for name, one in services.items():
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert {"mem_limit", "pids_limit"} <= set(one), name
        assert not {"privileged", "network_mode", "pid", "ipc"} & set(one), name
    assert "cap_add" not in services["relayer"]
    assert {name for name, one in services.items() if "ports" in one} == {"proxy"}
    assert services["database"]["networks"] == ["back"]
    assert composition()["networks"]["back"] == {"internal": True}
    assert "back" not in services["proxy"]["networks"]


def test_what_is_named_in_the_composition_is_there() -> None:
    found = composition()
    for one in found["services"].values():
        assert set(one.get("secrets", [])) <= set(found["secrets"])
        named = {volume.partition(":")[0] for volume in one.get("volumes", [])}
        assert {name for name in named if "/" not in name} <= set(found["volumes"])
        assert all((DEPLOY / "compose" / name).exists() for name in named if "/" in name)
        assert set(one.get("depends_on", {})) <= set(found["services"])
        needed = [found["services"][name] for name in one.get("depends_on", {})]
        assert all("healthcheck" in other or "build" in other for other in needed)
    script = (DEPLOY / "compose/secrets.sh").read_text()
    for secret in found["secrets"].values():
        assert f">{secret['file'].removeprefix('./')}" in script.replace("\\\n\t", "")
    context = (DEPLOY / "compose" / found["services"]["relayer"]["build"]["context"]).resolve()
    assert context == ROOT
    assert (context / found["services"]["relayer"]["build"]["dockerfile"]).exists()


def test_every_secret_of_the_cluster_comes_from_a_secret() -> None:
    given = manifests()["ConfigMap"]["data"]
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    mounts = {one["name"]: one["mountPath"] for one in pods()[-1]["volumeMounts"]}
    files = [Path(text) for name, text in given.items() if name.endswith("_FILE")]
    assert files
    assert {str(file.parent) for file in files} == {mounts["secrets"]}
    told = (DEPLOY / "README.md").read_text()
    assert [file.name for file in files if f"--from-file {file.name}" not in told] == []
    named = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert [name for name in named if f"create secret generic {name} " not in told] == []
    assert not any(kind == "Secret" for kind in manifests())


def test_every_selector_selects_the_pods() -> None:
    found = manifests()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert found[kind]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    listed = documents(DEPLOY / "kubernetes/kustomization.yaml")[0]["resources"]
    folder = DEPLOY / "kubernetes"
    assert {*listed, "kustomization.yaml"} == {path.name for path in folder.glob("*.yaml")}


def test_the_ingress_lets_in_every_route_of_clients() -> None:
    rules = manifests()["Ingress"]["spec"]["rules"][0]["http"]["paths"]

    def let_in(path: str) -> bool:
        return any(
            path == rule["path"]
            or (rule["pathType"] == "Prefix" and path.startswith(f"{rule['path']}/"))
            for rule in rules
        )

    served = {
        path
        for one in all_routes()
        for path in ([one.path] if isinstance(one, Router) else one.paths)
    }
    assert {"/v1", "/health", "/version", "/config"} <= served
    assert {path for path in served if not let_in(path)} == {"/ready"}  # for the cluster itself
    assert let_in("/schema/openapi.json")
    assert let_in("/")
    assert let_in("/docs")
    assert not let_in("/metrics")


def test_probes_ask_what_is_there() -> None:
    probes = {name: one for name, one in pods()[-1].items() if name.endswith("Probe")}
    paths = {name: one["httpGet"]["path"] for name, one in probes.items()}
    served = {path for one in all_routes() if not isinstance(one, Router) for path in one.paths}
    assert set(paths.values()) <= served
    # A restart mends no database.
    assert (paths["livenessProbe"], paths["readinessProbe"]) == ("/version", "/ready")


def test_the_proxies_bound_what_a_stranger_may_send() -> None:
    caddy = (DEPLOY / "compose/Caddyfile").read_text()
    [head_kib] = re.findall(r"max_header_size (\d+)KiB", caddy)
    [head_s] = re.findall(r"read_header (\d+)s", caddy)
    assert int(head_kib) * 2**10 == Limits.head_bytes_max
    assert int(head_s) < Settings().request_timeout_s
    notes = manifests()["Ingress"]["metadata"]["annotations"]
    limits = [
        int(notes[f"nginx.ingress.kubernetes.io/limit-{of}"]) for of in ("connections", "rps")
    ]
    assert all(0 < limit < Limits.connections_max for limit in limits)


def test_a_body_of_the_greatest_size_passes_the_proxies() -> None:
    [caddy] = re.findall(r"max_size (\d+)MB", (DEPLOY / "compose/Caddyfile").read_text())
    notes = manifests()["Ingress"]["metadata"]["annotations"]
    nginx = notes["nginx.ingress.kubernetes.io/proxy-body-size"].removesuffix("m")
    assert int(caddy) * 10**6 >= Limits.import_bytes_max
    assert int(nginx) * 2**20 >= Limits.import_bytes_max
    stream_s = int(notes["nginx.ingress.kubernetes.io/proxy-read-timeout"])
    assert stream_s > Limits.stream_life_s


def test_no_relayer_is_not_a_healthy_one(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no relayer serves"):
        ask(tmp_path)
