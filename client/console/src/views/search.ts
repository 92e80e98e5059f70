// Search as an agent recalls: the best memories for a question, each with its reasons.

import { NAMESPACES_MAX } from "../access.ts";
import type { Context } from "../context.ts";
import { field, fill, h, select } from "../dom.ts";
import { formatPercent, formatTime, writerOf } from "../format.ts";
import { marks } from "../parts.ts";
import type { Explanation, Hit, Recalled } from "../records.ts";
import { attempt } from "../shell.ts";
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

  const search = async (): Promise<void> => {
    if (!query.value.trim()) return;
    fill(results);
    const asked = where.value ? [where.value] : (await listing).slice(0, NAMESPACES_MAX);
    count.textContent = asked.length === 0 ? t.results(0) : texts.working;
    if (asked.length === 0) return;
    const found = await context.access.recall(query.value, asked, LIMIT);
    context.store.note(found.results);
    fill(results, shown(found, context.access.publicKey));
    count.textContent = t.results(found.results.length);
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

function shown(found: Recalled, own: string): HTMLElement[] {
  const t = texts.search;
  return [
    ...(found.degraded ? [h("p", { class: "notice" }, t.degraded)] : []),
    ...(found.dropped_count ? [h("p", { class: "notice" }, t.dropped(found.dropped_count))] : []),
    ...(found.results.length ? [h("p", { class: "hint" }, t.relevance)] : []),
    h("ol", { class: "hits" }, found.results.map((hit) => hitCard(hit, own))),
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
