// What this page knows, and how it keeps up with the server.

import * as api from "./api.js";
import { setTimeZone } from "./format.js";

const FIRST_WAIT = 500,
  LONGEST_WAIT = 10000;

/** Holds everything public that the server told, and tells listeners when it changed. */
export class Store extends EventTarget {
  status = "connecting"; // connecting, live, reconnecting, offline, denied
  problem = "";
  stream = null;
  queries = null;
  web = null; // the site that the stream is about
  ledger = null;
  intrusions = null;
  evidence = null; // of audits, if the operator has declared any
  series = new Map(); // series name -> releases in order
  #wait = FIRST_WAIT;
  #stop = null;
  #retry = null;

  /** Connect, and stay connected until the token is refused. */
  async run() {
    this.#stop?.abort();
    const stop = (this.#stop = new AbortController());
    while (!stop.signal.aborted) {
      try {
        await this.load();
        await api.follow({
          last: this.#lastTime(),
          signal: stop.signal,
          opened: () => this.#enter("live"),
          got: (event, data) => this.#got(event, data),
        });
      } catch (error) {
        if (stop.signal.aborted || error.name === "AbortError") return;
        if (error.status === 401 || error.status === 403) return this.#enter("denied", error.message);
        this.problem = error.message;
      }
      if (stop.signal.aborted) return;
      this.#enter(navigator.onLine ? "reconnecting" : "offline", this.problem || "The connection was cut.");
      await this.#pause(stop.signal);
    }
  }

  /** Try again at once. */
  retry() {
    this.#wait = FIRST_WAIT;
    this.#retry?.();
  }

  /** Read everything but the stream of new answers. */
  async load() {
    const [queries, ledger, intrusions, health, releases] = await Promise.all([
      api.queries(),
      api.ledger(),
      api.intrusions(),
      api.health().catch(() => ({})), // 503 while the server stops
      this.series.size ? [] : api.releases().then((all) => all.releases),
    ]);
    setTimeZone(queries.stream.time_zone);
    Object.assign(this, { stream: queries.stream, web: queries.web, queries: queries.queries, ledger, intrusions });
    this.evidence = health.evidence ?? null;
    for (const release of releases) this.#add(release);
    // A question that answers every second must not push the days of another one out.
    if (releases.length >= api.MOST) {
      for (const { name } of this.queries) for (const each of (await api.releases(name)).releases) this.#add(each);
    }
    this.#changed("load");
  }

  /** Read again what changes with an answer or an announcement. */
  async refresh() {
    const [queries, ledger, intrusions] = await Promise.all([api.queries(), api.ledger(), api.intrusions()]);
    Object.assign(this, { queries: queries.queries, ledger, intrusions });
    this.#changed("load");
  }

  #refreshing = null;

  #got(event, data) {
    if (event === "release" && this.#add(data)) this.#changed("release", data);
    if (event === "ledger") this.ledger = data;
    this.#refreshing ??= setTimeout(() => {
      this.#refreshing = null;
      this.refresh().catch(() => {}); // the stream itself notices when the server is gone
    }, 150);
  }

  #add(release) {
    const known = this.series.get(release.series) ?? [];
    if (release.number > (known.at(-1)?.number ?? 0)) known.push(release);
    else if (known.some((other) => other.number === release.number)) return false;
    else (known.push(release), known.sort((a, b) => a.number - b.number));
    this.series.set(release.series, known);
    return true;
  }

  #lastTime() {
    let last = "";
    for (const releases of this.series.values()) for (const { time } of releases) if (time > last) last = time;
    return last;
  }

  #enter(status, problem = "") {
    if (status === "live") this.#wait = FIRST_WAIT;
    Object.assign(this, { status, problem });
    this.#changed("status");
  }

  #pause(signal) {
    const wait = this.#wait * (0.75 + Math.random() / 2);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
    return new Promise((done) => {
      const timer = setTimeout(done, wait);
      this.#retry = () => (clearTimeout(timer), done());
      signal.addEventListener("abort", this.#retry, { once: true });
    });
  }

  #changed(kind, detail) {
    this.dispatchEvent(new CustomEvent("change", { detail: { kind, detail } }));
  }
}
