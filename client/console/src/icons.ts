// Small drawings beside the names of the views. They say nothing that the names do not.

import { svg } from "./dom.ts";
import type { texts } from "./texts.ts";

/** Lines on a field of 24 by 24. */
const PATHS: Readonly<Record<keyof typeof texts.views, string>> = {
  search: "M10.5 4a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13 M15.5 15.5L20 20",
  memories: "M5 6h14 M5 12h14 M5 18h9",
  timeline: "M4 20h16 M7 20v-6 M12 20V5 M17 20v-9",
  review: "M12 4v16 M8 20h8 M5 8l7-2l7 2 M5 8l-2 6h4z M19 8l-2 6h4z",
  keys: "M8 11.5a4 4 0 1 0 0 8a4 4 0 0 0 0-8 M11 12.5L19 4.5 M15.5 8l3 3",
  usage: "M4 17a8 8 0 1 1 16 0 M12 17l4-5",
};

/** Returns the drawing of a view. */
export function icon(name: keyof typeof texts.views): SVGElement {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, svg("path", { d: PATHS[name] }));
}
