"""Every bound in `Limits`: one more is refused with its code, and as many are not.

A bound without a case here, and without a test elsewhere that is named here, fails.
"""

import ast
import base64
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.database.pool import Database
from relayer.extraction.facts import FACTS_MAX
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.keys import Identity
from relayer.serve import bounds_of
from relayer.settings import Limits, Settings
from relayer.storage import storage_on
from relayer.upkeep import provision
from relayer.upkeep.provision import NewKey
from tests.conftest import database_copy
from tests.framework import listed_handlers
from tests.services import Bench
from tests.signing import client_of, signer_of

ROOT = Path(__file__).parents[2]
ID = "0b5e9f3c-2d1a-4c8b-9e7f-112233445566"
INVALID, TOO_LARGE = (400, "request.invalid"), (413, "request.too_large")
Body = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A request that holds n of something; `over` is the answer to one more than the limit."""

    target: str
    of: Callable[[int], Body | bytes | str]  # a body, or what stands behind the `?`
    over: tuple[int, str] = INVALID
    method: str = "POST"
    beyond: int = 1  # -1 for the least that is allowed


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def padded(count: int) -> bytes:
    """A body of so many bytes."""
    return b'{"query": "a"' + b" " * (count - 14) + b"}"


def recall(**members: Callable[[int], Any]) -> Callable[[int], Body]:
    return lambda n: {"query": "a"} | {name: of(n) for name, of in members.items()}


def remember(**members: Callable[[int], Any]) -> Callable[[int], Body]:
    return lambda n: {"text": "Tea."} | {name: of(n) for name, of in members.items()}


def letters(count: int) -> str:
    return "a" * count


def encoded(count: int) -> str:
    return base64.b64encode(bytes([2]) * count).decode()


def keys(count: int) -> list[str]:
    return [f"{number:064x}" for number in range(count)]


CASES: dict[str, Case] = {
    "body_bytes_max": Case("/v1/recall", padded, TOO_LARGE),
    "stand_in_bytes_max": Case("/sui", padded, TOO_LARGE),
    "import_bytes_max": Case("/v1/import", padded, TOO_LARGE),
    "text_bytes_max": Case("/v1/remember", lambda n: {"text": letters(n)}, TOO_LARGE),
    "bulk_text_bytes_max": Case("/api/remember/bulk", lambda n: {"items": [{"text": letters(n)}]}),
    "analyze_bytes_max": Case("/v1/analyze", lambda n: {"text": letters(n)}, TOO_LARGE),
    "query_bytes_max": Case("/v1/recall", lambda n: {"query": letters(n)}, TOO_LARGE),
    "goal_bytes_max": Case("/v1/recall", recall(goal=letters), TOO_LARGE),
    "bulk_items_max": Case(
        "/v1/remember/bulk", lambda n: {"items": [{"text": name} for name in names(n)]}
    ),
    "recall_limit_max": Case("/v1/recall", recall(limit=int)),
    "recall_namespaces_max": Case("/v1/recall", recall(namespaces=names)),
    "recall_writers_max": Case("/v1/recall", recall(writers=keys)),
    "recall_tokens_max": Case("/v1/recall", recall(max_tokens=int)),
    "aliases_max": Case("/v1/recall", recall(aliases=lambda n: {name: ["b"] for name in names(n)})),
    "alias_words_max": Case("/v1/recall", recall(aliases=lambda n: {"a": names(n)})),
    "speaker_characters_max": Case("/v1/recall", recall(speaker=letters)),
    "alias_characters_max": Case("/v1/recall", recall(aliases=lambda n: {"a": [letters(n)]})),
    "page_limit_max": Case("/v1/memories", lambda n: f"limit={n}", method="GET"),
    "exported_ids_max": Case(
        "/v1/export", lambda n: "part=memories" + f"&ids={ID}" * n, method="GET"
    ),
    "blobs_asked_max": Case("/v1/blobs", lambda n: {"blob_ids": ["A" * 43] * n}),
    "count_periods_max": Case(
        "/v1/counts", lambda n: {"bounds": [f"{1900 + at}-05-04T00:00:00Z" for at in range(n)]}
    ),
    "counted_max": Case("/v1/counts", lambda n: {"bounds": ["2026-05-04T00:00:00Z"], "limit": n}),
    "ttl_s_min": Case("/v1/namespaces/a", lambda n: {"ttl_s": n}, method="PUT", beyond=-1),
    "ttl_s_max": Case("/v1/namespaces/a", lambda n: {"ttl_s": n}, method="PUT"),
    "tags_max": Case("/v1/remember", remember(tags=names)),
    "tag_characters_max": Case("/v1/remember", remember(tags=lambda n: [letters(n)])),
    "source_characters_max": Case("/v1/remember", remember(source=letters)),
    "metadata_bytes_max": Case(
        "/v1/remember", remember(metadata=lambda n: {"a": letters(n - 8)}), TOO_LARGE
    ),
    "metadata_entries_max": Case(
        "/v1/remember", remember(metadata=lambda n: dict.fromkeys(names(n), "b"))
    ),
    "idempotency_key_characters_max": Case("/v1/remember", remember(idempotency_key=letters)),
    "label_characters_max": Case(
        "/v1/grants", lambda n: {"grant": "AAAA", "join": "AAAA", "label": letters(n)}
    ),
    "rotation_grants_max": Case("/v1/rotations", lambda n: {"grants": ["AAAA"] * n}),
    "rotation_revocations_max": Case("/v1/rotations", lambda n: {"revocations": ["AAAA"] * n}),
    "embedding_dim_max": Case("/api/recall/manual", lambda n: {"vector": [1.0] * n}),
    "manual_bytes_max": Case(
        "/api/remember/manual",
        lambda n: {"vector": [1.0], "encrypted_data": encoded(n)},
    ),
    "webhook_url_characters_max": Case(
        f"/v1/webhooks/{ID}",
        lambda n: {"url": f"https://a.example/{letters(n - 18)}", "events": ["memory.written"]},
        method="PUT",
    ),
    "webhook_namespaces_max": Case(
        f"/v1/webhooks/{ID}",
        lambda n: {
            "url": "https://a.example/",
            "events": ["memory.written"],
            "namespaces": names(n),
        },
        method="PUT",
    ),
}

# What needs more than one request to be reached, or is a time: where it is tested.
ELSEWHERE = {
    "head_bytes_max": "abuse/test_connections.py::test_a_head_has_a_size",
    "import_postings_max": "archives/test_arrivals.py"
    "::test_as_many_words_and_vectors_as_one_request_can_store",
    "import_vectors_max": "archives/test_arrivals.py"
    "::test_as_many_words_and_vectors_as_one_request_can_store",
    "erased_blobs_max": "archives/test_arrivals.py::test_no_more_than_so_many",
    "connections_max": "abuse/test_connections.py"
    "::test_only_when_all_are_being_answered_one_is_refused",
    "bodies_bytes_max": "abuse/test_bodies.py"
    "::test_bodies_that_do_not_end_fill_the_room_and_no_more",
    "body_bytes_free": "abuse/test_bodies.py"
    "::test_short_bodies_find_room_beside_long_ones_that_do_not_end",
    "requests_at_once_max": "abuse/test_bounds.py::test_one_account_waits_for_itself_only",
    "revoking_waiting_max": "abuse/test_rate_limits.py"
    "::test_what_rights_are_taken_away_by_has_a_short_line_of_each_key",
    "requests_waiting_max": "abuse/test_bounds.py::test_a_line_has_an_end",
    "blobs_bytes_max": "journal/test_proof.py::test_an_answer_has_as_many_blobs_as_fit",
    "working_life_s": "memories/test_expiry.py::test_expires_by_default",
    "facts_max": "extraction/test_extract.py::test_at_most_twenty_best_first_in_their_order",
    "memory_words_max": "database/test_index_size.py::test_one_more_than_a_memory_may_have",
    "revisions_max": "memories/test_revisions.py::test_more_revisions_than_a_memory_may_have",
    "grant_bytes_mean": "tenants/test_accounts.py::test_a_chain_of_many_bytes",
    "revocations_spare": "tenants/test_accounts.py::test_a_lost_key_is_taken_from_a_full_chain",
    "namespaces_max": "memories/test_memory.py::test_their_number_is_limited",
    "aliases_characters_max": "abuse/test_work.py::test_aliases_take_no_more_work_than_short_ones",
    "query_words_max": "recall/test_recall_controls.py::test_aliases_are_bounded",
    "webhooks_max": "events/test_webhooks.py::test_so_many_and_no_more",
    "streams_max": "abuse/test_bounds.py::test_streams_of_all_accounts_are_counted_together",
    "streams_of_account_max": "events/test_events.py::test_so_many_at_once_and_no_more",
    "stream_life_s": "events/test_events.py::test_a_stream_outlives_what_a_request_may_take",
    "clock_skew_s_max": "routes/test_signatures.py::test_a_clock_further_off_is_told_by_a_header",
    "nonce_life_s": "abuse/test_limits.py::test_a_nonce_is_kept_as_long_as_its_request_is_fresh",
    "idempotency_life_s": "abuse/test_limits.py::test_an_idempotency_key_is_kept_for_its_life",
    "unlock_key_life_s": "tenants/test_custody.py::test_statement_is_signed_and_keys_overlap",
    "unlock_key_overlap_s": "tenants/test_custody.py::test_statement_is_signed_and_keys_overlap",
}


@pytest_asyncio.fixture(scope="module")
async def desk(
    postgres: EmbeddedPostgres, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[ASGIApp, NewKey, str]]:
    """An application, the founder of a managed account, and the relayer's key."""
    async with database_copy(postgres, template) as copy:
        folder = tmp_path_factory.mktemp("limits")
        settings = Settings(data_dir=folder, database_url=copy.url, embedder="none")
        database = await Database.connect(copy.connect_args, connections=4)
        storage = storage_on(
            settings, copy.connect_args, database, Identity(os.urandom(32)), utc_now
        )
        founder = await provision.create_account(
            storage, label="", custody="managed", clock=utc_now
        )
        yield build_app(storage, settings), founder, storage.identity.public_key.hex()
        await database.close()


