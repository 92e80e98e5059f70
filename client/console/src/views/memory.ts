// One memory: what it says, what is known of it, its history, its receipts, and what changes it.

import { NAMESPACES_MAX, type Receipt, type StateChanges } from "../access.ts";
import type { Context } from "../context.ts";
import { difference } from "../differences.ts";
import { button, field, fill, h, type Child } from "../dom.ts";
import { formatTime, formatUtcDay, shorten } from "../format.ts";
import { marks, tags } from "../parts.ts";
import type { History, Memory } from "../records.ts";
import { announce, ask, attempt } from "../shell.ts";
import { texts } from "../texts.ts";
import { splitTags } from "./adding.ts";

export function memoryView(context: Context, id: string): HTMLElement {
  const body = h("div", {}, h("p", { class: "hint" }, texts.loading));
  const show = async (): Promise<void> => {
    const place = context.store.namespaceOf(id) ?? (await findPlace(context, id));
    const [memory, history] = await Promise.all([
      context.access.get(id, place),
      context.access.history(id, place),
      context.store.learnNames(),
    ]);
    context.store.put(memory);
    fill(body, new MemoryPage(context, memory, history, show).parts());
  };
  void attempt(show);
  return h("div", {}, h("p", {}, h("a", { href: "#/memories", click: goBack }, `← ${texts.detail.back}`)), body);
}

/** Returns the namespace of a memory that was opened by its address; undefined where all keys fit into one request. */
async function findPlace({ access, store }: Context, id: string): Promise<string | undefined> {
  if ((await access.namespaces()).length <= NAMESPACES_MAX) return undefined;
  await store.load();
  return store.namespaceOf(id);
}

function goBack(event: Event): void {
  if (history.length < 2) return;
  event.preventDefault();
  history.back();
}

class MemoryPage {
  readonly #t = texts.detail;

  constructor(
    readonly context: Context,
    readonly memory: Memory,
    readonly history: History,
    readonly refresh: () => Promise<void>,
  ) {}

  parts(): HTMLElement[] {
    return [
      h("h1", { class: "memory-title" }, texts.memory, " ", marks(this.memory)),
      h("blockquote", { class: "memory-text" }, this.memory.text),
      this.#actions(),
      this.#facts(),
      this.#history(),
      this.#links(),
      this.#receipts(),
    ].filter((part) => part !== null);
  }

