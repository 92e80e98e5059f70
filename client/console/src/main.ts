// The console: which view is shown, when an account is open, and when it is locked.
//
// - Keys and opened texts live in this module's account alone. Locking drops it and what is drawn.
// - Nobody asks anything of another place: the page's policy allows this origin only.

import type { Access } from "./access.ts";
import { open } from "./connect.ts";
import type { Context } from "./context.ts";
import { button, fill, h, select } from "./dom.ts";
import { shorten } from "./format.ts";
import { watchIdleness } from "./idleness.ts";
import type { Profile } from "./profile.ts";
import { clearAnnouncements, clearError, closedPage, openPage, readPlace, setWording } from "./shell.ts";
import { Store } from "./store.ts";
import { texts } from "./texts.ts";
import { clearFilter, listView } from "./views/list.ts";
import { keysView } from "./views/keys.ts";
import { memoryView } from "./views/memory.ts";
import { openView } from "./views/open.ts";
import { reviewView } from "./views/review.ts";
import { searchView } from "./views/search.ts";
import { timelineView } from "./views/timeline.ts";
import { usageView } from "./views/usage.ts";
import { wordError } from "./wording.ts";

const MINUTES = [2, 5, 10, 30];
const root = document.getElementById("app")!;
let account: { access: Access; store: Store } | null = null;
let leave: (() => void)[] = [];
let idleMinutes = 10;
let notice: string | null = null;

setWording(wordError);

function render(): void {
  for (const work of leave) work();
  leave = [];
  clearError();
  if (!account) {
    document.title = `${texts.product} ${texts.console}`;
    fill(root, closedPage(openView(begin, notice)));
    return;
  }
  const place = readPlace();
  const context: Context = { ...account, onLeave: (work) => leave.push(work) };
  const views = {
    search: searchView,
    memories: listView,
    timeline: timelineView,
    review: reviewView,
    keys: keysView,
    usage: usageView,
  };
  const content = place.view === "memory" ? memoryView(context, place.id ?? "") : views[place.view](context);
  const title = place.view === "memory" ? texts.memory : texts.views[place.view];
  document.title = `${title} · ${texts.product} ${texts.console}`;
  fill(root, openPage(place, content, waitingOf(account.store), foot(account.access)));
  // What is above it stays in sight: on a phone, that is how one goes on.
  document.getElementById("content")?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

/** Returns the number that stands beside the review, as it is and will be. */
function waitingOf(store: Store): HTMLElement {
  const shown = h("span", { class: "badge" });
  const draw = (): void => {
    const { count = 0, isMore = false } = store.waiting ?? {};
    shown.hidden = count === 0 && !isMore;
    fill(shown, `${count}${isMore ? "+" : ""}`, h("span", { class: "visually-hidden" }, ` ${texts.waiting}`));
  };
  draw();
  leave.push(store.watch(draw));
  return shown;
}

/** Looks once how much waits for a decision; the review itself tells of errors. */
async function countWaiting({ access, store }: { access: Access; store: Store }): Promise<void> {
  const page = await access.review(null).catch(() => null);
  if (page && !store.isEnded && !store.waiting) {
    store.noteWaiting({ count: page.memories.length, isMore: page.next_cursor !== null });
  }
}

function foot(access: Access): HTMLElement[] {
  const minutes = select(
    MINUTES.map((n) => [String(n), texts.minutes(n)]),
    String(idleMinutes),
    (value) => {
      idleMinutes = Number(value);
    },
  );
  minutes.id = "lock-after";
  return [
    h("p", { class: "account" }, `${texts.account} `, h("code", { title: access.accountId }, shorten(access.accountId))),
    h("p", { class: "lock-after" }, h("label", { for: "lock-after" }, texts.lockAfter), " ", minutes),
    button(texts.lock, () => lock(texts.lockedByHand)),
  ];
}

async function begin(profile: Profile): Promise<void> {
  const access = await open(profile);
  account = { access, store: new Store(access) };
  notice = null;
  render();
  void countWaiting(account);
}

function lock(why: string): void {
  if (!account) return;
  account.store.end();
  account = null;
  clearFilter();
  clearAnnouncements();
  for (const dialog of document.querySelectorAll("dialog")) dialog.remove();
  notice = why;
  render();
}

watchIdleness(
  () => idleMinutes * 60_000,
  () => lock(texts.lockedIdle),
);
// A page that comes back from the browser's cache would show what was locked meanwhile.
window.addEventListener("pagehide", () => lock(texts.lockedByHand));
window.addEventListener("hashchange", () => account && render());
render();