def limits() -> dict[str, int]:
    return {name: value for name, value in vars(Limits).items() if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(CASES))
async def test_one_more_than_the_limit_is_refused(
    desk: tuple[ASGIApp, NewKey, str], name: str
) -> None:
    """Whatever as many are answered, it is not that they are too many."""
    app, founder, relayer = desk
    case, limit = CASES[name], limits()[name]
    found = []
    async with client_of(app, signer_of(founder)) as client:
        for count in (limit, limit + case.beyond):
            sent = case.of(count)
            if isinstance(sent, str):
                answer = await client.request(case.method, f"{case.target}?{sent}")
            else:
                named = case.target.startswith("/v1/") and case.target not in _UNNAMED
                body = (
                    sent
                    if isinstance(sent, bytes)
                    else json.dumps(sent | ({"relayer": relayer} if named else {})).encode()
                )
                answer = await client.request(case.method, case.target, content=body)
            found.append((answer.status_code, answer.json().get("code")))
    assert found[1] == case.over
    assert found[0] != case.over


_UNNAMED = {"/v1/recall", "/v1/blobs", "/v1/counts"}  # change nothing, so they name no relayer


def test_every_limit_has_a_test() -> None:
    assert not CASES.keys() & ELSEWHERE.keys()
    assert CASES.keys() | ELSEWHERE.keys() == limits().keys()


