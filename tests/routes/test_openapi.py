"""The OpenAPI document is true: schemathesis makes requests of it, and the relayer keeps to it.

Not here: that the document has every route (`test_routes.py`); named refusals (`refusals/`).

- Requests are signed by an owner, and made of the document narrowed to what is there: this
  relayer's key, the ids of a few memories. Half of them fit the document, half do not.
- The examples are the same each time.
"""

import re
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from relayer.postgres.embedded import EmbeddedPostgres
from relayer.routes import memwal_mcp
from relayer.sealed.keys import Identity
from tests.conftest import database_copy
from tests.described import named_by
from tests.processes import create_account, running_relayer
from tests.signing import signed_headers

Json = dict[str, Any]

EXAMPLES = 8  # of each route, fitting and not
SPEC = Path(__file__).parents[2] / "SPEC.md"
QUIET = {"RELAYER_EMBEDDER": "none", "RELAYER_RATE_LIMIT": "off", "RELAYER_WEBHOOK_REACH": "none"}
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
# 501: the relayer of the test was set up without a model, and no relayer is an MCP server.
NOT_OFFERED = {"POST /api/ask", "POST /api/embed", "POST /v1/ask"} | {
    f"{method} {path}" for method in ("GET", "POST", "DELETE") for path in memwal_mcp.PATHS
}


class Members(NamedTuple):
    """What an answer has, always and sometimes."""

    always: frozenset[str]
    sometimes: frozenset[str]


def promised(spec: str) -> dict[str, Members]:
    """The members of answers by route, where the table of SPEC §11 lists them all."""
    row = r"^\| (GET|POST|PUT|PATCH|DELETE) `(\S+)`[^|]*\|.*\| (?:\d+ )?`\{(.+?)\}`"
    found = {}
    for method, path, listed in re.findall(row, spec, re.MULTILINE):
        flat = listed
        while (shorter := re.sub(r"[\[{][^\[\]{}]*[\]}]", "", flat)) != flat:
            flat = shorter
        names = [part.partition(":")[0].strip() for part in flat.split(",")]
        found[_plain(f"{method} {path}")] = Members(
            frozenset(n for n in names if not n.endswith("?")),
            frozenset(n[:-1] for n in names if n.endswith("?")),
        )
    return found


def _plain(route: str) -> str:
    """A route without the names of what its path holds."""
    return re.sub(r"\{\w+\}", "{}", route)


class Signature(requests.auth.AuthBase):
    """Signs what is about to be sent, as it is."""

    def __init__(self, identity: Identity, account: str) -> None:
        self._identity = identity
        self._account = account

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body or b""
        raw = body.encode() if isinstance(body, str) else body
        assert isinstance(raw, bytes), "a stream has no bytes to sign yet"
        request.headers.update(
            signed_headers(
                self._identity,
                str(request.method),
                request.path_url,
                raw,
                account=self._account,
            )
        )
        return request


@dataclass
class Desk:
    """A relayer with an account, and how its owner asks."""

    url: str
    session: requests.Session
    document: Json
    found: Counter[tuple[str, int]] = field(default_factory=Counter)
    members: dict[str, Members] = field(default_factory=lambda: promised(SPEC.read_text()))

    def ask(self, case: Case[Any]) -> list[str]:
        """Send a request; what is wrong with the answer."""
        response = case.call(base_url=self.url, session=self.session)
        self.found[case.operation.label, response.status_code] += 1
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as failures:
            return [f"{type(e).__name__}: {e}" for e in failures.exceptions]
        wanted = self.members.get(_plain(case.operation.label))
        if wanted is None or response.status_code >= 300:
            return []
        given = set(response.json())
        off = (wanted.always - given) | (given - wanted.always - wanted.sometimes)
        return [f"not as SPEC §11 says: {', '.join(sorted(off))}"] if off else []


