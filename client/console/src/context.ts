// What every view is given.

import type { Access } from "./access.ts";
import type { Store } from "./store.ts";

export interface Context {
  readonly access: Access;
  readonly store: Store;
  /** Calls it when the view is left. */
  onLeave(work: () => void): void;
}

/** Makes the element of a view; what it shows may come later. */
export type View = (context: Context) => HTMLElement;
