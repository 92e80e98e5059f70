// Memories by the time they are of or were stored: a chart of how many, and all of them below.

import type { Context } from "../context.ts";
import { field, fill, h, select } from "../dom.ts";
import { formatDay } from "../format.ts";
import { ROW_HEIGHT, barChart, memoryRow, type Bar } from "../parts.ts";
import { namePeriod, nextPeriod, periodOf, type Unit } from "../periods.ts";
import type { Memory } from "../records.ts";
import { attempt } from "../shell.ts";
import { texts } from "../texts.ts";
import { virtualList } from "../virtual_list.ts";
import { filterFields, filterMemories, newFilter } from "./list.ts";

const BARS_MAX = 120;

/** The first row of a period. */
interface Heading {
  readonly period: number;
  readonly count: number;
}

interface Dated {
  readonly memory: Memory;
  readonly time: number;
  /** The first moment of its day, week or month. */
  readonly period: number;
}

export function timelineView(context: Context): HTMLElement {
  const t = texts.timeline;
  const { store } = context;
  const filter = newFilter();
  let unit: Unit = "week";
  let byEvent = true;
  const chart = h("div");
  const list = virtualList<Dated | Heading>({
    label: t.list,
    rowHeight: ROW_HEIGHT,
    row: (item) =>
      "count" in item
        ? h("h2", { class: "row period" }, namePeriod(item.period, unit), h("span", {}, texts.memories(item.count)))
        : memoryRow(item.memory, store, item.time),
  });

  const draw = (): void => {
    const found = filterMemories(store.memories, filter)
      .map((memory) => {
        const time = Date.parse((byEvent ? memory.event_time : null) ?? memory.created_at);
        return { memory, time, period: periodOf(time, unit) };
      })
      .sort((a, b) => b.time - a.time);
    const rows = withPeriods(found);
    const bars = countBars(found, unit);
    const reveal = (index: number): void => list.reveal(rows.findIndex((row) => row.period === bars[index]?.period));
    fill(chart, found.length ? barChart(bars, t.chart, reveal) : h("p", { class: "hint" }, store.isComplete ? t.empty : texts.loading));
    list.element.hidden = found.length === 0;
    list.show(rows, true);
  };
  const filters = filterFields(filter, ["namespace", "kind", "writer", "tag"], draw);
  filters.choices.append(
    field(t.by, select(Object.entries(t.units), unit, (value) => {
      unit = value as Unit;
      draw();
    })),
    field(t.time, select(Object.entries(t.times), "event", (value) => {
      byEvent = value === "event";
      draw();
    })),
  );
  const refresh = (): void => {
    filters.offer(store);
    draw();
  };
  context.onLeave(store.watch(refresh));
  queueMicrotask(refresh);
  void attempt(() => store.load());
  return h("div", { class: "full" }, h("h1", {}, t.title), filters.element, chart, list.element);
}

function countBars(found: readonly Dated[], unit: Unit): (Bar & { readonly period: number })[] {
  const counts = new Map<number, number>();
  for (const { period } of found) counts.set(period, (counts.get(period) ?? 0) + 1);
  const [newest, oldest] = [found[0]?.period ?? 0, found.at(-1)?.period ?? 0];
  // From the newest backwards: a chart of a hundred years would show nothing.
  const first = Math.max(oldest, periodOf(newest - BARS_MAX * 32 * 86_400_000, unit));
  const starts: number[] = [];
  for (let start = first; start <= newest; start = nextPeriod(start, unit)) starts.push(start);
  const all = starts.slice(-BARS_MAX);
  return all.map((start) => {
    const value = counts.get(start) ?? 0;
    return { period: start, label: formatDay(start), value, title: texts.timeline.bar(namePeriod(start, unit), value) };
  });
}

function withPeriods(found: readonly Dated[]): (Dated | Heading)[] {
  const rows: (Dated | Heading)[] = [];
  const counts = new Map<number, number>();
  for (const { period } of found) counts.set(period, (counts.get(period) ?? 0) + 1);
  let last: number | null = null;
  for (const dated of found) {
    if (dated.period !== last) rows.push({ period: dated.period, count: counts.get(dated.period) ?? 0 });
    last = dated.period;
    rows.push(dated);
  }
  return rows;
}
