/**
 * Profile files and what was verified beside them, for Node, Deno and Bun: the Python client's own.
 *
 * Not here: what a profile's members mean (`settings.ts`). Browsers keep profiles elsewhere.
 *
 * - The environment wins over the profile. A profile that others could read is refused.
 * - A file is replaced at once, and is this user's alone.
 *
 * Source: client/README.md, of the Python client.
 */

import { constants } from "node:fs";
import { mkdir, open, rename, unlink } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, dirname, join, parse } from "node:path";
import process from "node:process";

import { ConfigError } from "./errors.ts";
import { randomUuid } from "./sealed/primitives.ts";
import type { Profile } from "./settings.ts";
import { mergeTrust, readTrustState, type TrustState, type TrustStore } from "./trust.ts";

const FILE_BYTES_MAX = 64 * 1024;
const VARIABLES = {
  url: "MEMRELAY_URL",
  account_id: "MEMRELAY_ACCOUNT_ID",
  private_key: "MEMRELAY_PRIVATE_KEY",
  namespace: "MEMRELAY_NAMESPACE",
  relayer_key: "MEMRELAY_RELAYER_KEY",
  custody: "MEMRELAY_CUSTODY",
  allow_insecure: "MEMRELAY_ALLOW_INSECURE",
} as const;
const REQUIRED = ["url", "account_id", "private_key"] as const;

type Environment = Readonly<Record<string, string | undefined>>;

/** Returns a profile's path: the argument, MEMRELAY_PROFILE, or the user's own folder. */
export function profilePath(path?: string, environment: Environment = process.env): string {
  const chosen = path ?? environment["MEMRELAY_PROFILE"];
  if (chosen) return expandHome(chosen);
  const base = environment["XDG_CONFIG_HOME"] || "~/.config";
  return join(expandHome(base), "memrelay", "profile.json");
}

function expandHome(path: string): string {
  return path === "~" || path.startsWith("~/") ? join(homedir(), path.slice(1)) : path;
}

/**
 * Returns the profile of the environment, completed by its file.
 *
 * @throws {ConfigError} something is missing, malformed or readable by others.
 */
export async function loadProfile(
  path?: string,
  environment: Environment = process.env,
): Promise<Profile> {
  const file = profilePath(path, environment);
  const data = await readPrivate(file);
  const isNamed = Boolean(path ?? environment["MEMRELAY_PROFILE"]);
  if (data === null && isNamed) {
    throw new ConfigError(`There is no profile at ${file}; make one with \`memrelay init\`.`);
  }
  const values: Record<string, unknown> = data === null ? {} : readMembers(file, data);
  for (const [name, variable] of Object.entries(VARIABLES)) {
    if (environment[variable]) values[name] = environment[variable];
  }
  values["allow_insecure"] = readTruth(values["allow_insecure"] ?? false);
  for (const name of REQUIRED) {
    if (typeof values[name] !== "string" || values[name] === "") {
      throw new ConfigError(`Set ${VARIABLES[name]}, or make a profile: \`memrelay init URL\`.`);
    }
  }
  return values as unknown as Profile;
}

function readMembers(file: string, text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The parser's own message could quote the private key.
    throw new ConfigError(`The profile ${file} is malformed; only JSON is read.`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ConfigError(`The profile ${file} is malformed.`);
  }
  const known = [...Object.keys(VARIABLES), "aliases"];
  const unknown = Object.keys(value).filter((name) => !known.includes(name));
  if (unknown.length > 0) {
    throw new ConfigError(`The profile ${file} has unknown members: ${unknown.sort().join(", ")}.`);
  }
  return value as Record<string, unknown>;
}

function readTruth(value: unknown): boolean {
  if (value === true || value === "1" || value === "true" || value === "yes") return true;
  if (value === false || value === "0" || value === "false" || value === "no") return false;
  throw new ConfigError("MEMRELAY_ALLOW_INSECURE is 1 or 0.");
}

/**
 * Writes a profile, which only this user may read.
 *
 * @throws {ConfigError} the folder cannot be written.
 */
export async function saveProfile(profile: Profile, path?: string): Promise<string> {
  const file = profilePath(path);
  const usual = { namespace: "default", relayer_key: null, custody: "auto", allow_insecure: false };
  await writePrivate(file, { ...usual, ...profile });
  return file;
}

/**
 * Keeps what was verified beside a profile, in the Python client's own file.
 *
 * Several processes may share it: what one has seen only rises. There is no lock, which Node does
 * not have: where two write at once, one's last rise may be seen again, and none is taken back.
 */
export class FileTrustStore implements TrustStore {
  readonly path: string;

  constructor(profile: string, accountId: string) {
    const { dir, name } = parse(profile);
    this.path = join(dir, `${name}.${accountId.slice(2, 18)}.seen.json`);
  }

  async read(): Promise<TrustState | null> {
    const text = await readPrivate(this.path);
    if (text === null) return null;
    try {
      return readTrustState(JSON.parse(text));
    } catch (error) {
      throw new ConfigError(`${this.path} is damaged; compare receipts, then remove it.`, {
        cause: error,
      });
    }
  }

  async write(state: TrustState): Promise<void> {
    const before = await this.read();
    const merged = before === null ? state : mergeTrust(state, before);
    if (JSON.stringify(merged) !== JSON.stringify(before)) await writePrivate(this.path, merged);
  }
}

async function readPrivate(path: string): Promise<string | null> {
  // Without O_NONBLOCK, a named pipe in the profile's place would hang the client.
  const flags = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0);
  let file;
  try {
    file = await open(path, flags);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new ConfigError(`${path} cannot be read: ${reasonOf(error)}.`, { cause: error });
  }
  try {
    const status = await file.stat();
    if (!status.isFile()) throw new ConfigError(`${path} is not a file.`);
    if (process.getuid && status.uid !== process.getuid()) {
      throw new ConfigError(`${path} belongs to another user.`);
    }
    if (process.platform !== "win32" && (status.mode & 0o077) !== 0) {
      throw new ConfigError(`Others may read ${path}; run \`chmod 600 ${path}\`.`);
    }
    if (status.size > FILE_BYTES_MAX) {
      throw new ConfigError(`${path} is too large: at most ${FILE_BYTES_MAX} bytes are read.`);
    }
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

async function writePrivate(path: string, value: object): Promise<void> {
  const beside = join(dirname(path), `.${basename(path)}.${randomUuid()}`);
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const file = await open(beside, "wx", 0o600);
    try {
      await file.writeFile(JSON.stringify(value, null, 2) + "\n");
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(beside, path);
  } catch (error) {
    await unlink(beside).catch(() => undefined);
    throw new ConfigError(`${path} cannot be written: ${reasonOf(error)}.`, { cause: error });
  }
}

/** Returns the system's word for what went wrong; what Deno does not allow has a name alone. */
function reasonOf(error: unknown): string {
  const { code, name } = error as NodeJS.ErrnoException;
  return code ?? name;
}
