// Search as an agent recalls: the best memories for a question, each with its reasons.

import { NAMESPACES_MAX } from "../access.ts";
import type { Context } from "../context.ts";
import { field, fill, h, select, type Child } from "../dom.ts";
import { formatPercent, formatTime } from "../format.ts";
import { emptyAccount, marks, memoryRow, tags } from "../parts.ts";
import type { Explanation, Hit, Memory } from "../records.ts";
import { searchNamespaces, type Found } from "../searching.ts";
import { attempt, messageOf } from "../shell.ts";
import type { Store } from "../store.ts";
import { texts } from "../texts.ts";
import { markStems, wordsOfStems } from "../words.ts";

const LIMIT = 20;
const NEWEST = 5;
const SHOWN_CHARACTERS_MAX = 2000;

export function searchView(context: Context): HTMLElement {
  const t = texts.search;
  const { access, store } = context;
  const last = store.lastSearch; // there again for whoever comes back from a memory
  const query = h("input", {
    type: "search",
    autocomplete: "off",
    required: true,
    maxlength: 4000,
    spellcheck: "false",
    value: last?.query ?? "",
  });
  const where = select([["", texts.allNamespaces]], "");
  const results = h("section", { "aria-label": t.title, class: "results" });
  const count = h("p", { class: "count", role: "status" });
  const show = (found: Found, asked: string): void => {
    fill(results, shown(found, asked, store));
    count.textContent = t.results(found.hits.length);
  };
  const listing = access.namespaces().then((found) => found.map((one) => one.name));
  void attempt(async () => {
    const names = await listing;
    where.append(...names.map((name) => h("option", { value: name, selected: name === last?.where }, name)));
    if (!store.lastSearch && !results.hasChildNodes()) {
      const isKnown = names.length <= NAMESPACES_MAX; // one request tells the newest of them all
      const newest = isKnown ? await loadNewest(context, names) : [];
      if (store.lastSearch || results.hasChildNodes()) return; // somebody was faster
      if (isKnown && newest.length === 0) return fill(results, emptyAccount(context));
      fill(results, h("p", { class: "hint" }, t.empty), newest.length > 0 && newestRows(newest, store));
    }
  });
  if (last) show(last.found, last.query);

  let running = new AbortController();
  context.onLeave(() => running.abort());
  const search = async (): Promise<void> => {
    if (!query.value.trim()) return;
    running.abort();
    const { signal } = (running = new AbortController());
    const asked = { query: query.value, where: where.value };
    store.lastSearch = null;
    fill(results);
    count.textContent = texts.working;
    try {
      const names = asked.where ? [asked.where] : await listing;
      const [found] = await Promise.all([
        searchNamespaces(access, asked.query, names, {
          limit: LIMIT,
          signal,
          progress: (searched, total) => {
            if (searched < total) count.textContent = t.searching(searched, total);
          },
        }),
        store.learnNames(),
      ]);
      if (signal.aborted || store.isEnded) return;
      store.lastSearch = { ...asked, found };
      store.note(found.hits);
      show(found, asked.query);
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

/** Returns the newest memories in force of at most so many namespaces as one request names. */
async function loadNewest({ access, store }: Context, names: readonly string[]): Promise<readonly Memory[]> {
  if (names.length === 0) return [];
  const [page] = await Promise.all([access.list(names, NEWEST, null, "active"), store.learnNames()]);
  store.note(page.memories);
  return page.memories;
}

function newestRows(newest: readonly Memory[], store: Store): HTMLElement {
  const t = texts.search;
  const rows = newest.map((memory) => h("li", {}, memoryRow(memory, store)));
  return h("section", {}, h("h2", {}, t.newest), h("ul", { class: "rows" }, rows));
}

function shown(found: Found, query: string, store: Store): HTMLElement[] {
  const t = texts.search;
  const { hits, searched, total, failure } = found;
  const told = [
    searched < total && t.partly(searched, total, messageOf(failure)),
    found.isDegraded && t.degraded,
    found.dropped > 0 && t.dropped(found.dropped),
  ].filter((text): text is string => typeof text === "string");
  return [
    ...told.map((text) => h("p", { class: "notice" }, text)),
    h("p", { class: "hint" }, hits.length ? t.relevance : t.nothing),
    h("ol", { class: "hits" }, hits.map((hit) => hitCard(hit, query, store))),
  ];
}

function hitCard(hit: Hit, query: string, store: Store): HTMLElement {
  const t = texts.search;
  const near = hit.distance === null ? t.relevantUnknown : t.relevant(formatPercent(1 - hit.distance));
  return h(
    "li",
    { class: "card hit" },
    h("p", { class: "near" }, near),
    h("p", { class: "hit-text" }, h("a", { href: `#/memory/${hit.id}` }, marked(hit))),
    h(
      "p",
      { class: "row-facts" },
      h("span", {}, formatTime(hit.event_time ?? hit.created_at)),
      h("span", {}, hit.namespace),
      h("span", {}, hit.kind),
      h("span", {}, store.writerOf(hit)),
      tags(hit),
      marks(hit),
    ),
    hit.explain ? reasons(hit, hit.explain, query) : null,
  );
}

/** Returns a memory's text, with the question's words in it marked. */
function marked(hit: Hit): Child {
  const text = hit.text.slice(0, SHOWN_CHARACTERS_MAX);
  const stems = hit.explain?.matched ?? [];
  return markStems(text, stems).map(([piece, isMarked]) => (isMarked ? h("mark", {}, piece) : piece));
}

function reasons(hit: Hit, explain: Explanation, query: string): HTMLElement {
  const t = texts.search;
  const parts = Object.entries(explain.parts).filter(([, value]) => Math.abs(value) >= 0.005);
  const meaning = explain.cosine === null ? t.meaningNone : t.meaning(formatPercent(explain.cosine));
  const most = Math.max(0.01, ...parts.map(([, value]) => Math.abs(value)));
  const matched = wordsOfStems(query, explain.matched);
  return h(
    "details",
    {},
    h("summary", {}, t.why),
    h("p", {}, meaning, " ", t.words(formatPercent(explain.keyword))),
    h("p", {}, matched.length ? t.matched(matched) : t.matchedNone),
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
