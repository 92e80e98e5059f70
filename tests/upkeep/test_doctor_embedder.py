"""`relayer doctor`: whether an embedding endpoint embeds, which is tried and not believed."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from relayer.settings import Settings
from relayer.upkeep import doctor
from relayer.upkeep.doctor import OK, PROBLEM
from tests.embeddings_server import DIM, KEY, MODEL, EmbeddingsServer, Taste

NOBODY = "http://127.0.0.1:9/v1"


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    async with EmbeddingsServer() as running:
        yield running


async def found(settings: Settings) -> list[doctor.Finding]:
    return [f for f in await doctor.examine(settings) if f["check"] == "embedder"]


def settings_for(data_dir: Path, *urls: str) -> Settings:
    """Those of no installation: of the embedder, its settings alone are asked for."""
    return Settings(
        data_dir=data_dir / "none",
        embedder="openai",
        embedding_model=MODEL,
        embedding_dim=DIM,
        embedding_base_urls=",".join(urls),
        embedding_timeout_s=1.0,
        openai_api_key=KEY,
    )


async def test_a_word_is_embedded(tmp_path: Path, server: EmbeddingsServer) -> None:
    (finding,) = await found(settings_for(tmp_path, server.url))
    assert finding == {
        "check": "embedder",
        "state": OK,
        "detail": f"{MODEL}/{DIM}, embeds",
        "command": None,
    }
    assert server.requests == [["memory"]]


async def test_the_built_in_model_embeds_a_word(tmp_path: Path) -> None:
    (finding,) = await found(Settings(data_dir=tmp_path / "none", embedder="builtin"))
    assert (finding["state"], finding["detail"]) == (OK, "all-MiniLM-L6-v2/int8, embeds")


async def test_an_endpoint_of_another_form_is_well(
    tmp_path: Path, server: EmbeddingsServer
) -> None:
    server.taste = Taste(is_bare=True, is_single=True)
    (finding,) = await found(settings_for(tmp_path, server.url))
    assert finding["state"] == OK


@pytest.mark.parametrize(
    ("fault", "cause", "do"),
    [
        ("wide", f"dimension {DIM + 1}, not {DIM}", f"RELAYER_EMBEDDING_DIM={DIM + 1}"),
        ("401", "status 401", "OPENAI_API_KEY=KEY"),
        ("403", "status 403", "OPENAI_API_KEY=KEY"),
        ("404", "status 404", "RELAYER_EMBEDDING_BASE_URLS=URL"),
        ("429,60", "status 429", "look at the limits"),
        ("400", "status 400", "RELAYER_EMBEDDING_MODEL=NAME"),
        ("moved", "status 307", "RELAYER_EMBEDDING_BASE_URLS=URL"),
        ("hang", "timeout", "RELAYER_EMBEDDING_TIMEOUT_S=60"),
        ("garbage", "not an answer", "look at what answers"),
        ("empty", "wrong number of vectors", "look at what answers"),
        ("503,60", "status 503", "look at what answers"),
    ],
)
async def test_why_none_is_embedded_is_told_with_what_mends_it(
    tmp_path: Path, server: EmbeddingsServer, fault: str, cause: str, do: str
) -> None:
    server.always = fault
    (finding,) = await found(settings_for(tmp_path, server.url))
    assert finding["state"] == PROBLEM
    assert finding["detail"].startswith(f"{MODEL}/{DIM}: {cause}; ")
    assert do in (finding["command"] or finding["detail"])
    assert server.url not in str(finding)


async def test_an_address_at_which_nobody_listens(tmp_path: Path) -> None:
    (finding,) = await found(settings_for(tmp_path, NOBODY))
    assert finding["detail"].startswith(f"{MODEL}/{DIM}: no connection; start the endpoint")


async def test_each_of_several_endpoints_is_tried(tmp_path: Path, server: EmbeddingsServer) -> None:
    """One that fails is not seen else, while another one takes over."""
    first, second = await found(settings_for(tmp_path, server.url, NOBODY))
    assert (first["state"], first["detail"]) == (OK, f"{MODEL}/{DIM}, endpoint 1, embeds")
    assert second["state"] == PROBLEM
    assert second["detail"].startswith(f"{MODEL}/{DIM}, endpoint 2: no connection")


async def test_without_an_embedder_nothing_is_embedded(tmp_path: Path) -> None:
    settings = replace(settings_for(tmp_path, NOBODY), embedder="none")
    (finding,) = await found(settings)
    assert (finding["state"], finding["detail"]) == (OK, "none: recall by keyword only")
