// What waits for a decision: doubtful facts, and contradictions side by side.

import type { Context } from "../context.ts";
import { button, fill, h } from "../dom.ts";
import { formatTime, writerOf } from "../format.ts";
import type { Doubt, Memory } from "../records.ts";
import { announce, attempt } from "../shell.ts";
import { texts } from "../texts.ts";

export function reviewView(context: Context): HTMLElement {
  const t = texts.review;
  const list = h("div", { class: "doubts" }, h("p", { class: "hint" }, texts.loading));
  const more = h("div", { class: "bar" });

  const load = async (cursor: string | null): Promise<void> => {
    const page = await context.access.review(cursor);
    if (cursor === null) fill(list);
    context.store.note(page.memories.flatMap((doubt) => [doubt, ...doubt.others]));
    list.append(...page.memories.map((doubt) => doubtCard(context, doubt)));
    if (!list.hasChildNodes()) fill(list, h("p", { class: "hint" }, t.empty));
    fill(more, page.next_cursor ? button(t.more, () => attempt(() => load(page.next_cursor))) : null);
  };
  void attempt(() => load(null));
  return h("div", {}, h("h1", {}, t.title), h("p", { class: "hint" }, t.lead), list, more);
}

function doubtCard(context: Context, doubt: Doubt): HTMLElement {
  const t = texts.review;
  const own = context.access.publicKey;
  const isContradiction = doubt.others.length > 0;
  const card = h("article", { class: "card doubt", "aria-label": doubt.text.slice(0, 80) });
  const decide = (...steps: (() => Promise<unknown>)[]) =>
    attempt(async () => {
      for (const step of steps) await step();
      const next = card.nextElementSibling ?? card.previousElementSibling;
      card.remove();
      announce(t.decided);
      const list = document.querySelector(".doubts");
      if (next instanceof HTMLElement) next.querySelector("button")?.focus();
      else if (list) fill(list, h("p", { class: "hint" }, t.empty));
      context.store.reset();
    });
  const { access } = context;
  const approve = () => access.setState(doubt.id, { review: "approved" });
  const reject = () => access.setState(doubt.id, { review: "rejected" });
  const supersede = doubt.others.map((other) => () => access.setState(other.id, { superseded_by: doubt.id }));
  fill(
    card,
    h("p", { class: "reason" }, t.reasons[doubt.reason] ?? doubt.reason),
    h(
      "div",
      { class: "sides" },
      side(isContradiction ? t.newer : t.doubtful, doubt, own),
      doubt.others.map((other) => side(t.older, other, own)),
    ),
    h(
      "div",
      { class: "buttons" },
      isContradiction
        ? [
            button(t.keepNew, () => decide(...supersede, approve), { class: "primary" }),
            button(t.keepOld, () => decide(reject)),
            button(t.keepBoth, () => decide(approve)),
          ]
        : [
            button(t.approve, () => decide(approve), { class: "primary" }),
            button(t.reject, () => decide(reject)),
          ],
    ),
  );
  return card;
}

function side(title: string, memory: Memory, own: string): HTMLElement {
  return h(
    "section",
    { class: "side" },
    h("h2", {}, title),
    h("p", {}, h("a", { href: `#/memory/${memory.id}` }, memory.text)),
    h(
      "p",
      { class: "row-facts" },
      h("span", {}, formatTime(memory.event_time ?? memory.created_at)),
      h("span", {}, memory.namespace),
      h("span", {}, writerOf(memory, own)),
      h("span", {}, `${texts.detail.confidence}: ${memory.confidence}`),
    ),
  );
}
