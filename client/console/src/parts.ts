// Parts that several views show: one memory as a row, its marks, a chart of bars, an empty account.

import type { Context } from "./context.ts";
import { button, h, prose, svg } from "./dom.ts";
import { formatTime, marksOf } from "./format.ts";
import type { Memory } from "./records.ts";
import { attempt } from "./shell.ts";
import type { Store } from "./store.ts";
import { texts } from "./texts.ts";
import { addMemory } from "./views/adding.ts";

export const ROW_HEIGHT = 76; // in pixels, as the style sheet has it
const ROW_TAGS_MAX = 4;

/** Returns a memory as one row, which leads to it; it shows when it was stored, or `time`. */
export function memoryRow(memory: Memory, store: Store, time: string | number = memory.created_at): HTMLElement {
  return h(
    "a",
    { class: "row", href: `#/memory/${memory.id}` },
    h("span", { class: "row-text" }, memory.text.slice(0, 400)),
    h(
      "span",
      { class: "row-facts" },
      marks(memory),
      h("span", {}, formatTime(time)),
      h("span", {}, memory.namespace),
      h("span", { class: "row-kind" }, memory.kind),
      h("span", {}, store.writerOf(memory)),
      tags(memory).slice(0, ROW_TAGS_MAX),
    ),
  );
}

/** Returns the tags of a memory, as small labels. */
export function tags(memory: Memory): HTMLElement[] {
  return memory.tags.map((tag) => h("span", { class: "tag" }, tag));
}

/** Returns what to do in an account that holds nothing yet. */
export function emptyAccount(context: Context): HTMLElement {
  const t = texts.emptyAccount;
  return h(
    "section",
    { class: "card empty" },
    h("h2", {}, t.title),
    h("p", {}, t.lead),
    h("ul", {}, t.ways.map((way) => h("li", {}, prose(way)))),
    context.access.canWrite
      ? h("div", { class: "buttons" }, button(texts.adding.open, () => attempt(() => addMemory(context)), { class: "primary" }))
      : null,
  );
}

/** Returns what is special about a memory, as small labels. */
export function marks(memory: Memory): HTMLElement[] {
  return marksOf(memory).map((mark) => h("span", { class: "mark" }, mark));
}

export interface Bar {
  readonly label: string;
  readonly value: number;
  readonly title: string;
}

/** Returns a chart of bars; its values stand in its title for whoever does not see it. */
export function barChart(bars: readonly Bar[], label: string, press?: (index: number) => void): HTMLElement {
  const [width, height] = [720, 140];
  const most = Math.max(1, ...bars.map((bar) => bar.value));
  const step = width / Math.max(1, bars.length);
  const drawn = bars.map((bar, index) => {
    const tall = bar.value === 0 ? 0 : Math.max(2, (bar.value / most) * (height - 8));
    const rect = svg("rect", {
      x: (index * step + Math.min(2, step / 8)).toFixed(2),
      y: (height - tall).toFixed(2),
      width: Math.max(0.5, step - Math.min(4, step / 4)).toFixed(2),
      height: tall.toFixed(2),
    });
    const whole = svg("rect", { class: "column", x: (index * step).toFixed(2), y: 0, width: step.toFixed(2), height });
    return svg("g", { click: press && bar.value ? () => press(index) : null }, whole, rect, svg("title", {}, bar.title));
  });
  const image = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      role: "img",
      class: press ? "pressed" : null,
      "aria-label": `${label}: ${bars.filter((bar) => bar.value > 0).map((bar) => bar.title).slice(0, 60).join("; ")}`,
    },
    drawn,
  );
  const ends = [bars[0]?.label ?? "", texts.atMost(most), bars.length > 1 ? (bars.at(-1)?.label ?? "") : ""];
  return h(
    "div",
    { class: "chart" },
    image,
    h("div", { class: "chart-ends", "aria-hidden": "true" }, ends.map((end) => h("span", {}, end))),
  );
}