@pytest_asyncio.fixture
async def desk(
    postgres: EmbeddedPostgres, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Desk]:
    folder = tmp_path_factory.mktemp("openapi")
    async with database_copy(postgres, template) as copy:
        with running_relayer(folder / "data", folder, database_url=copy.url, **QUIET) as relayer:
            account = create_account(relayer, "managed")
            with requests.Session() as session:
                identity = Identity(bytes.fromhex(account["private_key"]))
                session.auth = Signature(identity, account["account_id"])
                document = session.get(f"{relayer.url}/schema/openapi.json").json()
                known = _known(session, relayer.url, account)
                yield Desk(relayer.url, session, _closed(document, known))


def _known(session: requests.Session, url: str, account: Json) -> dict[str, list[str]]:
    """Values that lead somewhere, by the names of members and parameters."""
    named = {"relayer": account["relayer_key"]}
    texts = [{"text": f"The ferry number {n} leaves at seven."} for n in range(12)]
    stored = session.post(f"{url}/v1/remember/bulk", json={"items": texts} | named).json()
    memories = [item["id"] for item in stored["results"]]
    webhook = str(uuid.UUID(int=7))
    return {
        "relayer": [account["relayer_key"]],
        "memory_id": memories,
        "job_id": memories,
        "account_id": [account["account_id"]],
        "owner": [account["account_id"]],
        "webhook_id": [webhook],
        "follow": ["false"],
    }


def _closed(document: Json, known: dict[str, list[str]]) -> Json:
    """The document with these values in requests, and with no members in answers but its own."""
    schemas = document["components"]["schemas"]
    asked, answered = set[str](), set[str]()
    for operations in document["paths"].values():
        for operation in operations.values():
            asked |= named_by(operation.get("requestBody"), schemas)
            answered |= named_by(operation["responses"], schemas)
    closed = {
        name: schema | {"additionalProperties": False}
        if name in answered - asked
        else _narrowed(schema, known)
        for name, schema in schemas.items()
    }
    paths = {
        path: {
            method: _narrowed({**operation, "responses": {}}, known)
            | {"responses": operation["responses"]}
            for method, operation in operations.items()
        }
        for path, operations in document["paths"].items()
    }
    components = document["components"] | {"schemas": closed}
    return document | {"paths": paths, "components": components}


def _narrowed(value: Any, known: dict[str, list[str]]) -> Any:
    """The document with these values where it allows any text."""
    if isinstance(value, list):
        return [_narrowed(item, known) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("in") in ("path", "query") and value["name"] in known:
        return value | {"schema": {"enum": known[value["name"]]}}
    return {
        name: {"enum": known[name]}
        if name in known and "type" in inner
        else _narrowed(inner, known)
        for name, inner in value.items()
    }


def _cases(desk: Desk) -> Iterator[tuple[str, SearchStrategy[Case[Any]]]]:
    config = SchemathesisConfig.from_dict({"generation": {"with-security-parameters": False}})
    schema = schemathesis.openapi.from_dict(desk.document, config=config)
    found = list(schema.get_all_operations())
    operations = [one.ok() for one in found if isinstance(one, Ok)]
    assert len(operations) == len(found), "an operation that cannot be read"
    for operation in sorted(operations, key=lambda o: (o.method == "delete", o.label)):
        modes = [GenerationMode.POSITIVE]
        if operation.query or operation.body:
            modes.append(GenerationMode.NEGATIVE)
        for mode in modes:
            yield operation.label, operation.as_strategy(mode)


def _wrong(desk: Desk, strategy: SearchStrategy[Case[Any]]) -> set[str]:
    """What is wrong with the answers to requests of one kind."""
    found: set[str] = set()

    @given(strategy)
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    def asked(case: Case[Any]) -> None:
        found.update(desk.ask(case))

    asked()
    return found


@pytest.mark.long
def test_the_relayer_keeps_to_its_document(desk: Desk) -> None:
    """No request made of the document fails the server, and no answer is another than it says."""
    assert len(desk.members) > 35  # the table is read
    wrong = [(label, _wrong(desk, strategy)) for label, strategy in _cases(desk)]
    assert not [(label, *sorted(found)) for label, found in wrong if found]
    assert {label for label, status in desk.found if status >= 500} <= NOT_OFFERED
    assert not any(status == 503 for _, status in desk.found)
    succeeded = {label for label, status in desk.found if status < 300}
    assert len(succeeded) > 45, sorted({label for label, _ in desk.found} - succeeded)
