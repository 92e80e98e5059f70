// A list of any length, of which only what is seen is in the document.
//
// - Every row has the same height, which the style sheet gives: where a row stands is a product.
// - A browser lets an element be some ten million pixels high; 10,000 rows need less than one.
// - For a screen reader each row says its place and how many there are. Arrow keys go from row to
//   row, Home and End to the ends.

import { h } from "./dom.ts";

const SPARE_ROWS = 6;

export interface VirtualList<T> {
  readonly element: HTMLElement;
  /** Shows these items in place of the earlier ones; the place is kept unless `fromTop`. */
  show(items: readonly T[], fromTop?: boolean): void;
  /** Scrolls so that an item is the first one seen. */
  reveal(index: number): void;
}

export interface RowOptions<T> {
  readonly label: string;
  readonly rowHeight: number;
  readonly row: (item: T) => HTMLElement;
  /** Asked for more when the end comes near. */
  readonly nearEnd?: () => void;
}

/** Makes a list; `row` makes the one element of an item that takes the focus. */
export function virtualList<T>(options: RowOptions<T>): VirtualList<T> {
  let items: readonly T[] = [];
  const shown = new Map<number, HTMLElement>();
  const list = h("ul", { class: "virtual-rows", "aria-label": options.label, role: "list" });
  const element = h("div", { class: "virtual", scroll: () => draw() }, list);

  const draw = (): void => {
    const height = element.clientHeight || 600;
    const first = Math.max(0, Math.floor(element.scrollTop / options.rowHeight) - SPARE_ROWS);
    const last = Math.min(items.length, Math.ceil((element.scrollTop + height) / options.rowHeight) + SPARE_ROWS);
    for (const [index, row] of shown) {
      // The row with the focus stays: a keyboard would be lost with it.
      if ((index < first || index >= last) && !row.contains(document.activeElement)) {
        row.remove();
        shown.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      if (!shown.has(index)) place(index);
    }
    if (last > items.length - 2 * SPARE_ROWS) options.nearEnd?.();
  };

  const place = (index: number): void => {
    const item = items[index];
    if (item === undefined) return;
    const row = h("li", { "aria-setsize": items.length, "aria-posinset": index + 1 }, options.row(item));
    row.style.transform = `translateY(${index * options.rowHeight}px)`;
    row.dataset["index"] = String(index);
    // In the order of the list, so that a tab goes down and not to what was drawn first.
    const next = [...shown.keys()].filter((other) => other > index).sort((a, b) => a - b)[0];
    list.insertBefore(row, next === undefined ? null : (shown.get(next) ?? null));
    shown.set(index, row);
  };

  const goTo = (index: number): void => {
    const target = Math.max(0, Math.min(items.length - 1, index));
    const top = target * options.rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + options.rowHeight > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + options.rowHeight - element.clientHeight;
    }
    draw();
    shown.get(target)?.querySelector<HTMLElement>("a, button")?.focus({ preventScroll: true });
  };

  element.addEventListener("keydown", (event) => {
    const row = (event.target as HTMLElement).closest<HTMLElement>("li[data-index]");
    if (!row) return;
    const index = Number(row.dataset["index"]);
    const page = Math.max(1, Math.floor(element.clientHeight / options.rowHeight) - 1);
    const targets: Record<string, number> = {
      ArrowDown: index + 1,
      ArrowUp: index - 1,
      PageDown: index + page,
      PageUp: index - page,
      Home: 0,
      End: items.length - 1,
    };
    const target = targets[event.key];
    if (target === undefined) return;
    event.preventDefault();
    goTo(target);
  });

  new ResizeObserver(() => draw()).observe(element);

  return {
    element,
    reveal(index) {
      element.scrollTop = index * options.rowHeight;
      draw();
    },
    show(next, fromTop = false) {
      items = next;
      const focused = list.contains(document.activeElement) && !fromTop
        ? Number((document.activeElement as HTMLElement).closest<HTMLElement>("li")?.dataset["index"])
        : null;
      list.replaceChildren();
      shown.clear();
      list.style.height = `${items.length * options.rowHeight}px`;
      if (fromTop) element.scrollTop = 0;
      draw();
      if (focused !== null) shown.get(focused)?.querySelector<HTMLElement>("a, button")?.focus({ preventScroll: true });
    },
  };
}
