"""The controls of a recall, from Python and from a shell, through a real relayer."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memrelay import MemoryClient, Settings, SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_USAGE, main
from memrelay.errors import BadRequest, ConfigError, Invalid, NotOffered
from memrelay.models import MODES, Recalled
from memrelay.secure_files import write_private
from relayer.routes.recall import AskBody, RecallBody
from tests.processes import RunningRelayer

TEA = "Anna prefers green tea."
CLUSTER = "The kubernetes cluster is full."
TAGGED = "It is due in two weeks."
BUDGET = "The tea budget of the team is 40 euros."
HIGHLIGHT = datetime(2026, 5, 4, tzinfo=UTC)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def settings(shared_relayer: RunningRelayer) -> Settings:
    """The founder of an account with memories in two namespaces, all of them embedded."""
    new = SyncMemoryClient.create_account(shared_relayer.url)
    settings = Settings(
        url=shared_relayer.url, account_id=new.account_id, private_key=new.private_key
    )
    with SyncMemoryClient.from_settings(settings) as client:
        stored = [
            client.remember(TEA, kind="preference", metadata={"shop": "north"}),
            client.remember(CLUSTER, source="notes", importance="vital"),
            client.remember(TAGGED, tags=("annual report",), event_time=HIGHLIGHT),
            client.remember(BUDGET, namespace="team"),
        ]
        client.wait([one.id for one in stored])
    return settings


@pytest.fixture
def client(settings: Settings) -> Iterator[SyncMemoryClient]:
    with SyncMemoryClient.from_settings(settings) as client:
        yield client


@pytest.fixture
def profile(settings: Settings, tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    write_private(path, settings.profile())
    return path


@pytest.fixture
def run(profile: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command with the profile: exit code, output, errors."""

    def run(*argv: str) -> tuple[int, str, str]:
        code = main([*argv, "--profile", str(profile)], {})
        return code, *capsys.readouterr()

    return run


def texts(client: SyncMemoryClient, query: str, **controls: Any) -> list[str | None]:
    return [memory.text for memory in client.recall(query, **controls).results]


def named(value: object) -> str:
    """The name of a case, the same in every process."""
    if isinstance(value, set):
        return " ".join(sorted(value)) or "nothing"
    return " ".join(value) if isinstance(value, list) else str(value)


# From Python


def test_the_clients_offer_every_control_of_the_relayer() -> None:
    for name, body in (("recall", RecallBody), ("ask", AskBody)):
        offered = inspect.signature(getattr(MemoryClient, name))
        assert offered == inspect.signature(getattr(SyncMemoryClient, name))
        assert set(offered.parameters) - {"self"} == set(body.__struct_fields__)
    assert inspect.signature(MemoryClient.recall).parameters["min_relevance"].default == 0.3
    assert set(MODES) == set(RecallBody.__annotations__["mode"].__args__)


@pytest.mark.parametrize(
    ("query", "controls", "expected"),
    [
        ("tea", {"namespaces": ["default", "team"], "mode": "keyword"}, {TEA, BUDGET}),
        ("tea", {"namespaces": ["team"]}, {BUDGET}),
        ("tea", {"namespace": "team"}, {BUDGET}),
        ("tea", {"mode": "keyword_first", "min_primary_results": 1}, {TEA}),
        (
            "tea",
            {"mode": "keyword_first", "min_primary_results": 2},
            {TEA, CLUSTER, TAGGED},
        ),
        ("k8s", {"mode": "keyword"}, set()),
        ("k8s", {"mode": "keyword", "aliases": {"k8s": ["kubernetes"]}}, {CLUSTER}),
        ("k8s", {"mode": "keyword", "aliases": {"k8s": ("kube", "cluster")}}, {CLUSTER}),
        ("What is next?", {"mode": "keyword", "goal": "free the cluster"}, {CLUSTER}),
        ("the annual report", {"mode": "keyword"}, {TAGGED}),
        ("tea", {"kinds": ["preference"]}, {TEA}),
        ("tea", {"tags": ("annual report",)}, {TAGGED}),
        ("tea", {"source": "notes"}, {CLUSTER}),
        ("tea", {"metadata": {"shop": "north"}}, {TEA}),
        ("tea", {"metadata": {"shop": "south"}}, set()),
        ("tea", {"before": HIGHLIGHT + timedelta(days=1)}, {TAGGED}),
        ("tea", {"as_of": HIGHLIGHT}, set()),
        ("tea", {"writers": ["ab" * 32]}, set()),
        ("tea", {"limit": 1, "scoring_weights": {"importance": 100}}, {CLUSTER}),
        ("tea", {"max_tokens": 4, "limit": 1}, set()),
        ("tea", {"max_tokens": 5, "limit": 1}, {TEA}),
    ],
    ids=named,
)
def test_what_a_control_does(
    client: SyncMemoryClient, query: str, controls: dict[str, Any], expected: set[str]
) -> None:
    assert set(texts(client, query, min_relevance=None, **controls)) == expected