  #actions(): HTMLElement {
    const { memory, context } = this;
    const t = this.#t;
    if (!context.access.canWrite) return h("p", { class: "hint" }, t.readsOnly);
    const set = (text: string, changes: StateChanges, look = ""): HTMLElement =>
      button(text, () => attempt(async () => this.#done(await context.access.setState(memory.id, changes))), { class: look });
    const states: Readonly<Record<string, readonly HTMLElement[]>> = {
      pending_review: [
        set(texts.review.approve, { review: "approved" }, "primary"),
        set(texts.review.reject, { review: "rejected" }),
      ],
      rejected: [set(t.approve, { review: "approved" }, "primary")],
      superseded: [set(t.reinstate, { superseded_by: null }, "primary")],
    };
    return h(
      "div",
      { class: "buttons", role: "group", "aria-label": t.actions },
      states[memory.state] ?? null,
      button(t.correct, () => this.#correct()),
      set(memory.pinned ? t.unpin : t.pin, { pinned: !memory.pinned }),
      button(t.expire, () => this.#expire()),
      button(t.forget, () => this.#forget(), { class: "danger" }),
    );
  }

  async #done(receipt: Receipt | null): Promise<void> {
    await this.refresh();
    announce(receipt ? `${this.#t.saved} ${this.#t.receiptSigned(receipt.seq)}` : this.#t.unchanged);
  }

  async #correct(): Promise<void> {
    const t = this.#t;
    const text = h("textarea", { rows: 8, maxlength: 1_000_000 }, this.memory.text);
    const tagged = h("input", { type: "text", value: this.memory.tags.join(", "), autocomplete: "off" });
    let receipt: Receipt | null | undefined;
    await ask({
      title: t.correctTitle,
      body: [h("p", { class: "hint" }, t.correctHelp), field(t.text, text), field(t.tags, tagged, texts.adding.tagsHelp)],
      confirm: t.save,
      act: async () => {
        const named = splitTags(tagged.value);
        receipt = await this.context.access.edit(this.memory, {
          revision: this.memory.revision,
          ...(text.value === this.memory.text ? {} : { text: text.value }),
          ...(named.join("\n") === this.memory.tags.join("\n") ? {} : { tags: named }),
        });
      },
    });
    if (receipt !== undefined) await attempt(() => this.#done(receipt ?? null));
  }

  async #expire(): Promise<void> {
    const t = this.#t;
    const time = h("input", { type: "datetime-local", value: toLocal(this.memory.expires_at) });
    const never = h("input", { type: "checkbox" });
    let receipt: Receipt | null | undefined;
    await ask({
      title: t.expireTitle,
      body: [
        h("p", { class: "hint" }, t.expireHelp),
        field(t.expireLabel, time),
        h("label", { class: "check" }, never, " ", t.expireNever),
      ],
      confirm: t.save,
      act: async () => {
        const expires = never.checked || !time.value ? null : new Date(time.value).toISOString();
        receipt = await this.context.access.edit(this.memory, { expires_at: expires });
      },
    });
    if (receipt !== undefined) await attempt(() => this.#done(receipt ?? null));
  }

  async #forget(): Promise<void> {
    const t = this.#t;
    let receipt: Receipt | null | undefined;
    await ask({
      title: t.forgetTitle,
      body: [h("blockquote", {}, this.memory.text.slice(0, 400)), h("p", {}, t.forgetSure)],
      confirm: t.forget,
      isDangerous: true,
      act: async () => {
        receipt = await this.context.access.forget(this.memory.id);
      },
    });
    if (receipt === undefined) return;
    const erased = new Set([this.memory.id, ...(receipt?.ids ?? [])]);
    this.context.store.remove(erased);
    announce(receipt ? `${t.forgotten} ${t.receiptSigned(receipt.seq)}` : t.forgotten);
    location.hash = "#/memories";
  }

  #facts(): HTMLElement {
    const { memory } = this;
    const t = this.#t;
    const rows: [string, Child][] = [
      [t.namespace, memory.namespace],
      [t.kind, memory.kind],
      [t.state, texts.states[memory.state] ?? memory.state],
      [t.tags, memory.tags.length ? tags(memory) : texts.none],
      [t.source, memory.source],
      [t.eventTime, memory.event_time && formatTime(memory.event_time)],
      [t.created, formatTime(memory.created_at)],
      [t.updated, memory.updated_at === memory.created_at ? null : formatTime(memory.updated_at)],
      [t.expires, formatTime(memory.expires_at, texts.never)],
      [t.writer, this.#writer()],
      [t.importance, memory.importance],
      [t.confidence, memory.confidence],
      [t.seen, t.seenTimes(memory.seen_count)],
      [t.revision, memory.revision],
      [t.id, h("code", {}, memory.id)],
    ];
    const { recall_count: recalls } = memory; // where the account counts them
    if (recalls !== undefined) rows.splice(-2, 0, [t.recalled, t.recalledTimes(recalls, memory.last_recalled_on ? formatUtcDay(memory.last_recalled_on) : "")]);
    if (memory.superseded_by) rows.splice(3, 0, [t.supersededBy, linkTo(memory.superseded_by)]);
    const known = rows.filter(([, value]) => value !== null && value !== undefined);
    for (const [name, value] of Object.entries(memory.metadata)) known.push([name, value]);
    return h(
      "section",
      {},
      h("h2", {}, t.facts),
      h("dl", { class: "facts" }, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    );
  }

  #writer(): Child {
    const { memory } = this;
    return [this.context.store.writerOf(memory), " ", code(memory.writer)];
  }

  #history(): HTMLElement {
    const t = this.#t;
    const revisions = this.history.revisions;
    const entries = revisions.map((revision, at) => {
      const before = revisions[at + 1];
      return h(
        "li",
        { class: "card" },
        h(
          "p",
          { class: "row-facts" },
          h("strong", {}, t.historyRevision(revision.revision)),
          h("span", {}, formatTime(revision.updated_at)),
          h("span", {}, this.context.store.writerOf(revision)),
        ),
        h("p", { class: "revision" }, before ? difference(before.text, revision.text) : revision.text),
      );
    });
    return h(
      "section",
      {},
      h("h2", {}, t.history),
      revisions.length < 2 ? h("p", { class: "hint" }, t.historyOnly) : h("ol", { class: "plain" }, entries),
    );
  }

  #links(): HTMLElement | null {
    const links = this.history.links;
    if (links.length === 0) return null;
    return h(
      "section",
      {},
      h("h2", {}, this.#t.links),
      h(
        "ul",
        {},
        links.map((link) =>
          h("li", {}, linkTo(link.memory_id), ` ${this.#t.relation[link.relation] ?? link.relation} `, linkTo(link.other_id)),
        ),
      ),
    );
  }

  #receipts(): HTMLElement {
    const t = this.#t;
    const found = h("div", { role: "status" });
    const verify = async (): Promise<void> => {
      const all = await this.context.access.receipts((done, total) => {
        found.textContent = t.verifying(done, total);
      });
      const own = all.filter((receipt) => receipt.ids.includes(this.memory.id));
      fill(found, h("p", { class: "well" }, t.verified(own.length, all.length)), this.#receiptTable(own));
    };
    const { isOwner } = this.context.access;
    return h(
      "section",
      {},
      h("h2", {}, t.receipts),
      h("p", { class: "hint" }, isOwner ? t.receiptsLead : t.verifyOwner),
      isOwner ? button(t.verify, () => attempt(verify)) : null,
      found,
    );
  }

  #receiptTable(receipts: readonly Receipt[]): HTMLElement {
    return h(
      "table",
      {},
      h("thead", {}, h("tr", {}, this.#t.receiptColumns.map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        {},
        receipts.map((receipt) =>
          h(
            "tr",
            {},
            h("td", { class: "number" }, receipt.seq),
            h("td", {}, formatTime(receipt.time)),
            h("td", {}, texts.ops[receipt.op] ?? receipt.op),
            h("td", {}, this.context.store.nameOf(receipt.actor)),
          ),
        ),
      ),
    );
  }
}

function code(id: string): HTMLElement {
  return h("code", { title: id }, shorten(id));
}

function linkTo(id: string): HTMLElement {
  return h("a", { href: `#/memory/${id}` }, h("code", {}, shorten(id)));
}

function toLocal(time: string | null): string {
  if (time === null) return "";
  const moment = new Date(time);
  return new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
