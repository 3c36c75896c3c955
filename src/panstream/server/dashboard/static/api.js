// Talking to the server: one place that knows addresses and shapes. The token lives in this tab only.

const KEY = "panstream-token";

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** A refusal by the server, with its own words. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

/** The server cannot be reached. */
export class Unreachable extends Error {}

function headers(extra) {
  const given = token.get();
  return given ? { ...extra, Authorization: `Bearer ${given}` } : extra;
}

async function ask(path, { method = "GET", accept = "application/json", body, signal, last } = {}) {
  const sent = { Accept: accept };
  if (last) sent["Last-Event-ID"] = last;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method,
      signal,
      headers: headers(sent),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable("The server cannot be reached.");
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    const error = said.error ?? {};
    throw new Refused(answer.status, error.code ?? "", error.message ?? `The server answered ${answer.status}.`);
  }
  return answer;
}

const json = async (path, options) => (await ask(path, options)).json();

export const queries = () => json("v1/queries");
export const health = () => json("healthz");
export const MOST = 10000; // releases in one answer of the server
const about = (query) => (query === undefined ? "" : `&query=${encodeURIComponent(query)}`);
export const releases = (query) => json(`v1/releases?limit=${MOST}${about(query)}`);
export const file = async (query, format) =>
  (await ask(`v1/releases?limit=${MOST}&format=${format}${about(query)}`, { accept: "*/*" })).blob();
export const ledger = () => json("v1/ledger");
export const release = (name) => json(`v1/queries/${encodeURIComponent(name)}/release`, { method: "POST" });
export const intrusions = () => json("v1/intrusions");
/** Announce an intrusion; copy is {}, { copied_at: time } or { just_now: true }. */
export const announce = (copy) => json("v1/intrusions", { method: "POST", body: { confirm: true, ...copy } });

/**
 * Follow what is published as server-sent events. EventSource cannot send a token, so the stream is read by hand.
 * Calls opened() once and got(event, data) for each event; returns when the stream ends.
 */
export async function follow({ last, opened, got, signal }) {
  const answer = await ask("v1/releases", { accept: "text/event-stream", last, signal });
  opened();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Unreachable("The connection was cut.");
    }
    if (part.done) return;
    const blocks = (rest + part.value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const field = (name) =>
        lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).trimStart());
      const data = field("data");
      if (data.length) got(field("event")[0] ?? "message", JSON.parse(data.join("\n")));
    }
  }
}
