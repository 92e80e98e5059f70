/**
 * An archive's bytes: a signed header with a box for each owner, then chunks under one key.
 *
 * Not here: what the records say (`../archives/`), which keys own the account (`ledger.ts`).
 *
 * - A chunk is bound to its archive, its place and to whether it is the last: what was cut, swapped
 *   or altered does not open.
 *
 * Source: SPEC.md §17.
 */

import {
  type Bytes,
  concat,
  fromBase64,
  fromUtf8,
  sameBytes,
  toBase64,
  toHex,
  u32,
  utf8,
  viewOf,
} from "../bytes.ts";
import { Invalid } from "../errors.ts";
import { type JsonValue, hasMembers, OBJECT_BYTES_MAX, readJson, writeJson } from "./json.ts";
import { accountBytes, accountText, type Identity, publicKeyBytes } from "./keys.ts";
import { integer, listOf, readObject, signObject, SIGNATURE_BYTES, uuidText } from "./objects.ts";
import { uuidBytes } from "./envelope.ts";
import {
  aeadOpen,
  aeadSeal,
  exact,
  exchangePublic,
  KEY_BYTES,
  NONCE_BYTES,
  openSealedBox,
  randomBytes,
  sealedBox,
  TAG_BYTES,
} from "./primitives.ts";

export const CHUNK_BYTES_MAX = 2 ** 20;
const RECORD_BYTES_MAX = 16 * 2 ** 20;
const MAGIC = utf8("memrelay-archive\n");
const BOX_MEMBERS = ["account", "archive", "key"];

/** A record of an archive: `record` says what it is. */
export interface ArchiveRecord {
  readonly record: string;
  readonly [name: string]: unknown;
}

/** The head of an archive, before its chunks; `boxes` by the key that each is for, in hex. */
export interface ArchiveHeader {
  readonly archive: string;
  readonly account: Bytes;
  readonly createdMs: number;
  readonly signer: Bytes;
  readonly relayer: Bytes;
  readonly boxes: ReadonlyMap<string, Bytes>;
}

/** What a new archive's header says; its key is boxed to each of `owners`. */
export interface NewArchive {
  readonly archive: string;
  readonly account: Uint8Array;
  readonly relayer: Uint8Array;
  readonly createdMs: number;
  readonly owners: readonly Uint8Array[];
  readonly key: Uint8Array;
}

/** Returns what the file of a new archive begins with. */
export function writeArchiveHead(signer: Identity, given: NewArchive): Bytes {
  const account = accountText(given.account);
  const inside = writeJson({ account, archive: given.archive, key: toBase64(given.key) });
  const payload = {
    archive: given.archive,
    account,
    created: given.createdMs,
    signer: signer.publicKeyHex,
    relayer: toHex(given.relayer),
    boxes: given.owners.map((owner) => ({
      recipient: toHex(owner),
      box: toBase64(sealedBox(exchangePublic(owner), inside)),
    })),
  };
  const header = signObject("archive", payload, signer);
  return concat(MAGIC, u32(header.length), header);
}

/**
 * Returns a header whose signature verifies under the signer that it names.
 *
 * Whether the signer owns the account, its grants must say.
 *
 * @throws {Invalid} the failed check.
 */
export function readArchiveHeader(data: Uint8Array): ArchiveHeader {
  const value = readObject("archive", data, "signer");
  const boxes = listOf(value["boxes"]).map(readBox);
  const byKey = new Map(boxes);
  if (byKey.size !== boxes.length) throw new Invalid("boxes", "An archive has one box for a key.");
  return {
    archive: uuidText(value["archive"]),
    account: accountBytes(value["account"]),
    createdMs: integer(value["created"]),
    signer: publicKeyBytes(value["signer"]),
    relayer: publicKeyBytes(value["relayer"]),
    boxes: byKey,
  };
}

