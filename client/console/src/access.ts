// What the console asks of a relayer for one key: each view uses this, and none the client beneath.
//
// - Every answer and receipt was verified by the client before it comes here.
// - Requests name at most 16 namespaces: who wants more asks in groups (`searching.ts`, `store.ts`).

import {
  accountBytes,
  Client,
  exportArchive,
  fromBase64,
  fromHex,
  makeFingerprint,
  readJoinRequests,
  readReceipt,
  type Receipt as ChainReceipt,
  recoveryLines,
  type Schemas,
  toHex,
} from "../../typescript/src/index.ts";
import { breathe } from "./dom.ts";
import type { Counts, Doubts, History, Hit, Key, Memory, Namespace, Page, Recalled, Usage } from "./records.ts";
import { texts } from "./texts.ts";

export const NAMESPACES_MAX = 16;

export interface Changes {
  readonly text?: string;
  readonly tags?: string[];
  readonly expires_at?: string | null;
  readonly revision?: number;
}

export interface StateChanges {
  readonly pinned?: boolean;
  readonly review?: "approved" | "rejected";
  readonly superseded_by?: string | null;
}

/** A receipt whose signature was checked in this browser. */
export interface Receipt {
  readonly seq: number;
  readonly time: number;
  readonly op: string;
  readonly actor: string;
  readonly ids: readonly string[];
}

/** What became of a text that was stored. */
export interface Remembered {
  readonly id: string;
  readonly namespace: string;
  /** Null if the text was known already. */
  readonly receipt: Receipt | null;
  /** How many secrets were replaced in it. */
  readonly redacted: number;
}

export interface Joining {
  readonly recipient: string;
  readonly label: string;
  readonly fingerprint: string;
}

export interface Wish {
  readonly role: "owner" | "writer" | "reader";
  /** Null gives the whole account. */
  readonly namespaces: readonly string[] | null;
  readonly label: string;
}

/** What is sealed anew with a rotation. */
export type Resealing = "revoked" | "all" | "none";

/** How many memories are under the newest keys, and how many of all are under older ones. */
export interface SealingProgress {
  readonly total: number;
  readonly done: number;
  readonly remaining: number;
  readonly older: number;
}

/** An archive of the account, and what the relayer did not give for it. */
export interface ArchiveFile {
  readonly parts: readonly BlobPart[];
  readonly memories: number;
  /** Records that a receipt promises or the relayer lists, and has no bytes for. */
  readonly missing: number;
}

/** Tells how many receipts were followed, of how many. */
export type Progress = (done: number, total: number) => void;

/** The client, with what it knows of its own key. */
export class KeyClient extends Client {
  /** Returns the roles that this key's verified grants give. */
  async roles(): Promise<ReadonlySet<string>> {
    return (await this.session.keyring()).roles;
  }
}

export class Access {
  readonly #client: KeyClient;
  #receipts: readonly Receipt[] = [];

  constructor(
    client: KeyClient,
    readonly relayerKey: string,
    readonly roles: ReadonlySet<string>,
    /** Where this key stores what names no other place. */
    readonly namespace: string,
  ) {
    this.#client = client;
  }

  get accountId(): string {
    return this.#client.accountId;
  }

  get publicKey(): string {
    return this.#client.publicKey;
  }

  get isOwner(): boolean {
    return this.roles.has("owner");
  }

  get canWrite(): boolean {
    return this.isOwner || this.roles.has("writer");
  }

  namespaces(): Promise<readonly Namespace[]> {
    return this.#client.namespaces();
  }

  async recall(query: string, namespaces: readonly string[], limit: number, signal: AbortSignal): Promise<Recalled> {
    const found = await this.#client.recall(query, { namespaces: [...namespaces], limit, explain: true, signal });
    return { ...found, results: found.results.map((hit) => readable(hit) as Hit) };
  }

