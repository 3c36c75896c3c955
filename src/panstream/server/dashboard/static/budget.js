// The page "Budget": what was spent per unit, of what limit, on which question.

import { h, show } from "./dom.js";
import { loss } from "./format.js";

export const title = "Budget";

export function page(store) {
  const list = h("div", { class: "cards" });
  const node = h("div", null, h("h1", null, "Budget"),
    h("p", { class: "lead" }, "The most that one person, event or window can lose to a thief of the memory and a reader of every answer together. Different units are never added up. A question is charged once, when it first runs."), list);
  return { node, update: () => store.ledger && show(list, gauges(store)) };
}

function gauges(store) {
  const { totals, entries } = store.ledger;
  if (!totals.length) return h("div", { class: "empty" }, h("h2", null, "Nothing was spent yet"));
  return totals.map((total) => {
    const mine = entries.filter((entry) => entry.unit === total.unit && entry.adjacency === total.adjacency);
    const spent = total.epsilon === "inf" ? Infinity : total.epsilon;
    const full = total.limit ?? spent;
    const name = `gauge-${total.unit}-${total.adjacency}`;
    const words = total.limit === null ? `ε ${loss(spent)} spent, no limit declared` : `ε ${loss(spent)} of ${loss(total.limit)} spent`;
    const used = total.limit === null ? null : spent / total.limit;
    return h("section", { class: "card gauge", "aria-labelledby": name, "data-full": String(used !== null && used > 0.999) },
      h("header", null, h("h2", { id: name }, `Per ${total.unit}`), h("p", { class: "chip" }, `${store.stream.name}, ${total.adjacency}`)),
      h("p", { class: "figure" }, loss(spent), h("small", null, total.limit === null ? " ε, no limit declared" : ` of ${loss(total.limit)} ε`)),
      bar(mine, full, words, total.limit !== null),
      h("p", { class: "left" }, used === null ? "Declare [stream.budget] to have new questions refused beyond a limit."
        : used > 0.999 ? "Used up: a new question per " + total.unit + " will be refused." : `${loss(total.limit - spent)} left for new questions.`),
      h("div", { class: "scroll" }, h("table", null,
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "Question"), h("th", { scope: "col" }, "ε"), h("th", { scope: "col" }, "Share"))),
        h("tbody", null, mine.map((entry, at) => h("tr", null, h("th", { scope: "row" }, h("span", { class: `swatch shade-${at % 5}` }), entry.name), h("td", null, loss(entry.epsilon)), h("td", null, share(entry.epsilon, full))))))));
  });
}

function bar(entries, full, words, limited) {
  const known = Number.isFinite(full) && full > 0;
  const track = h("div", { class: limited ? "bar" : "bar open", role: "meter", "aria-label": words, "aria-valuemin": "0", "aria-valuemax": known ? String(full) : "1", "aria-valuenow": known ? String(entries.reduce((sum, entry) => sum + Number(entry.epsilon), 0)) : "1", "aria-valuetext": words });
  entries.forEach((entry, at) => {
    const part = h("span", { class: `part shade-${at % 5}`, title: `${entry.name}: ε ${loss(entry.epsilon)}` });
    part.style.width = known ? `${(100 * entry.epsilon) / full}%` : `${100 / entries.length}%`;
    track.append(part);
  });
  return track;
}

const share = (epsilon, full) => (Number.isFinite(full) && full > 0 ? `${((100 * epsilon) / full).toLocaleString("en", { maximumFractionDigits: 1 })}%` : "–");
