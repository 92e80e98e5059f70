// What was stored over time, by whom, of which kinds and where, and what recalls used of it.

import { NAMESPACES_MAX } from "../access.ts";
import type { Context } from "../context.ts";
import { button, field, fill, h, select, type Child } from "../dom.ts";
import { formatDay, formatPercent, formatUtcDay } from "../format.ts";
import { barChart, memoryRow } from "../parts.ts";
import { lastPeriods, namePeriod, type Unit } from "../periods.ts";
import type { Counts, Memory, Namespace } from "../records.ts";
import { ask, attempt } from "../shell.ts";
import { texts } from "../texts.ts";
import { showFiltered, type Filter } from "./list.ts";

const PERIODS: Readonly<Record<Unit, number>> = { day: 30, week: 26, month: 24 };
const ROWS_MAX = 8; // of a table
const NEVER_SHOWN = 20;

/** Returns charts and tables of what is in recall. */
export function activitySection(context: Context): HTMLElement {
  const t = texts.activity;
  const { access, store } = context;
  const found = h("div", {}, h("p", { class: "hint" }, texts.loading));
  let unit: Unit = "day";
  const load = async (): Promise<void> => {
    const starts = lastPeriods(unit, PERIODS[unit], Date.now());
    const [counts, namespaces] = await Promise.all([access.counts(starts), access.namespaces(), store.learnNames()]);
    if (store.isEnded) return;
    fill(
      found,
      chart(counts, starts, unit),
      h("div", { class: "columns" }, groups(context, counts, namespaces)),
      recalls(context, counts, namespaces, load),
    );
  };
  const by = select(Object.entries(texts.timeline.units), unit, (value) => {
    unit = value as Unit;
    void attempt(load);
  });
  void attempt(load);
  return h("section", {}, h("h2", {}, t.title), h("div", { class: "filters one" }, field(t.by, by)), found);
}

function chart(counts: Counts, starts: readonly number[], unit: Unit): Child {
  const t = texts.activity;
  const bars = starts.map((start, at) => {
    const value = counts.periods[at] ?? 0;
    return { label: formatDay(start), value, title: texts.timeline.bar(namePeriod(start, unit), value) };
  });
  const since = counts.counted_since;
  return [
    barChart(bars, t.chart),
    since === null ? null : h("p", { class: "notice" }, t.truncated(counts.memory_count, formatDay(since))),
  ];
}

interface Row {
  readonly name: string;
  readonly count: number;
  readonly never: number | undefined;
  readonly filter: Partial<Filter>;
}

function groups({ store }: Context, counts: Counts, namespaces: readonly Namespace[]): HTMLElement[] {
  const t = texts.activity;
  const writers = counts.writers.map((one) => ({
    name: one.writer_label || store.nameOf(one.writer),
    count: one.memory_count,
    never: one.never_recalled_count,
    filter: { writer: one.writer },
  }));
  const kinds = counts.kinds.map((one) => ({
    name: one.kind,
    count: one.memory_count,
    never: one.never_recalled_count,
    filter: { kind: one.kind },
  }));
  const places = namespaces
    .map((one) => ({ name: one.name, count: countInForce(one), never: undefined, filter: { namespace: one.name } }))
    .sort((a, b) => b.count - a.count);
  return [group(t.writers, writers), group(t.kinds, kinds), group(t.places, places)];
}

/** Returns how many memories are in force of what is counted by state. */
export function countInForce(
  counts: Readonly<Record<"memory_count" | "superseded_count" | "pending_count" | "rejected_count", number>>,
): number {
  return Math.max(0, counts.memory_count - counts.superseded_count - counts.pending_count - counts.rejected_count);
}