def test_writers_are_public_keys(client: SyncMemoryClient, settings: Settings) -> None:
    assert TEA in texts(client, "tea", writers=[settings.public_key])


def test_a_score_can_be_made_again_from_its_explanation(client: SyncMemoryClient) -> None:
    """capability 4.17: final = vectorWeight × vectorScore + textWeight × textScore, on the wire."""
    controls: dict[str, Any] = {"explain": True, "min_relevance": None}
    for found in client.recall(
        "Does Anna like tea?", vector_weight=0.7, text_weight=0.3, **controls
    ).results:
        assert found.explain is not None
        assert found.explain.cosine is not None
        assert found.score == 0.7 * found.explain.cosine + 0.3 * found.explain.keyword
    [best, *_] = client.recall("Does Anna like tea?", **controls).results
    assert best.explain is not None
    assert (best.text, set(best.explain.matched)) == (TEA, {"anna", "tea"})
    parts = best.explain.parts
    assert set(parts) == {
        "meaning",
        "words",
        "neighbours",
        "speaker",
        "period",
        "recency",
        "importance",
    }
    assert best.score == pytest.approx(sum(parts.values()))
    assert "explain" not in client.recall("tea").results[0].to_json()


def test_a_budget_is_told(client: SyncMemoryClient) -> None:
    everything = client.recall("tea", min_relevance=None)
    assert (everything.tokens, everything.left_out) == (None, None)
    found = client.recall("tea", min_relevance=None, max_tokens=13)
    tokens = [memory.tokens or 0 for memory in found.results]
    assert found.tokens == sum(tokens) <= 13
    assert all(tokens)
    assert len(found.results) + (found.left_out or 0) == 3
    assert found.left_out


def test_aliases_of_the_settings_come_with_every_recall(settings: Settings) -> None:
    """capability 3.12: aliases are settings of the client, and a call may add some."""
    known = replace(settings, aliases={"k8s": ["kubernetes"], "brew": ["none"]})
    with SyncMemoryClient.from_settings(known) as client:
        assert texts(client, "k8s", mode="keyword") == [CLUSTER]
        assert texts(client, "brew", mode="keyword") == []
        both = texts(client, "brew k8s", mode="keyword", aliases={"brew": ["tea"]})
        assert set(both) == {TEA, CLUSTER}
        assert "kubernetes" not in repr(client)
        assert "kubernetes" not in repr(known)


@pytest.mark.parametrize(
    "aliases",
    [
        [],
        "k8s",
        {"k8s": "kubernetes"},
        {"k8s": []},
        {"k8s": [""]},
        {"k8s": [7]},
        {"": ["tea"]},
        {"k8s": ["a" * 129]},
        {"k8s": ["a"] * 17},
        {str(n): ["a"] for n in range(65)},
        {"k8s": ["a\ud83c"]},
        {"\udf75": ["tea"]},
    ],
    ids=range(12),
)
def test_aliases_that_cannot_be_are_refused(settings: Settings, aliases: Any) -> None:
    with pytest.raises(ConfigError, match="aliases"):
        replace(settings, aliases=aliases)


def test_a_profile_with_half_a_character_is_refused(settings: Settings, profile: Path) -> None:
    write_private(profile, settings.profile() | {"aliases": {"tea": ["\ud83c"]}})
    assert b"\\ud83c" in profile.read_bytes()
    with pytest.raises(ConfigError, match="aliases"):
        Settings.load(profile, environ={})


def test_settings_with_aliases_can_be_keys(settings: Settings) -> None:
    known = replace(settings, aliases={"k8s": ["kubernetes"]})
    assert {settings: 1, known: 2}[known] == 2


def test_a_profile_keeps_its_aliases(settings: Settings, profile: Path) -> None:
    known = replace(settings, aliases={"k8s": ["kubernetes"]})
    write_private(profile, known.profile())
    assert Settings.load(profile, environ={}).aliases == {"k8s": ["kubernetes"]}
    assert main(["trust", settings.public_key, "--profile", str(profile)], {}) == 0
    assert Settings.load(profile, environ={}).aliases == {"k8s": ["kubernetes"]}
    assert "aliases" not in settings.profile()


@pytest.mark.parametrize(
    "controls",
    [
        {"kinds": ["thought"]},
        {"mode": "magic"},
        {"min_primary_results": 1},
        {"vector_weight": 1.0},
        {"max_tokens": 0},
        {"as_of": "2126-01-01T00:00:00Z"},
        {"writers": ["me"]},
        {"goal": ""},
        {"namespaces": ["team", "team"]},
    ],
    ids=str,
)
def test_what_the_relayer_refuses_is_told(
    client: SyncMemoryClient, controls: dict[str, Any]
) -> None:
    with pytest.raises(BadRequest) as caught:
        client.recall("tea", **controls)
    assert caught.value.code == "request.invalid"


