// The account's chain of receipts, verified in this browser: what was done by week, and the newest of it.

import type { Receipt } from "../access.ts";
import type { Context } from "../context.ts";
import { button, fill, h } from "../dom.ts";
import { formatDay, formatTime, shorten } from "../format.ts";
import { barChart } from "../parts.ts";
import { lastPeriods, periodOf } from "../periods.ts";
import { attempt } from "../shell.ts";
import type { Store } from "../store.ts";
import { texts } from "../texts.ts";

const STORED = new Set(["remember", "analyze", "restore", "import"]);
const ERASED = new Set(["forget", "expire"]);
const CHANGED = new Set(["edit", "state", "consolidate"]);
const LEADING = new Set([...STORED, ...CHANGED, "reseal"]); // to memories that are still there
const WEEKS_MIN = 12;
const WEEKS_MAX = 260;
const WEEK_MS = 7 * 86_400_000;
const NEWEST = 50;
const LINKS_MAX = 3;

/** Returns what verifies the receipts and shows them. */
export function receiptsSection({ access, store }: Context): HTMLElement {
  const t = texts.receipts;
  const progress = h("p", { role: "status" });
  const found = h("div");
  const verify = async (): Promise<void> => {
    fill(found);
    const receipts = await access.receipts((done, total) => {
      progress.textContent = texts.detail.verifying(done, total);
    });
    await store.learnNames();
    if (store.isEnded) return;
    fill(progress, h("span", { class: "well" }, t.verified(receipts.length)));
    fill(found, weeks(receipts), log(receipts.slice(-NEWEST).reverse(), store));
  };
  const failed = (): void => fill(progress);
  return h(
    "section",
    {},
    h("h2", {}, t.title),
    h("p", { class: "hint" }, t.lead),
    button(t.verify, () => attempt(() => verify().catch((error) => { failed(); throw error; }))),
    progress,
    found,
  );
}

function log(receipts: readonly Receipt[], store: Store): HTMLElement {
  const t = texts.receipts;
  const memories = (receipt: Receipt): (HTMLElement | string)[] => {
    if (ERASED.has(receipt.op)) return [texts.memories(receipt.ids.length)];
    if (!LEADING.has(receipt.op)) return [];
    const links: (HTMLElement | string)[] = receipt.ids
      .slice(0, LINKS_MAX)
      .map((id) => h("a", { href: `#/memory/${id}`, class: "id" }, h("code", {}, shorten(id))));
    return receipt.ids.length > LINKS_MAX ? [...links, t.more(receipt.ids.length - LINKS_MAX)] : links;
  };
  return h(
    "details",
    {},
    h("summary", {}, t.log(receipts.length)),
    h(
      "table",
      { class: "stack log" },
      h("thead", {}, h("tr", {}, t.columns.map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        {},
        receipts.map((receipt) =>
          h(
            "tr",
            {},
            h("th", { scope: "row", class: "number" }, receipt.seq),
            h("td", {}, formatTime(receipt.time)),
            h("td", {}, texts.ops[receipt.op] ?? receipt.op),
            h("td", {}, store.nameOf(receipt.actor)),
            h("td", {}, memories(receipt)),
          ),
        ),
      ),
    ),
  );
}

interface Week {
  stored: number;
  changed: number;
  erased: number;
}

function weeks(receipts: readonly Receipt[]): HTMLElement[] {
  const t = texts.receipts;
  const counts = new Map<number, Week>();
  for (const receipt of receipts) {
    const start = periodOf(receipt.time, "week");
    const week = counts.get(start) ?? { stored: 0, changed: 0, erased: 0 };
    if (STORED.has(receipt.op)) week.stored += receipt.ids.length;
    if (CHANGED.has(receipt.op)) week.changed += receipt.ids.length;
    if (ERASED.has(receipt.op)) week.erased += receipt.ids.length;
    counts.set(start, week);
  }
  const rows = [...counts].sort(([a], [b]) => a - b);
  const now = Date.now();
  const weeksSince = Math.ceil((now - (rows[0]?.[0] ?? now)) / WEEK_MS) + 1;
  const bars = lastPeriods("week", Math.min(WEEKS_MAX, Math.max(WEEKS_MIN, weeksSince)), now).map((start) => {
    const { stored = 0, changed = 0, erased = 0 } = counts.get(start) ?? {};
    const value = stored + changed + erased;
    return { label: formatDay(start), value, title: t.bar(formatDay(start), value) };
  });
  return [
    barChart(bars, t.chart),
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, t.weekColumns.map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        {},
        rows.reverse().map(([start, week]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, formatDay(start)),
            [week.stored, week.changed, week.erased].map((n) => h("td", { class: "number" }, n)),
          ),
        ),
      ),
    ),
  ];
}