function readBox(entry: JsonValue): [string, Bytes] {
  if (!hasMembers(entry, ["recipient", "box"])) {
    throw new Invalid("boxes", "A box names its recipient.");
  }
  return [toHex(publicKeyBytes(entry["recipient"])), fromBase64(entry["box"], "box")];
}

/**
 * Returns the archive's key.
 *
 * @throws {Invalid} `recipient`, when there is no box for this key; `box`, when it is another's.
 */
export function openArchiveBox(header: ArchiveHeader, recipient: Identity): Bytes {
  const box = header.boxes.get(recipient.publicKeyHex);
  if (box === undefined) {
    throw new Invalid("recipient", "The archive is for other keys than this one.");
  }
  let inside: { [name: string]: JsonValue };
  try {
    inside = readJson(openSealedBox(box, recipient.exchangeSecret), BOX_MEMBERS);
  } catch (error) {
    throw new Invalid("box", "The archive's box does not open.", { cause: error });
  }
  if (inside["account"] !== accountText(header.account) || inside["archive"] !== header.archive) {
    throw new Invalid("box", "The archive's box was made for another archive.");
  }
  return exact(fromBase64(inside["key"], "key"), KEY_BYTES, "key");
}

/** The key that seals and opens the chunks of one archive. */
export class ChunkKey {
  readonly archive: string;
  readonly #key: Bytes;

  constructor(archive: string, key: Uint8Array) {
    this.archive = archive;
    this.#key = exact(key, KEY_BYTES, "key").slice();
  }

  /** The key's bytes, for the boxes of a header alone. */
  get key(): Bytes {
    return this.#key;
  }

  /** Returns `lp(nonce ‖ ciphertext)` of a chunk; only test vectors give the nonce. */
  seal(
    index: number,
    plaintext: Uint8Array,
    isLast: boolean,
    nonce: Uint8Array = randomBytes(NONCE_BYTES),
  ): Bytes {
    if (plaintext.length < 1 || plaintext.length > CHUNK_BYTES_MAX) {
      throw new Invalid("length", "A chunk has 1 byte to 1 MiB.");
    }
    const sealed = aeadSeal(this.#key, nonce, plaintext, this.#associated(index, isLast));
    return concat(u32(NONCE_BYTES + sealed.length), nonce, sealed);
  }

  /**
   * Returns the plaintext of a chunk without its length in front.
   *
   * @throws {Invalid} `aead`, when a byte, its place or its being the last is another.
   */
  open(index: number, sealed: Uint8Array, isLast: boolean): Bytes {
    const [nonce, rest] = [sealed.subarray(0, NONCE_BYTES), sealed.subarray(NONCE_BYTES)];
    try {
      return aeadOpen(this.#key, nonce, rest, this.#associated(index, isLast));
    } catch (error) {
      throw new Invalid("aead", `Chunk ${index} of the archive does not open.`, { cause: error });
    }
  }

  #associated(index: number, isLast: boolean): Bytes {
    return concat(uuidBytes(this.archive), u32(index), Uint8Array.of(isLast ? 1 : 0));
  }
}

/** The bytes of a file, as they come; from a `Blob`, a `ReadableStream` or a list. */
export type ByteSource = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/** An archive's bytes, read from the beginning. */
export class ArchiveReader {
  readonly #pieces: AsyncIterator<Uint8Array> | Iterator<Uint8Array>;
  #rest: Uint8Array = new Uint8Array(0);

  constructor(source: ByteSource) {
    this.#pieces =
      Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
  }

  /**
   * Returns the header; what follows are the chunks.
   *
   * @throws {Invalid} `archive`, when it is no archive; or what the header's check says.
   */
  async readHeader(): Promise<ArchiveHeader> {
    const magic = await this.#take(MAGIC.length);
    if (!sameBytes(magic, MAGIC)) throw new Invalid("archive", "This is no archive of memrelay.");
    const header = await this.#sized(SIGNATURE_BYTES, OBJECT_BYTES_MAX + SIGNATURE_BYTES);
    if (header === null) throw new Invalid("length", "The archive ends within its header.");
    return readArchiveHeader(header);
  }

