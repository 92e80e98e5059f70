// Parts that several views show: one memory as a row, its marks, a chart of bars.

import { h, svg } from "./dom.ts";
import { formatTime, marksOf, writerOf } from "./format.ts";
import type { Memory } from "./records.ts";

export const ROW_HEIGHT = 76; // in pixels, as the style sheet has it

/** Returns a memory as one row, which leads to it. */
export function memoryRow(memory: Memory, own: string): HTMLElement {
  return h(
    "a",
    { class: "row", href: `#/memory/${memory.id}` },
    h("span", { class: "row-text" }, memory.text.slice(0, 400)),
    h(
      "span",
      { class: "row-facts" },
      h("span", {}, formatTime(memory.created_at)),
      h("span", {}, memory.namespace),
      h("span", {}, memory.kind),
      h("span", {}, writerOf(memory, own)),
      marks(memory),
    ),
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
export function barChart(bars: readonly Bar[], label: string): HTMLElement {
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
      rx: 2,
    });
    return svg("g", {}, rect, svg("title", {}, bar.title));
  });
  const image = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `${label}: ${bars.filter((bar) => bar.value > 0).map((bar) => bar.title).slice(0, 60).join("; ")}`,
    },
    drawn,
  );
  const ends = [bars[0]?.label ?? "", bars.length > 1 ? (bars.at(-1)?.label ?? "") : ""];
  return h(
    "div",
    { class: "chart" },
    image,
    h("div", { class: "chart-ends", "aria-hidden": "true" }, ends.map((end) => h("span", {}, end))),
  );
}
