// Makes elements, and nothing from text that could become markup: all text is a text node.

export type Child = Node | string | number | null | undefined | false | readonly Child[];
type Listener = (event: Event) => unknown;
export type Properties = Readonly<Record<string, string | number | boolean | null | undefined | Listener>>;

const SVG = "http://www.w3.org/2000/svg";

/** Makes an element. A property that is a function listens for the event of its name. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  setProperties(made, properties);
  append(made, children);
  return made;
}

/** Makes an element of a drawing. */
export function svg(tag: string, properties: Properties = {}, ...children: Child[]): SVGElement {
  const made = document.createElementNS(SVG, tag);
  setProperties(made, properties);
  append(made, children);
  return made;
}

/** Puts these children in place of those that an element has. */
export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

function append(parent: Element, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.append(child instanceof Node ? child : String(child));
  }
}

function setProperties(element: Element, properties: Properties): void {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

let lastId = 0;

/** Returns an id that no other element of the page has. */
export function newId(stem: string): string {
  lastId += 1;
  return `${stem}-${lastId}`;
}

/** Returns one of our own texts with what stands between backticks as code. */
export function prose(text: string): Child[] {
  return text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

/** Makes a labelled field; `control` gets the id that the label names. */
export function field(label: string, control: HTMLElement, help?: string): HTMLElement {
  control.id ||= newId("field");
  const hint = help ? h("span", { class: "hint", id: `${control.id}-hint` }, prose(help)) : null;
  if (hint) control.setAttribute("aria-describedby", hint.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, hint);
}

/** Makes a list to choose from. */
export function select(
  options: readonly (readonly [value: string, text: string])[],
  chosen: string,
  change?: (value: string) => void,
): HTMLSelectElement {
  const made = h(
    "select",
    {},
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
  );
  if (change) made.addEventListener("change", () => change(made.value));
  return made;
}

/** Makes a button that says that it works until what it does is done, and cannot be pressed twice. */
export function button(
  text: string,
  press: () => unknown,
  properties: Properties = {},
): HTMLButtonElement {
  const made: HTMLButtonElement = h("button", { type: "button", ...properties }, text);
  made.addEventListener("click", async () => {
    if (made.getAttribute("aria-busy") === "true") return;
    made.setAttribute("aria-busy", "true");
    try {
      await press();
    } finally {
      made.removeAttribute("aria-busy");
    }
  });
  return made;
}

/** Lets the browser draw and take input before long work goes on. */
export function breathe(): Promise<void> {
  return new Promise((resume) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => resume();
    channel.port2.postMessage(null);
  });
}
