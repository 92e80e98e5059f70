// Search as an agent recalls: the best memories for a question, each with its reasons.

import type { Context } from "../context.ts";
import { field, fill, h, select } from "../dom.ts";
import { formatPercent, formatTime, writerOf } from "../format.ts";
import { marks } from "../parts.ts";
import type { Explanation, Hit } from "../records.ts";
import { searchNamespaces, type Found } from "../searching.ts";
import { attempt, messageOf } from "../shell.ts";
import { texts } from "../texts.ts";

const LIMIT = 20;

export function searchView(context: Context): HTMLElement {
  const t = texts.search;
  const query = h("input", { type: "search", autocomplete: "off", required: true, maxlength: 4000, spellcheck: "false" });
  const where = select([["", texts.allNamespaces]], "");
  const results = h("section", { "aria-label": t.title, class: "results" }, h("p", { class: "hint" }, t.empty));
  const count = h("p", { class: "count", role: "status" });
  const listing = context.access.namespaces().then((found) => found.map((one) => one.name));
  void attempt(async () => {
    where.append(...(await listing).map((name) => h("option", { value: name }, name)));
  });

  let running = new AbortController();
  context.onLeave(() => running.abort());
  const search = async (): Promise<void> => {
    if (!query.value.trim()) return;
    running.abort();
    const { signal } = (running = new AbortController());
    fill(results);
    count.textContent = texts.working;
    try {
      const asked = where.value ? [where.value] : await listing;
      const found = await searchNamespaces(context.access, query.value, asked, {
        limit: LIMIT,
        signal,
        progress: (searched, total) => {
          if (searched < total) count.textContent = t.searching(searched, total);
        },
      });
      context.store.note(found.hits);
      fill(results, shown(found, context.access.publicKey));
      count.textContent = t.results(found.hits.length);
    } catch (error) {
      if (signal.aborted) return; // another search took its place, or nobody waits any longer
      count.textContent = "";
      throw error;
    }
  };

  const form = h(
    "form",
    {
      class: "search",
      role: "search",
      submit: (event) => {
        event.preventDefault();
        void attempt(search);
      },
    },
    field(t.query, query),
    field(t.where, where),
    h("button", { type: "submit", class: "primary" }, t.go),
  );
  return h("div", {}, h("h1", {}, t.title), form, count, results);
}

function shown(found: Found, own: string): HTMLElement[] {
  const t = texts.search;
  const { hits, searched, total, failure } = found;
  const told = [
    searched < total && t.partly(searched, total, messageOf(failure)),
    found.isDegraded && t.degraded,
    found.dropped > 0 && t.dropped(found.dropped),
  ].filter((text): text is string => typeof text === "string");
  return [
    ...told.map((text) => h("p", { class: "notice" }, text)),
    ...(hits.length ? [h("p", { class: "hint" }, t.relevance)] : []),
    h("ol", { class: "hits" }, hits.map((hit) => hitCard(hit, own))),
  ];
}

function hitCard(hit: Hit, own: string): HTMLElement {
  return h(
    "li",
    { class: "card" },
    h("p", { class: "hit-text" }, h("a", { href: `#/memory/${hit.id}` }, hit.text)),
    h(
      "p",
      { class: "row-facts" },
      h("span", {}, formatTime(hit.event_time ?? hit.created_at)),
      h("span", {}, hit.namespace),
      h("span", {}, hit.kind),
      h("span", {}, writerOf(hit, own)),
      hit.tags.map((tag) => h("span", { class: "tag" }, tag)),
      marks(hit),
    ),
    hit.explain ? reasons(hit, hit.explain) : null,
  );
}

function reasons(hit: Hit, explain: Explanation): HTMLElement {
  const t = texts.search;
  const parts = Object.entries(explain.parts).filter(([, value]) => Math.abs(value) >= 0.005);
  const near = hit.distance === null ? t.relevantUnknown : t.relevant(formatPercent(1 - hit.distance));
  const meaning = explain.cosine === null ? t.meaningNone : t.meaning(formatPercent(explain.cosine));
  const most = Math.max(0.01, ...parts.map(([, value]) => Math.abs(value)));
  return h(
    "details",
    {},
    h("summary", {}, t.why, " ", h("span", { class: "hint" }, near)),
    h("p", {}, meaning, " ", t.words(formatPercent(explain.keyword))),
    h("p", {}, explain.matched.length ? t.matched(explain.matched) : t.matchedNone),
    h(
      "table",
      { class: "parts" },
      h("caption", {}, t.partsCaption(hit.score.toFixed(2))),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t.part), h("th", { scope: "col", colspan: 2 }, t.value))),
      h(
        "tbody",
        {},
        parts.map(([name, value]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, t.parts[name] ?? name),
            h("td", { class: "number" }, value.toFixed(2)),
            h("td", { class: "meter", "aria-hidden": "true" }, h("meter", { min: 0, max: most, value: Math.abs(value) })),
          ),
        ),
      ),
    ),
  );
}
