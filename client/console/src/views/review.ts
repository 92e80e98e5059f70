// What waits for a decision: doubtful facts, and contradictions side by side.

import type { Context } from "../context.ts";
import { contrast } from "../differences.ts";
import { button, fill, h, type Child } from "../dom.ts";
import { formatTime } from "../format.ts";
import type { Doubt, Memory } from "../records.ts";
import { announce, attempt } from "../shell.ts";
import { texts } from "../texts.ts";

export function reviewView(context: Context): HTMLElement {
  const t = texts.review;
  const list = h("div", { class: "doubts" }, h("p", { class: "hint" }, texts.loading));
  const more = h("div", { class: "bar" });
  const lead = h("p", { class: "hint" });
  let isMore = false;

  /** Says how many wait, here and beside the view's name. */
  const count = (): void => {
    const shown = list.querySelectorAll(".doubt").length;
    context.store.noteWaiting({ count: shown, isMore });
    lead.textContent = shown || isMore ? t.lead(shown, isMore) : "";
    if (shown === 0) fill(list, h("p", { class: "nothing" }, isMore ? t.emptyPage : t.empty));
  };
  const load = async (cursor: string | null): Promise<void> => {
    const [page] = await Promise.all([context.access.review(cursor), context.store.learnNames()]);
    if (context.store.isEnded) return;
    if (!list.querySelector(".doubt")) fill(list);
    context.store.note(page.memories.flatMap((doubt) => [doubt, ...doubt.others]));
    list.append(...page.memories.map((doubt) => doubtCard(context, doubt, count)));
    isMore = page.next_cursor !== null;
    fill(more, isMore && button(t.more, () => attempt(() => load(page.next_cursor))));
    count();
  };
  void attempt(() => load(null));
  return h("div", {}, h("h1", {}, t.title), lead, list, more);
}

function doubtCard(context: Context, doubt: Doubt, decided: () => void): HTMLElement {
  const t = texts.review;
  const isContradiction = doubt.others.length > 0;
  const card = h("article", { class: "card doubt", "aria-label": doubt.text.slice(0, 80) });
  const decide = (...steps: (() => Promise<unknown>)[]) =>
    attempt(async () => {
      for (const step of steps) await step();
      const next = card.nextElementSibling ?? card.previousElementSibling;
      card.remove();
      announce(t.decided);
      decided();
      const focused = next?.querySelector<HTMLElement>("button") ?? document.getElementById("content");
      focused?.focus();
      context.store.reset();
    });
  const { access } = context;
  const approve = () => access.setState(doubt.id, { review: "approved" });
  const reject = () => access.setState(doubt.id, { review: "rejected" });
  const supersede = doubt.others.map((other) => () => access.setState(other.id, { superseded_by: doubt.id }));
  const [other] = doubt.others;
  // Of several others, none has the one text to compare with.
  const [before, after] = other && doubt.others.length === 1 ? contrast(other.text, doubt.text) : [other?.text, doubt.text];
  const buttons = isContradiction
    ? [
        button(t.keepNew, () => decide(...supersede, approve), { class: "primary" }),
        button(t.keepOld, () => decide(reject)),
        button(t.keepBoth, () => decide(approve)),
      ]
    : [
        button(t.approve, () => decide(approve), { class: "primary" }),
        button(t.reject, () => decide(reject)),
      ];
  fill(
    card,
    h("p", { class: "reason" }, t.reasons[doubt.reason] ?? doubt.reason),
    h(
      "div",
      { class: "sides" },
      side(context, isContradiction ? t.newer : t.doubtful, doubt, after),
      doubt.others.map((one) => side(context, t.older, one, doubt.others.length === 1 ? before : one.text)),
    ),
    access.canWrite
      ? [h("div", { class: "buttons" }, buttons), h("p", { class: "hint" }, isContradiction ? t.afterContradiction : t.afterDoubt)]
      : h("p", { class: "hint" }, texts.detail.readsOnly),
  );
  return card;
}

function side({ store }: Context, title: string, memory: Memory, text: Child): HTMLElement {
  return h(
    "section",
    { class: "side" },
    h("h2", {}, title),
    h("p", { class: "side-text" }, h("a", { href: `#/memory/${memory.id}` }, text)),
    h(
      "p",
      { class: "row-facts" },
      h("span", {}, formatTime(memory.event_time ?? memory.created_at)),
      h("span", {}, memory.namespace),
      h("span", {}, store.writerOf(memory)),
      h("span", {}, texts.review.confidence[memory.confidence] ?? memory.confidence),
    ),
  );
}
