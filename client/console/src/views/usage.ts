// What the account uses, what was done over time as its receipts say, and a file of its memories.

import type { Receipt } from "../access.ts";
import type { Context } from "../context.ts";
import { breathe, button, field, fill, h, prose, select, type Child } from "../dom.ts";
import { formatDay } from "../format.ts";
import { barChart } from "../parts.ts";
import type { Memory, Usage } from "../records.ts";
import { announce, attempt, showError } from "../shell.ts";
import { texts } from "../texts.ts";
import { periodOf } from "./timeline.ts";

const STORED = new Set(["remember", "analyze", "restore", "import"]);
const ERASED = new Set(["forget", "expire"]);
const CHANGED = new Set(["edit", "state", "consolidate"]);
const WRITTEN_AT_ONCE = 500;

export function usageView(context: Context): HTMLElement {
  const t = texts.usage;
  const now = h("div", {}, h("p", { class: "hint" }, texts.loading));
  void attempt(async () => fill(now, numbers(await context.access.usage())));
  return h(
    "div",
    {},
    h("h1", {}, t.title),
    h("section", {}, h("h2", {}, t.now), now),
    context.access.isOwner ? overTime(context) : null,
    exportForm(context),
  );
}

function numbers(usage: Usage): HTMLElement {
  const t = texts.usage;
  const max = usage.storage_bytes_max;
  const used = usage.storage_bytes + usage.index_bytes;
  const left = (name: string): Child => {
    const value = (usage.requests as Readonly<Record<string, unknown>>)[name];
    return typeof value === "number" ? value.toLocaleString(texts.language) : t.unlimited;
  };
  const inForce = usage.memory_count - usage.superseded_count - usage.pending_count - usage.rejected_count;
  const rows: [string, Child][] = [
    [t.memories, inForce.toLocaleString(texts.language)],
    [t.revisions, usage.revision_count],
    [t.superseded, usage.superseded_count],
    [t.pending, usage.pending_count],
    [t.rejected, usage.rejected_count],
    [t.texts, t.bytes(usage.storage_bytes)],
    [t.index, t.bytes(usage.index_bytes)],
    [t.room, max ? [h("meter", { min: 0, max, value: used, "aria-label": t.room }), ` ${t.roomOf(t.bytes(used), t.bytes(max))}`] : t.unlimited],
    [t.minuteLeft, left("minute_left")],
    [t.hourLeft, left("hour_left")],
    [t.extractor, usage.extraction.extractor],
  ];
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function overTime(context: Context): HTMLElement {
  const t = texts.usage;
  const found = h("div", { role: "status" });
  const count = async (): Promise<void> => {
    const receipts = await context.access.receipts((done, total) => {
      found.textContent = texts.detail.verifying(done, total);
    });
    fill(found, weeks(receipts));
  };
  return h(
    "section",
    {},
    h("h2", {}, t.over),
    h("p", { class: "hint" }, t.overLead),
    button(t.overDo, () => attempt(count)),
    found,
  );
}

interface Week {
  stored: number;
  changed: number;
  erased: number;
}

function weeks(receipts: readonly Receipt[]): HTMLElement[] {
  const t = texts.usage;
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
  const bars = rows.map(([start, week]) => ({
    label: formatDay(start),
    value: week.stored + week.changed + week.erased,
    title: `${formatDay(start)}: ${week.stored + week.changed + week.erased}`,
  }));
  return [
    barChart(bars, t.overChart),
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, t.overColumns.map((name) => h("th", { scope: "col" }, name)))),
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

function exportForm(context: Context): HTMLElement {
  const t = texts.usage;
  const formats = { ...t.exportFormats, ...(context.access.isOwner ? t.exportSealedFormats : {}) };
  const format = select(Object.entries(formats), "json");
  const progress = h("p", { class: "hint", role: "status" });
  const write = async (): Promise<void> => {
    if (format.value === "archive") return writeArchive(context, progress);
    await context.store.load();
    if (context.store.isEnded) return;
    const memories = context.store.memories;
    const isJson = format.value === "json";
    const parts: string[] = [];
    for (let at = 0; at < memories.length; at += WRITTEN_AT_ONCE) {
      const some = memories.slice(at, at + WRITTEN_AT_ONCE);
      parts.push(some.map(isJson ? (one) => `${JSON.stringify(one)}\n` : toMarkdown).join(""));
      await breathe();
    }
    save(new Blob(parts, { type: "application/octet-stream" }), isJson ? "memories.jsonl" : "memories.md");
    announce(t.exported(memories.length));
  };
  return h(
    "section",
    { class: "card" },
    h("h2", {}, t.exportTitle),
    h("p", { class: "hint" }, prose(t.exportLead)),
    field(t.exportFormat, format),
    progress,
    h("div", { class: "buttons" }, button(t.exportDo, () => attempt(write), { class: "primary" })),
  );
}

async function writeArchive(context: Context, progress: HTMLElement): Promise<void> {
  const t = texts.usage;
  try {
    const archive = await context.access.archive((memories) => {
      progress.textContent = t.exporting(memories);
    });
    if (context.store.isEnded) return;
    save(new Blob([...archive.parts], { type: "application/octet-stream" }), "memrelay.archive");
    announce(t.exportedArchive(archive.memories));
    if (archive.missing) showError(t.exportMissing(archive.missing));
  } finally {
    progress.textContent = "";
  }
}

function toMarkdown(memory: Memory): string {
  const facts = [memory.created_at, memory.namespace, memory.kind, ...memory.tags.map((tag) => `#${tag}`)];
  return `## ${facts.join(" · ")}\n\n${memory.text}\n\n`;
}

function save(file: Blob, name: string): void {
  const address = URL.createObjectURL(file);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