@pytest.mark.parametrize("name", ["namespaces", "kinds", "tags", "writers"])
def test_a_text_is_no_list_of_its_letters(client: SyncMemoryClient, name: str) -> None:
    controls: dict[str, Any] = {name: "team"}
    with pytest.raises(ValueError, match=f"^{name} "):
        client.recall("tea", **controls)
    if name != "writers":
        with pytest.raises(ValueError, match=f"^{name} "):
            client.ask("tea?", **controls)


def test_there_is_a_namespace_to_look_into(client: SyncMemoryClient) -> None:
    with pytest.raises(ValueError, match=r"^namespaces "):
        client.recall("tea", namespaces=[])
    names = (name for name in ["team"])
    assert texts(client, "tea", namespaces=names, min_relevance=None) == [BUDGET]


def test_aliases_of_settings_and_call_are_bounded_together(settings: Settings) -> None:
    known = replace(settings, aliases={f"word{n}": ["other"] for n in range(64)})
    with SyncMemoryClient.from_settings(known) as client:
        added: dict[str, Any] = {"word0": ["kubernetes"]}
        assert texts(client, "word0", mode="keyword", aliases=added) == [CLUSTER]
        with pytest.raises(ValueError, match=r"aliases .* 64 .* settings"):
            client.recall("tea", aliases={"k8s": ["kubernetes"]})
        with pytest.raises(ValueError, match="aliases"):
            client.recall("tea", aliases={"word0": "kubernetes"})


def test_what_the_client_refuses_is_not_sent(client: SyncMemoryClient) -> None:
    with pytest.raises(ValueError, match="not both"):
        client.recall("tea", namespace="team", namespaces=["default"])
    with pytest.raises(ValueError, match="time zone"):
        client.recall("tea", as_of=datetime(2026, 5, 4))
    with pytest.raises(Invalid):
        client.recall("tea", namespaces=["team", "\u00a0"])


def test_a_question_is_narrowed_like_a_recall(client: SyncMemoryClient) -> None:
    with pytest.raises(BadRequest):
        client.ask("tea?", kinds=["thought"])
    with pytest.raises(NotOffered) as caught:  # all is well but that it has no language model
        client.ask("tea?", namespaces=["default", "team"], tags=["x"], as_of=HIGHLIGHT)
    assert caught.value.code == "llm.not_configured"


# From a shell


def test_the_command_explains_what_it_found(run: Run) -> None:
    code, out, err = run("recall", "Does", "Anna", "like", "tea?", "--limit", "1", "--explain")
    assert (code, err) == (
        0,
        "memrelay: Age and importance did not count; --recency X and --importance X make them.\n",
    )
    [line] = out.splitlines()
    _, near, text, meaning, words, matched, score, parts = line.split("\t")
    assert (text, matched) == (TEA, "anna, tea")
    assert all(re.fullmatch("[0-9]+%", share) for share in (near, meaning, words))
    found = re.fullmatch(r"meaning ([0-9.]+) \+ words ([0-9.]+)", parts)
    assert found is not None
    assert float(score) == pytest.approx(float(found[1]) + float(found[2]), abs=0.011)
    code, out, _ = run("recall", "zebra", "--mode", "vector", "--min-relevance", "-0", "--explain")
    assert "\tnone\t" in out


