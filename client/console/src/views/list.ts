// All memories, newest first, with what narrows them; filters work on what is loaded.

import type { Context } from "../context.ts";
import { button, field, fill, h, select } from "../dom.ts";
import { writerOf } from "../format.ts";
import { ROW_HEIGHT, memoryRow } from "../parts.ts";
import type { Memory } from "../records.ts";
import { attempt } from "../shell.ts";
import { texts } from "../texts.ts";
import { virtualList } from "../virtual_list.ts";

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
): { element: HTMLElement; offer: (memories: readonly Memory[], own: string) => void } {
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
  const offer = (memories: readonly Memory[], own: string): void => {
    const found: Partial<Record<keyof Filter, Map<string, string>>> = {
      namespace: new Map(),
      kind: new Map(),
      writer: new Map(),
      tag: new Map(),
    };
    for (const one of memories) {
      found.namespace?.set(one.namespace, one.namespace);
      found.kind?.set(one.kind, one.kind);
      if (!found.writer?.has(one.writer)) found.writer?.set(one.writer, writerOf(one, own));
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
  return { element: h("div", { class: "filters" }, names.map(make)), offer };
}

const kept: Filter = { text: "", namespace: "", state: "active", kind: "", writer: "", tag: "" };

/** Forgets what was typed into the filter. */
export function clearFilter(): void {
  Object.assign(kept, { text: "", namespace: "", state: "active", kind: "", writer: "", tag: "" });
}

export function listView(context: Context): HTMLElement {
  const t = texts.list;
  const { store, access } = context;
  const list = virtualList<Memory>({
    label: t.label,
    rowHeight: ROW_HEIGHT,
    row: (memory) => memoryRow(memory, access.publicKey),
  });
  const count = h("p", { class: "count", role: "status" });
  const draw = (fromTop: boolean): void => {
    const found = filterMemories(store.memories, kept);
    list.show(found, fromTop);
    count.textContent = store.isComplete && store.memories.length === 0
      ? t.empty
      : t.count(found.length, store.memories.length, store.isComplete);
  };
  const filters = filterFields(kept, ["text", "namespace", "state", "kind", "writer", "tag"], () => draw(true));
  const refresh = (): void => {
    filters.offer(store.memories, access.publicKey);
    draw(false);
  };
  context.onLeave(store.watch(refresh));
  const load = (): Promise<void> => attempt(() => store.load());
  const reload = button(t.reload, () => {
    store.reset();
    return load();
  });
  queueMicrotask(refresh);
  void load();
  return h(
    "div",
    { class: "full" },
    h("h1", {}, t.title),
    filters.element,
    h("div", { class: "bar" }, count, reload),
    list.element,
  );
}
