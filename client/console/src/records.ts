// The shapes that views show: those of the relayer's own description, by its names.

import type { Schemas } from "../../typescript/src/index.ts";

/** A memory; one whose bytes were altered in the store has a text that says so. */
export type Memory = Omit<Schemas["ReadMemoryAnswer"], "text"> & { readonly text: string };
export type Hit = Memory & Omit<Schemas["ResultAnswer"], keyof Schemas["MemoryAnswer"]>;
export type Explanation = NonNullable<Hit["explain"]>;
export type Recalled = Omit<Schemas["RecallAnswer"], "results"> & { readonly results: readonly Hit[] };
export type Link = Schemas["LinkAnswer"];
export type Namespace = Schemas["NamespaceAnswer"];
export type Key = Schemas["KeyEntry"];
export type Counts = Schemas["CountsAnswer"];
export type Usage = Schemas["UsageAnswer"];

export interface Page {
  readonly memories: readonly Memory[];
  readonly next_cursor: string | null;
}

export type Doubt = Memory & { readonly reason: string; readonly others: readonly Memory[] };

export interface Doubts {
  readonly memories: readonly Doubt[];
  readonly next_cursor: string | null;
}

export interface History {
  readonly revisions: readonly Memory[];
  readonly links: readonly Link[];
}
