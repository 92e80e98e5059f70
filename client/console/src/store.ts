// The account's memories as they come in, newest first, for the views that show all of them.
//
// - They are opened texts: they live as long as the console is open, and nowhere but in this page.
// - Pages follow one another with room between them for the browser to draw.

import { NAMESPACES_MAX, type Access } from "./access.ts";
import { breathe } from "./dom.ts";
import { shorten } from "./format.ts";
import type { Hit, Memory } from "./records.ts";
import type { Found } from "./searching.ts";
import { texts } from "./texts.ts";

const PAGE = 200;

/** A search and what it found. */
export interface LastSearch {
  readonly query: string;
  /** The namespace that was searched; empty for all. */
  readonly where: string;
  readonly found: Found;
}

/** A number of memories that wait for a decision; there may be more. */
export interface Waiting {
  readonly count: number;
  readonly isMore: boolean;
}

export class Store {
  lastSearch: LastSearch | null = null;
  #memories: Memory[] = [];
  #loading: Promise<void> | null = null;
  #isComplete = false;
  #isEnded = false;
  readonly #places = new Map<string, string>();
  readonly #names = new Map<string, string>();
  #naming: Promise<void> | null = null;
  #waiting: Waiting | null = null;
  readonly #watchers = new Set<() => void>();

  constructor(readonly access: Access) {}

  get memories(): readonly Memory[] {
    return this.#memories;
  }

  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** Whether the console was locked since. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Loads what is not there yet; called again, it waits for the same loading. */
  load(): Promise<void> {
    if (this.#isComplete) return Promise.resolve();
    this.#loading ??= this.#loadAll().finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  /** Forgets everything, so that it is loaded anew. */
  reset(): void {
    this.#memories = [];
    this.#isComplete = false;
  }

  /** Forgets everything for good: the console is locked. */
  end(): void {
    this.#isEnded = true;
    this.lastSearch = null;
    this.#places.clear();
    this.#names.clear();
    this.reset();
    this.#watchers.clear();
  }

  /** Tells of each change until the returned function is called. */
  watch(changed: () => void): () => void {
    this.#watchers.add(changed);
    return () => this.#watchers.delete(changed);
  }

  /** Returns the namespace of a memory, if it is known. */
  namespaceOf(id: string): string | undefined {
    return this.#memories.find((one) => one.id === id)?.namespace ?? this.#places.get(id);
  }

  /** Notes where memories are that somebody found. */
  note(memories: readonly Memory[]): void {
    for (const memory of memories) this.#places.set(memory.id, memory.namespace);
  }

  /** Learns the keys' names once. Without them, a key is shown by its first digits. */
  learnNames(): Promise<void> {
    this.#naming ??= this.access
      .keys()
      .then((keys) => {
        for (const key of keys) if (key.label) this.#names.set(key.public_key, key.label);
      })
      .catch(() => {
        this.#naming = null; // asked for again by the next view
      });
    return this.#naming;
  }

  /** Returns who wrote a memory. */
  writerOf(memory: Memory): string {
    return memory.writer_label || this.nameOf(memory.writer);
  }

  /** Returns the name of a key, or what else tells people which it is. */
  nameOf(key: string): string {
    const name = this.#names.get(key);
    if (name) return name;
    if (key === this.access.relayerKey) return texts.relayerActor;
    return key === this.access.publicKey ? texts.thisKey : texts.unnamedKey(shorten(key));
  }

  /** How many memories wait for a decision, as far as it was looked; null if it was not. */
  get waiting(): Waiting | null {
    return this.#waiting;
  }

  /** Notes how many memories wait for a decision. */
  noteWaiting(waiting: Waiting): void {
    this.#waiting = waiting;
    this.#tell();
  }

  /** Puts a new memory before all others. */
  insert(memory: Memory): void {
    this.#memories = [memory, ...this.#memories.filter((one) => one.id !== memory.id)];
    this.#tell();
  }

  /** Puts a memory as it is now in place of what is held of it. */
  put(memory: Memory): void {
    this.#memories = this.#memories.map((one) => (one.id === memory.id ? memory : one));
    this.#changeFound((hits) => hits.map((hit) => (hit.id === memory.id ? { ...hit, ...memory } : hit)));
    this.#tell();
  }

  /** Takes a memory out that was erased. */
  remove(ids: ReadonlySet<string>): void {
    this.#memories = this.#memories.filter((one) => !ids.has(one.id));
    this.#changeFound((hits) => hits.filter((hit) => !ids.has(hit.id)));
    this.#tell();
  }

  #changeFound(change: (hits: readonly Hit[]) => readonly Hit[]): void {
    if (!this.lastSearch) return;
    const { found } = this.lastSearch;
    this.lastSearch = { ...this.lastSearch, found: { ...found, hits: change(found.hits) } };
  }

  async #loadAll(): Promise<void> {
    this.#memories = [];
    const names = (await this.access.namespaces()).map((one) => one.name);
    for (let at = 0; at < names.length; at += NAMESPACES_MAX) {
      await this.#loadSome(names.slice(at, at + NAMESPACES_MAX));
      if (this.#isEnded) return;
    }
    this.#isComplete = true;
    this.#tell();
  }

  async #loadSome(namespaces: readonly string[]): Promise<void> {
    let cursor: string | null = null;
    do {
      const page = await this.access.list(namespaces, PAGE, cursor);
      if (this.#isEnded) return;
      this.#add(page.memories);
      cursor = page.next_cursor;
      await breathe();
    } while (cursor !== null);
  }

  #add(memories: readonly Memory[]): void {
    const before = this.#memories.at(-1);
    const next = [...this.#memories, ...memories];
    // Groups of namespaces come one after the other, each newest first.
    const first = memories[0];
    if (before && first && first.seq > before.seq) next.sort((a, b) => b.seq - a.seq);
    this.#memories = next;
    this.#tell();
  }

  #tell(): void {
    for (const watcher of this.#watchers) watcher();
  }
}
