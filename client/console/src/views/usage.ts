// What the account holds and may use, what was done over time, and a file of its memories.

import type { Context } from "../context.ts";
import { fill, h, type Child } from "../dom.ts";
import type { Usage } from "../records.ts";
import { attempt } from "../shell.ts";
import { texts } from "../texts.ts";
import { activitySection, countInForce } from "./activity.ts";
import { exportForm } from "./export.ts";
import { receiptsSection } from "./receipts.ts";

export function usageView(context: Context): HTMLElement {
  const t = texts.usage;
  const { access } = context;
  const now = h("div", {}, h("p", { class: "hint" }, texts.loading));
  void attempt(async () => fill(now, numbers(await access.usage(), access.accountId)));
  return h(
    "div",
    {},
    h("h1", {}, t.title),
    h("section", {}, h("h2", {}, t.now), now),
    activitySection(context),
    access.isOwner ? receiptsSection(context) : null,
    exportForm(context),
  );
}

function numbers(usage: Usage, account: string): HTMLElement {
  const t = texts.usage;
  const max = usage.storage_bytes_max;
  const used = usage.storage_bytes + usage.index_bytes;
  const left = (name: string): Child => {
    const value = (usage.requests as Readonly<Record<string, unknown>>)[name];
    return typeof value === "number" ? value.toLocaleString(texts.language) : t.unlimited;
  };
  const rows: [string, Child][] = [
    [t.memories, countInForce(usage).toLocaleString(texts.language)],
    [t.revisions, usage.revision_count],
    [t.superseded, usage.superseded_count],
    [t.pending, usage.pending_count],
    [t.rejected, usage.rejected_count],
    [t.texts, t.bytes(usage.storage_bytes)],
    [t.index, t.bytes(usage.index_bytes)],
    [t.room, max ? [h("meter", { min: 0, max, value: used, "aria-label": t.room }), ` ${t.roomOf(t.bytes(used), t.bytes(max))}`] : t.unlimited],
    [t.minuteLeft, left("minute_left")],
    [t.hourLeft, left("hour_left")],
    [t.extractor, t.extractors[usage.extraction.extractor] ?? usage.extraction.extractor],
    [texts.account, h("code", {}, account)],
  ];
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