  async list(
    namespaces: readonly string[],
    limit: number,
    cursor: string | null,
    state: "all" | "active" = "all",
  ): Promise<Page> {
    const page = await this.#client.list({
      namespaces: [...namespaces],
      limit,
      state,
      cursor: cursor ?? undefined,
    });
    return { ...page, memories: page.memories.map(readable) };
  }

  async get(id: string, namespace: string | undefined): Promise<Memory> {
    return readable(await this.#client.get(id, { namespace }));
  }

  async history(id: string, namespace: string | undefined): Promise<History> {
    const found = await this.#client.history(id, { namespace });
    return { ...found, revisions: found.revisions.map(readable) };
  }

  /** Stores a memory, and returns its id; one that is known already gives no receipt. */
  async remember(
    text: string,
    namespace: string,
    tags: string[],
  ): Promise<Remembered> {
    const answer = await this.#client.remember(text, { namespace, tags });
    const redacted = Object.values(answer.redacted).reduce((sum, n) => sum + n, 0);
    return { id: answer.id, namespace: answer.namespace, receipt: this.#receipt(answer.receipt), redacted };
  }

  async edit(memory: Memory, changes: Changes): Promise<Receipt | null> {
    const answer = await this.#client.edit(memory.id, { ...changes, namespace: memory.namespace });
    return this.#receipt(answer.receipt);
  }

  async setState(id: string, changes: StateChanges): Promise<Receipt | null> {
    return this.#receipt((await this.#client.setState(id, changes)).receipt);
  }

  async forget(id: string): Promise<Receipt | null> {
    return this.#receipt((await this.#client.forget(id)).receipt);
  }

  /** Returns a page of what waits for a decision; the cursor names a group of namespaces, too. */
  async review(cursor: string | null): Promise<Doubts> {
    const [group, inner] = cursor === null ? [0, null] : (JSON.parse(cursor) as [number, string | null]);
    const names = (await this.namespaces()).map((one) => one.name);
    const some = names.slice(group * NAMESPACES_MAX, (group + 1) * NAMESPACES_MAX);
    if (some.length === 0) return { memories: [], next_cursor: null };
    const page = await this.#client.review({ namespaces: some, cursor: inner ?? undefined });
    const isLast = names.length <= (group + 1) * NAMESPACES_MAX;
    const next = page.next_cursor ? [group, page.next_cursor] : isLast ? null : [group + 1, null];
    return {
      memories: page.memories.map((one) => ({ ...one, ...readable(one), others: (one.others ?? []).map(readable) })),
      next_cursor: next && JSON.stringify(next),
    };
  }

  /** Verifies the account's chain of receipts to its end, and returns all of it. */
  async receipts(progress: Progress): Promise<readonly Receipt[]> {
    const found = await this.#client.receipts({ onProgress: progress });
    this.#receipts = [...this.#receipts, ...found.map(plain)];
    return this.#receipts;
  }

  /** Writes the whole account as an archive that only its owners' keys open. */
  async archive(progress: (memories: number) => void): Promise<ArchiveFile> {
    const parts: BlobPart[] = [];
    const chunks = exportArchive(this.#client, { onProgress: progress });
    let step = await chunks.next();
    for (; !step.done; step = await chunks.next()) {
      parts.push(step.value);
      await breathe();
    }
    const { counts, lost, missing } = step.value;
    return { parts, memories: counts["memory"] ?? 0, missing: lost + missing.length };
  }

  keys(): Promise<readonly Key[]> {
    return this.#client.keys();
  }

  /** Reads a request to be let in; its signatures are verified. */
  readJoinRequest(text: string): Joining {
    const [request] = readJoinRequests(text);
    return {
      recipient: toHex(request!.recipient),
      label: request!.label,
      fingerprint: makeFingerprint(request!.recipient),
    };
  }

  async admit(text: string, wish: Wish): Promise<void> {
    const [request] = readJoinRequests(text);
    await this.#client.admit(request!, wish);
  }

  /** Makes a further owner's key, and returns it as lines for paper: it is kept nowhere. */
  async addRecoveryKey(label: string): Promise<readonly string[]> {
    const added = await this.#client.addKey({ namespaces: null, role: "owner", label });
    return recoveryLines(added.identity!, accountBytes(this.accountId));
  }

  async revoke(publicKey: string): Promise<void> {
    await this.#client.revokeKey(publicKey);
  }

  /** Lets the key that made a request do what another one may, which is revoked with a new epoch. */
  async replace(publicKey: string, text: string, label: string): Promise<void> {
    const [request] = readJoinRequests(text);
    await this.#client.replaceKey(publicKey, request!, { label });
  }

  /** Gives new keys to everybody but those that are left out. */
  async rotate(out: readonly string[], reseal: Resealing): Promise<void> {
    await this.#client.rotate({ revoke: out, reseal });
  }

  rotation(signal: AbortSignal): Promise<SealingProgress> {
    return this.#client.rotation({ signal });
  }

  /** Lends the relayer keys until all that was chosen is sealed anew, or nothing goes on. */
  finishRotation(onProgress: (progress: SealingProgress) => void, signal: AbortSignal): Promise<SealingProgress> {
    return this.#client.finishRotation({ onProgress, signal });
  }

  usage(): Promise<Usage> {
    return this.#client.usage();
  }

  /** Counts what is in recall: what was stored from each time to the next, by whom, of which kinds. */
  counts(starts: readonly number[]): Promise<Counts> {
    return this.#client.counts(starts.map((start) => new Date(start)));
  }

  /** Has the relayer count from now on how often each memory is recalled, or delete the counts. */
  async countRecalls(isCounted: boolean): Promise<void> {
    await this.#client.changeSettings({ count_recalls: isCounted });
  }

  /** Returns memories that no recall showed since they are counted, newest first. */
  async neverRecalled(namespaces: readonly string[], limit: number): Promise<readonly Memory[]> {
    const page = await this.#client.list({ namespaces: [...namespaces], limit, never_recalled: true });
    return page.memories.map(readable);
  }

  #receipt(signed: string | null): Receipt | null {
    if (signed === null) return null;
    const account = fromHex(this.accountId.slice(2), 32, "account");
    return plain(readReceipt(fromBase64(signed, "receipt"), fromHex(this.relayerKey, 32, "key"), account));
  }
}

function readable(memory: Schemas["ReadMemoryAnswer"]): Memory {
  return { ...memory, text: memory.text ?? texts.unreadable };
}

function plain(receipt: ChainReceipt): Receipt {
  return {
    seq: receipt.seq,
    time: receipt.timeMs,
    op: receipt.op,
    actor: toHex(receipt.actor),
    ids: receipt.items.map((item) => item.id),
  };
}