function group(title: string, rows: readonly Row[]): HTMLElement {
  const t = texts.activity;
  const total = rows.reduce((sum, { count }) => sum + count, 0) || 1;
  const hasNever = rows.some(({ never }) => never !== undefined);
  const row = ({ name, count, never, filter }: Row): HTMLElement =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("a", { href: "#/memories", click: (event) => follow(event, filter) }, name)),
      h("td", { class: "number" }, count.toLocaleString(texts.language)),
      h("td", { class: "meter" }, h("meter", { min: 0, max: total, value: count, "aria-hidden": "true" }), ` ${formatPercent(count / total)}`),
      hasNever ? h("td", { class: "number" }, never?.toLocaleString(texts.language)) : null,
    );
  const headings = [title, t.memories, t.share, ...(hasNever ? [t.never] : [])];
  return h(
    "div",
    {},
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, headings.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.slice(0, ROWS_MAX).map(row)),
    ),
    rows.length > ROWS_MAX ? h("p", { class: "hint" }, t.more(rows.length - ROWS_MAX)) : null,
  );
}

function follow(event: Event, filter: Partial<Filter>): void {
  event.preventDefault();
  showFiltered(filter);
}

function recalls(context: Context, counts: Counts, namespaces: readonly Namespace[], reload: () => Promise<void>): HTMLElement {
  const t = texts.activity;
  const title = h("h3", {}, t.recalls);
  if (counts.recalls === null) {
    const offer = button(t.count, () => startCounting(context, reload));
    return h("div", {}, title, h("p", { class: "hint" }, t.notCounted), context.access.isOwner ? offer : null);
  }
  const { most, since, never_recalled_count: never } = counts.recalls;
  const rows = h("ol", { class: "rows" });
  void attempt(async () => {
    const opened = await Promise.all(most.map((one) => openMemory(context, one.id, one.namespace)));
    if (context.store.isEnded) return;
    const shown = opened.map((memory, at) => {
      const times = h("strong", {}, t.times(most[at]!.recall_count, formatUtcDay(most[at]!.last_recalled_on)));
      if (!memory) return h("li", {}, h("p", { class: "row" }, t.unreadable, h("span", { class: "row-facts" }, times)));
      const row = memoryRow(memory, context.store);
      row.querySelector(".row-facts")?.prepend(times);
      return h("li", {}, row);
    });
    fill(rows, shown);
  });
  const unused = h("div");
  const showUnused = async (): Promise<void> => {
    const found = await findUnused(context, namespaces);
    fill(unused, h("ul", { class: "rows" }, found.map((memory) => h("li", {}, memoryRow(memory, context.store)))));
  };
  return h(
    "div",
    {},
    title,
    h("p", { class: "hint" }, t.since(formatUtcDay(since))),
    most.length ? rows : h("p", {}, t.noneYet),
    h("p", {}, t.neverRecalled(never, counts.memory_count)),
    h(
      "div",
      { class: "buttons" },
      never ? button(t.showUnused(Math.min(never, NEVER_SHOWN)), () => attempt(showUnused)) : null,
      context.access.isOwner ? button(t.stop, () => stopCounting(context, reload)) : null,
    ),
    unused,
  );
}

/** Returns a memory; null where it is gone by now, or not to be read. */
async function openMemory({ access, store }: Context, id: string, namespace: string): Promise<Memory | null> {
  try {
    const memory = await access.get(id, namespace);
    store.note([memory]);
    return memory;
  } catch {
    return null;
  }
}

async function findUnused({ access, store }: Context, namespaces: readonly Namespace[]): Promise<readonly Memory[]> {
  const found: Memory[] = [];
  for (let at = 0; at < namespaces.length && found.length < NEVER_SHOWN; at += NAMESPACES_MAX) {
    const some = namespaces.slice(at, at + NAMESPACES_MAX).map((one) => one.name);
    found.push(...(await access.neverRecalled(some, NEVER_SHOWN - found.length)));
  }
  store.note(found);
  return found;
}

function startCounting({ access }: Context, reload: () => Promise<void>): Promise<void> {
  const t = texts.activity;
  return ask({
    title: t.countTitle,
    body: h("p", {}, t.countSure),
    confirm: t.count,
    act: async () => {
      await access.countRecalls(true);
      await reload();
    },
  });
}

function stopCounting({ access }: Context, reload: () => Promise<void>): Promise<void> {
  const t = texts.activity;
  return ask({
    title: t.stopTitle,
    body: h("p", {}, t.stopSure),
    confirm: t.stop,
    isDangerous: true,
    act: async () => {
      await access.countRecalls(false);
      await reload();
    },
  });
}