def test_the_command_explains_that_distances_were_estimated(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "memrelay: Distances of memories that are not shown were estimated."
    assert json.loads(run("recall", "tea", "--json")[1])["estimated"] is False
    read = Recalled.from_json
    monkeypatch.setattr(Recalled, "from_json", lambda answer: read({**answer, "estimated": True}))
    assert told in run("recall", "tea", "--explain")[2].splitlines()
    assert json.loads(run("recall", "tea", "--json")[1])["estimated"] is True
    assert run("recall", "tea")[2] == ""


def test_the_command_says_what_age_and_importance_did(run: Run) -> None:
    _, out, err = run("recall", "tea", "--explain", "--recency", "1", "--importance", "0.5")
    assert re.search(r"\+ recency [0-9.]+ \+ importance [0-9.]+$", out.splitlines()[0])
    assert re.search(r"age up to [01]\.[0-9]{2} and importance up to 0\.[0-9]{2} was added", err)
    best = {"--limit": "1", "--mode": "keyword", "--importance": "0.5"}
    _, _, err = run("recall", "tea", "--explain", *(word for pair in best.items() for word in pair))
    assert "importance up to 0." in err
    assert "Without it, 0 of 1 place would be another's" in err
    _, _, err = run("recall", "tea", "--explain", "--importance", "9", "--min-relevance", "0")
    assert re.search(r"Without it, [2-9] of [2-9] places would be another's", err)
    _, _, err = run("recall", "tea", "--explain", "--importance", "0")
    assert err == "memrelay: Age and importance added nothing to these scores.\n"
    assert run("recall", "tea", "--explain", "--importance", "9", "--json")[2] == ""
    assert run("recall", "tea", "--importance", "9")[2] == ""
    _, out, err = run("recall", "nothing that is there", "--mode", "keyword", "--explain")
    assert (out, err) == ("", "memrelay: Nothing found.\n")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["tea", "--namespace", "default", "--namespace", "team", "--mode", "keyword"],
         {TEA, BUDGET}),
        (["tea", "--namespace", "team"], {BUDGET}),
        (["tea", "--mode", "keyword_first", "--min-primary", "1"], {TEA}),
        (["k8s", "--mode", "keyword", "--alias", "k8s=cluster", "--alias", "k8s=kube"], {CLUSTER}),
        (["next?", "--mode", "keyword", "--goal", "free the cluster"], {CLUSTER}),
        (["tea", "--kind", "preference", "--kind", "decision"], {TEA}),
        (["tea", "--tag", "annual report"], {TAGGED}),
        (["tea", "--source", "notes"], {CLUSTER}),
        (["tea", "--metadata", "shop=north"], {TEA}),
        (["tea", "--writer", "ab" * 32], set()),
        (["tea", "--before", "2026-06-01T00:00:00Z"], {TAGGED}),
        (["tea", "--after", "2126-06-01T00:00:00Z"], set()),
        (["tea", "--as-of", "2026-06-01T00:00:00Z"], set()),
        (["tea", "--limit", "1", "--importance", "9"], {CLUSTER}),
        (["tea", "--limit", "1", "--vector-weight", "0", "--text-weight", "2"], {TEA}),
        (["tea", "--limit", "2", "--recency", "90", "--half-life", "0.5"],
         {TEA, CLUSTER}),
    ],
    ids=named,
)  # fmt: skip
def test_every_flag_reaches_the_relayer(run: Run, argv: list[str], expected: set[str]) -> None:
    code, out, err = run("recall", *argv, "--min-relevance", "0", "--json")
    assert (code, err) == (0, "")
    assert {result["text"] for result in json.loads(out)["results"]} == expected


def test_a_budget_warns_and_is_in_the_json(run: Run) -> None:
    argv = ("recall", "tea", "--min-relevance", "0", "--max-tokens", "13")
    code, out, err = run(*argv)
    assert code == 0
    assert err == f"memrelay: {3 - len(out.splitlines())} more did not fit into 13 tokens.\n"
    value = json.loads(run(*argv, "--json")[1])
    assert value["tokens"] == sum(result["tokens"] for result in value["results"])
    assert value["left_out"] == 3 - value["total"]


def test_aliases_of_the_profile_count_in_the_shell(
    run: Run, settings: Settings, profile: Path
) -> None:
    argv = ("recall", "k8s", "--mode", "keyword", "--json")
    assert json.loads(run(*argv)[1])["total"] == 0
    write_private(profile, settings.profile() | {"aliases": {"k8s": ["kubernetes"]}})
    assert json.loads(run(*argv)[1])["total"] == 1
    write_private(profile, settings.profile() | {"aliases": {"k8s": "kubernetes"}})
    code, out, err = run(*argv)
    assert (code, out, err.count("\n")) == (EXIT_USAGE, "", 1)
    assert "aliases" in err


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--half-life", "3"], EXIT_USAGE),
        (["--namespace", "team", "--namespace", "\u00a0"], EXIT_USAGE),
        (["--min-primary", "2"], EXIT_FAILED),
        (["--text-weight", "2"], EXIT_FAILED),
    ],
    ids=named,
)
def test_what_cannot_be_is_one_line(run: Run, argv: list[str], code: int) -> None:
    found, out, err = run("recall", "tea", *argv)
    assert (found, out, err.count("\n")) == (code, "", 1)


@pytest.mark.parametrize(
    "argv",
    [
        ["--alias", "k8s"],
        ["--alias", "=kubernetes"],
        ["--alias", "k8s= "],
        ["--max-tokens", "many"],
        ["--metadata", "shop"],
        ["--min-relevance", "nan"],
        ["--vector-weight", "inf"],
        ["--text-weight", "nan"],
        ["--recency", "-inf"],
        ["--half-life", "nan"],
        ["--importance", "much"],
    ],
    ids=" ".join,
)
def test_wrong_words_are_usage_errors(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["recall", "tea", *argv], {})
    assert done.value.code == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, argv[0] in err) == ("", True)