def test_the_tests_elsewhere_are_there() -> None:
    for place in ELSEWHERE.values():
        file, _, test = place.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text())
        functions = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert test in functions, place


def test_every_limit_is_kept_by_something() -> None:
    """None is only written down."""
    code = "".join(path.read_text() for path in (ROOT / "relayer").rglob("*.py"))
    assert limits().keys() == set(re.findall(r"\bLimits\.(\w+)", code))


def test_no_body_has_a_list_without_an_end() -> None:
    """A list of one word two hundred thousand times is a body that holds up everybody else."""
    forms = {
        data.annotation
        for _, handler in listed_handlers()
        if (data := handler.parsed_fn_signature.parameters.get("data")) is not None
    }
    endless = {place for form in forms for place in _endless(msgspec.inspect.type_info(form))}
    assert len(forms) > 25
    assert endless <= {"metadata"}, "which is counted once it is decoded: see CASES"


def _endless(form: msgspec.inspect.Type, place: str = "") -> Iterator[str]:
    """The members of a form that may have any number of items."""
    match form:
        case msgspec.inspect.StructType(fields=members):
            for member in members:
                yield from _endless(member.type, member.name)
        case msgspec.inspect.UnionType(types=types):
            for one in types:
                yield from _endless(one, place)
        case msgspec.inspect.ListType(item_type=item, max_length=end):
            yield from [place] if end is None else _endless(item, place)
        case msgspec.inspect.DictType(value_type=value, max_length=end):
            yield from [place] if end is None else _endless(value, place)


def test_limits_that_are_written_twice_agree() -> None:
    bounds = bounds_of(Settings())
    assert bounds.head_bytes_max == Limits.head_bytes_max
    assert bounds.connections_max == Limits.connections_max
    assert Limits.facts_max == FACTS_MAX


async def test_an_idempotency_key_is_kept_for_its_life(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.", idempotency_key="k")
    ends = await bench.value("SELECT expires_at FROM idempotency")
    assert (ends - bench.clock()).total_seconds() == Limits.idempotency_life_s


def test_a_nonce_is_kept_as_long_as_its_request_is_fresh() -> None:
    """One signed 300 s ahead is fresh for 600 s."""
    assert Limits.nonce_life_s >= 2 * Limits.clock_skew_s_max
