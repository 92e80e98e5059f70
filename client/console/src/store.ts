// The account's memories as they come in, newest first, for the views that show all of them.
//
// - They are opened texts: they live as long as the console is open, and nowhere but in this page.
// - Pages follow one another with room between them for the browser to draw.

import { NAMESPACES_MAX, type Access } from "./access.ts";
import { breathe } from "./dom.ts";
import type { Memory } from "./records.ts";

const PAGE = 200;

export class Store {
  #memories: Memory[] = [];
  #loading: Promise<void> | null = null;
  #isComplete = false;
  #isEnded = false;
  readonly #places = new Map<string, string>();
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
    this.#places.clear();
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

  /** Puts a memory as it is now in place of what is held of it. */
  put(memory: Memory): void {
    this.#memories = this.#memories.map((one) => (one.id === memory.id ? memory : one));
    this.#tell();
  }

  /** Takes a memory out that was erased. */
  remove(ids: ReadonlySet<string>): void {
    this.#memories = this.#memories.filter((one) => !ids.has(one.id));
    this.#tell();
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
