// Stores a memory that somebody types.

import type { Remembered } from "../access.ts";
import type { Context } from "../context.ts";
import { field, h, newId } from "../dom.ts";
import { announce, ask } from "../shell.ts";
import { texts } from "../texts.ts";

const TEXT_CHARACTERS_MAX = 100_000;
const NAMESPACES_OFFERED_MAX = 200;

/** Asks for a text, stores it, and shows it among the others. */
export async function addMemory({ access, store }: Context): Promise<void> {
  const t = texts.adding;
  const names = (await access.namespaces()).map((one) => one.name);
  const text = h("textarea", { rows: 5, maxlength: TEXT_CHARACTERS_MAX, required: true });
  const list = newId("namespaces");
  const namespace = h("input", { type: "text", list, value: names.length === 1 ? names[0] : access.namespace, autocomplete: "off" });
  const tags = h("input", { type: "text", autocomplete: "off" });
  let stored: Remembered | undefined;
  await ask({
    title: t.title,
    body: [
      field(t.text, text, t.textHelp),
      field(t.namespace, namespace, t.namespaceHelp),
      h("datalist", { id: list }, names.slice(0, NAMESPACES_OFFERED_MAX).map((name) => h("option", { value: name }))),
      field(t.tags, tags, t.tagsHelp),
    ],
    confirm: t.store,
    act: async () => {
      const said = text.value.trim();
      if (!said) throw new Error(t.nothing);
      stored = await access.remember(said, namespace.value.trim(), splitTags(tags.value));
    },
  });
  if (stored === undefined) return;
  const { id, namespace: place, receipt, redacted } = stored as Remembered;
  store.insert(await access.get(id, place));
  const told = receipt ? `${t.stored} ${texts.detail.receiptSigned(receipt.seq)}` : t.known;
  announce(redacted ? `${told} ${t.redacted(redacted)}` : told);
  location.hash = `#/memory/${id}`;
}

/** Returns the tags that somebody typed between commas. */
export function splitTags(typed: string): string[] {
  return typed.split(",").map((tag) => tag.trim()).filter(Boolean);
}
