// Cards of the page "Site" that are not about figures: what a thief would see, the visitors' page, sharing.

import { h } from "./dom.js";
import { number } from "./format.js";

/** Whether two machines hold what is counted. */
export const isShared = (queries) => queries.some(({ claim }) => claim.intrusions.machines);

/** What a copy of the server is worth. */
export function thief(queries) {
  const worst = Math.max(...queries.map(({ claim }) => (claim.epsilon === "inf" ? Infinity : claim.epsilon)));
  const locations = new Set(queries.flatMap(({ claim }) => claim.locations));
  const copied = locations.has("disk") ? "memory and disk" : "memory",
    shared = isShared(queries);
  return h(
    "section",
    { class: "card" },
    h("h2", null, "What a thief would see"),
    h(
      "p",
      null,
      shared
        ? "Two machines hold what is counted as shares, and each share alone is random. Whoever copies one of them " +
            "at a time, as often as they like, and never both in one epoch, finds no addresses, no visitors’ ids and " +
            "no salt. This server itself keeps only the answers. From all of that, the odds of a right guess about "
        : `Whoever copies this server’s ${copied} finds no addresses, no visitors’ ids and no salt: only cells that ` +
            "were random from the start, and the answers on this page. From one copy and all answers, the odds of a " +
            "right guess about ",
      `what a question protects change by a factor of at most ${number(Math.exp(worst))} for each question`,
      queries.some(({ claim }) => claim.delta)
        ? " (where δ is given, not always, but with a probability close to 1: see the privacy page). "
        : ". ",
      "What all questions together show about one visitor is at the top of this page. " +
        "Rows that have just arrived and are not yet counted are readable.",
    ),
    h("p", null, h("a", { href: "#/intruder" }, "Try it in a simulation")),
  );
}

export function visitors() {
  return h(
    "section",
    { class: "card" },
    h("h2", null, "For your visitors"),
    h("p", null, "This server has a page in plain words about what is counted. Link to it from your site."),
    h("p", null, h("a", { href: "privacy" }, "Privacy page for visitors")),
  );
}

export function sharing() {
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Share this page"),
    h(
      "p",
      null,
      "A link with a token of its own shows all answers and changes nothing. Make one where the token file is:",
    ),
    h("pre", null, h("code", null, `panstream token tokens public \\\n  --scope read \\\n  --link ${location.origin}`)),
    h("p", { class: "small" }, "To end it, remove the token’s line from the file and restart the server."),
  );
}