  /**
   * Yields the plaintexts of a whole archive's chunks, to the last one.
   *
   * @throws {Invalid} at the first that does not open; `length`, when there is none.
   */
  async *openChunks(key: ChunkKey): AsyncGenerator<Bytes, void, undefined> {
    const extra = NONCE_BYTES + TAG_BYTES;
    let waiting = await this.#sized(extra + 1, extra + CHUNK_BYTES_MAX);
    if (waiting === null) throw new Invalid("length", "The archive has no chunk.");
    for (let index = 0; waiting !== null; index++) {
      const next: Bytes | null = await this.#sized(extra + 1, extra + CHUNK_BYTES_MAX);
      yield key.open(index, waiting, next === null);
      waiting = next;
    }
  }

  /** Returns up to `size` bytes; fewer where the file ends. */
  async #take(size: number): Promise<Bytes> {
    const parts: Uint8Array[] = [];
    let need = size;
    while (need > 0) {
      if (this.#rest.length === 0) {
        const next = await this.#pieces.next();
        if (next.done) break;
        this.#rest = next.value;
      }
      parts.push(this.#rest.subarray(0, need));
      need -= parts.at(-1)!.length;
      this.#rest = this.#rest.subarray(parts.at(-1)!.length);
    }
    return concat(...parts);
  }

  async #sized(least: number, most: number): Promise<Bytes | null> {
    const prefix = await this.#take(4);
    if (prefix.length === 0) return null;
    const size = prefix.length === 4 ? viewOf(prefix).getUint32(0) : 0;
    if (size < least || size > most) {
      throw new Invalid("length", "The archive is cut, or a length in it is none.");
    }
    const data = await this.#take(size);
    if (data.length !== size) throw new Invalid("length", "The archive is cut.");
    return data;
  }
}

/** Returns `lp(JSON)`. */
export function writeRecord(record: ArchiveRecord): Bytes {
  const data = writeJson(record);
  if (data.length > RECORD_BYTES_MAX) {
    throw new Invalid("record", "A record of an archive is too long.");
  }
  return concat(u32(data.length), data);
}

/**
 * Yields the records of joined plaintexts.
 *
 * @throws {Invalid} `record`, when one is cut, too long or no object that says what it is.
 */
export async function* readRecords(
  chunks: ByteSource,
): AsyncGenerator<ArchiveRecord, void, undefined> {
  let parts: Uint8Array[] = [];
  let have = 0;
  let need = 4;
  for await (const chunk of chunks) {
    parts.push(chunk);
    have += chunk.length;
    if (have < need) continue; // joined once a record is whole, not at every chunk
    let rest: Bytes = concat(...parts);
    for (;;) {
      need = 4;
      if (rest.length < 4) break;
      const size = viewOf(rest).getUint32(0);
      if (size > RECORD_BYTES_MAX) {
        throw new Invalid("record", "A record of the archive is too long.");
      }
      need = 4 + size;
      if (rest.length < need) break;
      yield readRecord(rest.subarray(4, need));
      rest = rest.subarray(need) as Bytes;
    }
    parts = [rest];
    have = rest.length;
  }
  if (have > 0) throw new Invalid("record", "The archive ends within a record.");
}

function readRecord(data: Uint8Array): ArchiveRecord {
  let value: unknown;
  try {
    value = JSON.parse(fromUtf8(data));
  } catch (error) {
    throw new Invalid("record", "A record of the archive is no JSON.", { cause: error });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Invalid("record", "A record of the archive is no object.");
  }
  if (typeof (value as { record?: unknown }).record !== "string") {
    throw new Invalid("record", "A record of the archive does not say what it is.");
  }
  return value as ArchiveRecord;
}
