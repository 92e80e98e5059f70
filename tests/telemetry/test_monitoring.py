"""Dashboard and alerts speak of metrics that there are, in words that those have.

Not here: whether the expressions mean what they are to (`promtool` reads them, see the page beside
them).
"""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from prometheus_client import REGISTRY

from relayer.app import build_app
from relayer.database import queue
from relayer.monitoring.readiness import CHECKS
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.telemetry import instruments
from tests.signing import client_of

FOLDER = Path(__file__).parents[2] / "deploy/monitoring"
_SELECTOR = re.compile(r"\b(up|memrelay_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
# Words that a label may have; a label that is not here is checked by its name alone.
WORDS: dict[str, set[str]] = {
    "stage": set(get_args(instruments.Stage)),
    "cache": set(get_args(instruments.Cache)),
    "result": {"hit", "miss"},
    "cause": set(get_args(instruments.Rejection)),
    "kind": set(queue.KINDS),
    "state": set(queue.STATES),
    "outcome": {*get_args(instruments.Outcome), *get_args(instruments.Gain), "taken", "pending"},
    "extractor": {"model", "rules", "rules_after_failure", "none"},
    "check": set(CHECKS),
    "what": {"deletions", "webhook_events"},
    "understood": {"yes", "no"},
    "status_code": {"200", "404", "500", "501", "503"},
}
ADDED = {"instance", "job", "le"}  # by Prometheus, or by a histogram


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return loaded


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for rule in rules():
        yield rule["expr"]


def selectors() -> list[tuple[str, list[tuple[str, str, str]]]]:
    """(metric, [(label, operator, value)…]) of everything that is asked for."""
    found = []
    for expression in expressions():
        for name, matchers in _SELECTOR.findall(expression):
            found.append((name, _MATCHER.findall(matchers)))
    return found


async def families(storage: Storage, settings: Settings) -> dict[str, set[str]]:
    """Name of a series → its labels, of a real scrape and of what has no series yet."""
    app = build_app(storage, dataclasses.replace(settings, embedder="none"))
    async with client_of(app) as client:
        await client.get("/health")
        text = (await client.get("/metrics")).text
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if match := re.match(r"(\w+)(?:\{(.*)\})? ", line):
            labels = re.findall(r'(\w+)="', match[2] or "")
            found.setdefault(match[1], set()).update(labels)
    for name, collector in REGISTRY._names_to_collectors.items():
        found.setdefault(name, set()).update(getattr(collector, "_labelnames", ()))
    return found


async def test_every_metric_and_every_label_is_there(storage: Storage, settings: Settings) -> None:
    there = await families(storage, settings)
    asked = selectors()
    assert len(asked) > 40
    assert {name for name, _ in asked} - set(there) == {"up"}
    for name, matchers in asked:
        unknown = {label for label, _, _ in matchers} - there.get(name, set()) - ADDED
        assert not unknown, name


def test_every_value_that_is_matched_is_a_word_of_that_label() -> None:
    for name, matchers in selectors():
        for label, operator, value in matchers:
            words = WORDS.get(label)
            if words is None or (label == "cause" and "failures" in name):
                continue
            parts = [value] if operator in ("=", "!=") else value.split("|")
            for part in parts:
                assert any(re.fullmatch(part, word) for word in words), (name, label, part)


def test_a_model_that_was_not_set_up_is_no_failure() -> None:
    """Requests for it are answered with 501, and must wake nobody."""
    counted = [m for name, m in selectors() if name == "memrelay_requests_total"]
    failing = [m for m in counted if any(value == "5.." for _, _, value in m)]
    assert len(failing) == 2  # the alert, and the panel beside it
    assert all(("status_code", "!=", "501") in matchers for matchers in failing)


def test_what_is_grouped_by_is_a_label() -> None:
    for expression in expressions():
        for labels in re.findall(r"\bby \(([^)]*)\)", expression):
            for label in filter(None, map(str.strip, labels.split(","))):
                known = ADDED | set(WORDS) | {"method", "path", "version"}
                assert label in known, expression


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_brackets_are_closed_and_rates_have_a_range(expression: str) -> None:
    """No parser of the language: `promtool check rules` is one, where it is."""
    bare = re.sub(r'"[^"]*"', "", expression)
    open_ones: list[str] = []
    for character in bare:
        if character in "([{":
            open_ones.append(character)
        elif character in ")]}":
            assert open_ones.pop() + character in ("()", "[]", "{}")
    assert open_ones == []
    for counted in re.findall(r"(memrelay_\w+_(?:total|bucket|count|sum))(\{[^}]*\})?(.?)", bare):
        assert counted[2] == "[", "a counter says something by its growth alone"
    assert "{{" not in bare


def test_every_alert_is_explained_and_no_other() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8").partition("## Alerts")[2]
    table = re.findall(r"^\| ([A-Z]\w+(?:, [A-Z]\w+)*) \|", page, re.MULTILINE)
    explained = {name for cell in table for name in cell.split(", ")}
    assert explained == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "warn")


async def test_the_page_explains_every_metric_of_ours(storage: Storage, settings: Settings) -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(memrelay_\w+)`", page))
    there = await families(storage, settings)
    plain = {re.sub(r"_(?:bucket|sum|count|created)$", "", name) for name in there}
    ours = {name for name in plain if name.startswith("memrelay_")}
    assert len(ours) > 20
    assert named <= ours
    assert {n for n in ours if n + "_total" not in ours} <= named


def test_panels_are_told_apart_and_fill_no_others_place() -> None:
    panels = dashboard()["panels"]
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    assert len(set(places)) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
