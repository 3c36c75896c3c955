// The page "Budget": what one unit can lose to all questions together, of what limit, to which question.

import { h, show } from "./dom.js";
import { duration, loss, moment, number } from "./format.js";

export const title = "Budget";

export function page(store) {
  const list = h("div", { class: "cards" }),
    sentence = h("p", { class: "lead person" }),
    audits = h("p", { class: "lead audits" });
  const node = h(
    "div",
    null,
    h("h1", null, "Budget"),
    h(
      "p",
      { class: "lead" },
      "The most that one person, event or window can lose to someone who steals the memory and reads every answer.",
    ),
    sentence,
    audits,
    h(
      "p",
      { class: "lead" },
      "Below is what limits are checked against: the loss to each question, added up as if every window of it were " +
        "copied, so it can be larger than the number for one person above, which is about one copy. An event counts " +
        "towards every question that reads it. A question is charged once, when it first runs.",
    ),
    list,
  );
  return {
    node,
    update() {
      if (!store.ledger) return;
      show(sentence, personSentence(store));
      show(audits, auditSentence(store.evidence));
      show(list, gauges(store));
    },
  };
}

/** When the audits were run on this machine, and with which result; null if the operator declares no evidence. */
function auditSentence(evidence) {
  if (!evidence) return null;
  if (evidence.error) return `Signed evidence of audits cannot be used: ${evidence.error}.`;
  const result = evidence.passed ? "all passed" : "not all passed";
  const others = [
    !evidence.this_configuration && "with another configuration",
    !evidence.this_version && `with version ${evidence.version}`,
    !evidence.positive_controls && "without injected leaks",
  ].filter(Boolean);
  return `Audits of ${moment(evidence.date)}, signed: ${result}${others.length ? `, ${others.join(", ")}` : ""}.`;
}

/** What one person loses over the period to all questions and one intrusion, in words. */
export function personSentence({ ledger: { person }, web }) {
  const who = web ? "visitor" : "user",
    span = `in any ${duration(person.period)}`,
    { epsilon, delta, loss: power, chance } = person.bounded_total;
  const cost = `ε\u00a0${loss(epsilon)}${delta ? `, δ\u00a0${delta.toExponential(0)}` : ""}`;
  const odds =
    `one copy of what this server stores and all answers together change the odds of a guess about it by a factor of ` +
    `at most ${factor(power)}${oneIn(chance)} (${cost})`;
  if (person.bounded) {
    const limit = person.limit === null ? "" : `, of ${loss(person.limit)} declared`;
    return `Whatever one ${who} did ${span}: ${odds}${limit}.`;
  }
  const bounded = person.shares.filter(({ epsilon }) => epsilon !== "inf");
  const rest = bounded.length
    ? ` To the other ${bounded.length} (${bounded.map(({ name }) => name).join(", ")}): whatever one ${who} did ` +
      `${span}, ${odds}.`
    : "";
  const without = person.shares.length - bounded.length;
  const which = without === 1 ? "1 question protects" : `${without} questions protect`;
  return (
    `Not bounded: what all answers show about one ${who} ${span} has no limit, since ${which} single events and ` +
    `nothing limits how many one ${who} has.${rest}`
  );
}

const factor = (power) => (power > 7 ? `e^${loss(power)}` : number(Math.exp(power)));
const oneIn = (chance) => (chance ? `, but for one chance in ${number(Math.floor(1 / chance))}` : "");

function gauges(store) {
  const { totals } = store.ledger;
  if (!totals.length) return h("div", { class: "empty" }, h("h2", null, "Nothing has been spent yet"));
  return totals.map((total) => {
    const spent = total.epsilon === "inf" ? Infinity : total.epsilon;
    const full = total.limit ?? spent;
    const name = `gauge-${total.unit}-${total.adjacency}-${total.window ?? ""}`;
    const words = !total.bounded
      ? "Not bounded"
      : total.limit === null
        ? `ε ${loss(spent)} spent, no limit declared`
        : `ε ${loss(spent)} of ${loss(total.limit)} spent`;
    const used = total.limit === null ? null : spent / total.limit;
    return h(
      "section",
      { class: "card gauge", "aria-labelledby": name, "data-full": String(used !== null && used > 0.999) },
      h(
        "header",
        null,
        h("h2", { id: name }, `Per ${total.protects}`),
        h("p", { class: "chip" }, `${store.stream.name}, ${total.adjacency}`),
      ),
      h(
        "p",
        { class: "figure" },
        total.bounded ? loss(spent) : "Not bounded",
        total.bounded &&
          h("small", null, total.limit === null ? " ε, no limit declared" : ` of ${loss(total.limit)} ε`),
      ),
      bar(total.parts, full, words, total.limit !== null),
      h(
        "p",
        { class: "left" },
        !total.bounded
          ? `${total.reason}.`
          : used === null
            ? "Declare [stream.budget] to have new questions refused beyond a limit."
            : used > 0.999
              ? `Used up: a new question that touches this ${total.unit} will be refused.`
              : `${loss(total.limit - spent)} left for new questions.`,
      ),
      h(
        "div",
        { class: "shares" },
        h(
          "table",
          null,
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              h("th", { scope: "col" }, "Question"),
              h("th", { scope: "col" }, "ε"),
              h("th", { scope: "col" }, "Share"),
            ),
          ),
          h(
            "tbody",
            null,
            total.parts.map((part, at) =>
              h(
                "tr",
                null,
                h("th", { scope: "row" }, h("span", { class: `swatch shade-${at % 5}` }), part.name),
                h("td", null, loss(part.epsilon)),
                h("td", null, share(part.epsilon, full)),
              ),
            ),
          ),
        ),
      ),
    );
  });
}

function bar(parts, full, words, limited) {
  const known = Number.isFinite(full) && full > 0;
  const track = h("div", {
    class: limited ? "bar" : "bar open",
    role: "meter",
    "aria-label": words,
    "aria-valuemin": "0",
    "aria-valuemax": known ? String(full) : "1",
    "aria-valuenow": known ? String(parts.reduce((sum, part) => sum + Number(part.epsilon), 0)) : "1",
    "aria-valuetext": words,
  });
  parts.forEach((part, at) => {
    const piece = h("span", { class: `part shade-${at % 5}`, title: `${part.name}: ε ${loss(part.epsilon)}` });
    piece.style.width = known ? `${(100 * part.epsilon) / full}%` : `${100 / parts.length}%`;
    track.append(piece);
  });
  return track;
}

const share = (epsilon, full) =>
  Number.isFinite(full) && full > 0
    ? `${((100 * epsilon) / full).toLocaleString("en", { maximumFractionDigits: 1 })}%`
    : "–";
