// A file of all memories: in plain text, or as a sealed archive of the account.

import type { Context } from "../context.ts";
import { breathe, button, field, h, prose, select } from "../dom.ts";
import type { Memory } from "../records.ts";
import { announce, attempt, showError } from "../shell.ts";
import { texts } from "../texts.ts";

const WRITTEN_AT_ONCE = 500;

/** Returns the form that writes the file. */
export function exportForm(context: Context): HTMLElement {
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
