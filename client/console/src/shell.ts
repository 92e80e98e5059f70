// The frame around every view: navigation, what is announced, errors, dialogs.

import { button, fill, h, newId, prose, type Child } from "./dom.ts";
import { icon } from "./icons.ts";
import { texts } from "./texts.ts";

export type ViewName = keyof typeof texts.views;

/** Where the page is: a view, and for one memory its id. Nothing typed is ever in an address. */
export interface Place {
  readonly view: ViewName | "memory";
  readonly id: string | null;
}

const ID = /^[0-9a-f-]{36}$/;

/** Returns the place that the address names. */
export function readPlace(): Place {
  const [name = "", id = ""] = location.hash.replace(/^#\/?/, "").split("/");
  if (name === "memory" && ID.test(id)) return { view: "memory", id };
  return { view: name in texts.views ? (name as ViewName) : "search", id: null };
}

const live = h("p", { class: "visually-hidden", role: "status", "aria-live": "polite" });
const TOASTS_MAX = 3;
const toasts = h("div", { class: "toasts", "aria-hidden": "true" });
const alerts = h("div", { class: "alerts", role: "alert" });

document.body.append(live, toasts); // they outlive every view

/** Takes away what was said: it may name what is locked now. */
export function clearAnnouncements(): void {
  live.textContent = "";
  fill(toasts);
}

/** Says something to a screen reader, and shows it for a while. */
export function announce(text: string): void {
  live.textContent = "";
  live.textContent = text;
  const toast = h("p", { class: "toast" }, text);
  toasts.append(toast);
  while (toasts.childElementCount > TOASTS_MAX) toasts.firstElementChild?.remove();
  setTimeout(() => toast.remove(), 6000);
}

/** Shows what went wrong until it is dismissed or something else goes wrong. */
export function showError(message: string): void {
  fill(
    alerts,
    h(
      "div",
      { class: "alert" },
      h("p", {}, h("strong", {}, `${texts.errors.title}. `), prose(message)),
      button(texts.errors.dismiss, () => clearError(), { class: "quiet" }),
    ),
  );
}

/** Takes the error away. */
export function clearError(): void {
  fill(alerts);
}

/** Returns what stands on the page when no account is open. */
export function closedPage(content: HTMLElement): HTMLElement[] {
  return [
    h("header", { class: "top closed" }, brand()),
    h("main", { id: "content", tabindex: -1 }, alerts, content),
  ];
}

/** Returns the frame of an open account around a view; `waiting` stands beside the review. */
export function openPage(place: Place, content: HTMLElement, waiting: HTMLElement, foot: Child): HTMLElement[] {
  const links = (Object.keys(texts.views) as ViewName[]).map((name) => {
    const current = name === place.view ? "page" : null;
    const link = h("a", { href: `#/${name}`, "aria-current": current }, icon(name), h("span", {}, texts.views[name]));
    if (name === "review") link.append(waiting);
    return h("li", {}, link);
  });
  return [
    h("a", { class: "skip", href: "#content", click: skip }, texts.skip),
    h(
      "header",
      { class: "top" },
      brand(),
      h("nav", { "aria-label": texts.navigation }, h("ul", {}, links)),
      h("div", { class: "foot" }, foot),
    ),
    h("main", { id: "content", tabindex: -1 }, alerts, content),
  ];
}

function brand(): HTMLElement {
  return h("p", { class: "brand" }, texts.product, " ", h("span", {}, texts.console));
}

function skip(event: Event): void {
  event.preventDefault(); // the address is the view's
  document.getElementById("content")?.focus();
}

/** Shows a dialog, and returns once it is closed and its content is gone from the page. */
export function showDialog(title: string, content: (close: () => void) => Child): Promise<void> {
  return new Promise((resolve) => {
    const heading = newId("dialog");
    const dialog = h("dialog", { "aria-labelledby": heading });
    fill(dialog, h("h2", { id: heading }, title), content(() => dialog.close()));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

interface DialogOptions {
  readonly title: string;
  readonly body: Child;
  readonly confirm: string;
  readonly isDangerous?: boolean;
  /** Does what was confirmed; the dialog stays open if it throws. */
  readonly act: () => unknown;
}

/** Asks something in a dialog, and returns once it is closed. */
export function ask(options: DialogOptions): Promise<void> {
  const problem = h("p", { class: "problem", role: "alert" });
  return showDialog(options.title, (close) => {
    const confirm = button(
      options.confirm,
      async () => {
        problem.textContent = "";
        try {
          await options.act();
          close();
        } catch (error) {
          fill(problem, prose(messageOf(error)));
        }
      },
      { class: options.isDangerous ? "danger" : "primary" },
    );
    return [options.body, problem, h("div", { class: "buttons" }, confirm, button(texts.cancel, close))];
  });
}

type Wording = (error: unknown) => string;
let wording: Wording = (error) => (error instanceof Error ? error.message : String(error));

/** Takes what turns errors into sentences. */
export function setWording(words: Wording): void {
  wording = words;
}

/** Returns a sentence for people about an error. */
export function messageOf(error: unknown): string {
  return wording(error);
}

/** Runs what a person asked for, and shows what goes wrong. */
export async function attempt(work: () => unknown): Promise<void> {
  clearError();
  try {
    await work();
  } catch (error) {
    showError(messageOf(error));
  }
}
