// All memories, newest first, with what narrows them; filters work on what is loaded.

import type { Context } from "../context.ts";
import { button, field, fill, h, newId, select } from "../dom.ts";
import type { Store } from "../store.ts";
import { ROW_HEIGHT, emptyAccount, memoryRow } from "../parts.ts";
import type { Memory } from "../records.ts";
import { attempt } from "../shell.ts";
import { texts } from "../texts.ts";
import { virtualList } from "../virtual_list.ts";
import { addMemory } from "./adding.ts";

export interface Filter {
  text: string;
  namespace: string;
  state: string;
  kind: string;
  writer: string;
  tag: string;
}

/** Returns the memories that a filter lets through; an empty member lets all through. */
export function filterMemories(memories: readonly Memory[], filter: Filter): Memory[] {
  const words = filter.text.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  return memories.filter(
    (one) =>
      (!filter.namespace || one.namespace === filter.namespace) &&
      (!filter.state || filter.state === "all" || one.state === filter.state) &&
      (!filter.kind || one.kind === filter.kind) &&
      (!filter.writer || one.writer === filter.writer) &&
      (!filter.tag || one.tags.includes(filter.tag)) &&
      (words.length === 0 || hasWords(one, words)),
  );
}

function hasWords(memory: Memory, words: readonly string[]): boolean {
  const text = memory.text.toLocaleLowerCase();
  return words.every((word) => text.includes(word));
}

/** Makes the fields of a filter; `changed` is told after each change. */
export function filterFields(
  filter: Filter,
  names: readonly (keyof Filter)[],
  changed: () => void,
): { element: HTMLElement; choices: HTMLElement; offer: (store: Store) => void } {
  const t = texts.list;
  const lists: Partial<Record<keyof Filter, HTMLSelectElement>> = {};
  const make = (name: keyof Filter): HTMLElement => {
    if (name === "text") {
      const input = h("input", { type: "search", autocomplete: "off", spellcheck: "false", value: filter.text });
      input.addEventListener("input", () => {
        filter.text = input.value;
        changed();
      });
      return field(t.filter, input);
    }
    const states = ["active", "pending_review", "rejected", "superseded", "all"];
    const options: [string, string][] =
      name === "state" ? states.map((state) => [state, texts.states[state] ?? state]) : [["", t.any]];
    const list = select(options, filter[name], (value) => {
      filter[name] = value;
      changed();
    });
    lists[name] = list;
    return field({ namespace: t.namespace, state: t.state, kind: t.kind, writer: t.agent, tag: t.tag }[name], list);
  };
  const offer = (store: Store): void => {
    const found: Partial<Record<keyof Filter, Map<string, string>>> = {
      namespace: new Map(),
      kind: new Map(),
      writer: new Map(),
      tag: new Map(),
    };
    for (const one of store.memories) {
      found.namespace?.set(one.namespace, one.namespace);
      found.kind?.set(one.kind, one.kind);
      if (!found.writer?.has(one.writer)) found.writer?.set(one.writer, store.writerOf(one));
      for (const tag of one.tags) found.tag?.set(tag, tag);
    }
    for (const [name, list] of Object.entries(lists) as [keyof Filter, HTMLSelectElement][]) {
      const values = found[name];
      if (!values || values.size === list.options.length - 1) continue;
      const sorted = [...values].sort((a, b) => a[1].localeCompare(b[1]));
      fill(
        list,
        h("option", { value: "" }, t.any),
        sorted.map(([value, text]) => h("option", { value, selected: value === filter[name] }, text)),
      );
    }
  };
  const choices = h("div", { class: "choices", id: newId("choices") }, names.filter((name) => name !== "text").map(make));
  const toggle = h("button", { type: "button", "aria-expanded": "false", "aria-controls": choices.id }, t.filters);
  const element = h("div", { class: "filters" }, names.includes("text") ? make("text") : null, toggle, choices);
  // A phone's screen is full of them: there they are shown when they are wanted.
  toggle.addEventListener("click", () => {
    toggle.setAttribute("aria-expanded", String(element.classList.toggle("open")));
  });
  return { element, choices, offer };
}

/** Returns a filter that lets all memories in force through. */
export function newFilter(): Filter {
  return { text: "", namespace: "", state: "active", kind: "", writer: "", tag: "" };
}

const kept = newFilter();
let keptTop = 0; // how far the list was scrolled

/** Shows the memories that a filter lets through. */
export function showFiltered(changes: Partial<Filter>): void {
  clearFilter();
  Object.assign(kept, changes);
  location.hash = "#/memories";
}

/** Forgets what was typed into the filter, and where the list stood. */
export function clearFilter(): void {
  Object.assign(kept, newFilter());
  keptTop = 0;
}

export function listView(context: Context): HTMLElement {
  const t = texts.list;
  const { store, access } = context;
  const list = virtualList<Memory>({ label: t.label, rowHeight: ROW_HEIGHT, row: (memory) => memoryRow(memory, store) });
  const count = h("p", { class: "count", role: "status" });
  const empty = h("div");
  const clear = button(t.clear, () => {
    clearFilter();
    fill(filtering, ...makeFilters());
    draw(true);
    filtering.querySelector("input")?.focus();
  });
  const draw = (fromTop: boolean): void => {
    const found = filterMemories(store.memories, kept);
    const isEmpty = store.isComplete && store.memories.length === 0;
    list.show(found, fromTop);
    list.element.hidden = found.length === 0;
    filtering.hidden = bar.hidden = isEmpty;
    clear.hidden = JSON.stringify(kept) === JSON.stringify(newFilter());
    count.textContent = isEmpty ? "" : t.count(found.length, store.memories.length, store.isComplete);
    if (isEmpty) fill(empty, emptyAccount(context));
    else fill(empty, found.length === 0 && h("p", { class: "hint" }, store.isComplete ? t.nothing : texts.loading));
  };
  const names = ["text", "namespace", "state", "kind", "writer", "tag"] as const;
  let filters = filterFields(kept, names, () => draw(true));
  const makeFilters = (): HTMLElement[] => {
    filters = filterFields(kept, names, () => draw(true));
    filters.offer(store);
    return [filters.element];
  };
  const filtering = h("div", {}, filters.element);
  const refresh = (): void => {
    filters.offer(store);
    draw(false);
  };
  context.onLeave(store.watch(refresh));
  context.onLeave(() => {
    keptTop = list.element.scrollTop;
  });
  const load = (): Promise<void> => attempt(() => store.load());
  const reload = button(t.reload, () => {
    store.reset();
    return load();
  });
  const add = access.canWrite ? button(texts.adding.open, () => attempt(() => addMemory(context)), { class: "primary" }) : null;
  const bar = h("div", { class: "bar" }, count, h("div", { class: "buttons" }, clear, reload, add));
  const top = keptTop;
  queueMicrotask(() => {
    refresh();
    list.element.scrollTop = top;
  });
  void load();
  return h(
    "div",
    { class: "full" },
    h("h1", {}, t.title),
    filtering,
    bar,
    empty,
    list.element,
  );
}
