// The page "Intrusions": what became known, whether it is covered, and announcing another with its price first.

import * as api from "./api.js";
import { h, say, show } from "./dom.js";
import { loss, many, moment } from "./format.js";

export const title = "Intrusions";

const ONE_MACHINE =
  "Every promise covers one copy of the memory that nobody noticed. When you learn that someone looked, announce " +
  "it: every question that supports it gets fresh noise, so that the next copy is covered too. Some questions " +
  "support it only if no row has come in since the copy.";
const TWO_MACHINES =
  "Every promise covers any number of copies of one machine at a time. Announce a break-in to keep it on record, and " +
  "to re-randomise the shares at once.";

export function page(store, { tell }) {
  const list = h("div");
  const price = h("div");
  const lead = h("p", { class: "lead" });
  const opener = h("button", { class: "main", type: "button" }, "Announce an intrusion…");
  const node = h(
    "div",
    null,
    h("h1", null, "Intrusions"),
    lead,
    h(
      "div",
      { class: "cards" },
      h(
        "section",
        { class: "card", "aria-labelledby": "known" },
        h("header", null, h("h2", { id: "known" }, "Announced so far")),
        list,
      ),
      h(
        "section",
        { class: "card", "aria-labelledby": "price" },
        h("header", null, h("h2", { id: "price" }, "What another one would cost")),
        price,
        opener,
      ),
    ),
  );
  const dialog = confirmation(store, tell, opener);
  opener.addEventListener("click", () => dialog.open());
  node.append(dialog.node);

  function update() {
    if (!store.intrusions) return;
    const { announced, price: rows } = store.intrusions;
    say(lead, store.queries.some((query) => query.claim.intrusions.machines) ? TWO_MACHINES : ONE_MACHINE);
    show(
      list,
      announced.length
        ? h(
            "ol",
            { class: "times" },
            announced.map(incident),
          )
        : h("p", { class: "left" }, "No break-ins reported."),
    );
    show(price, table(rows));
  }
  return { node, update };
}

const COPIED = { null: "copied at an unknown time", "just now": "copied just then" };

function incident({ announced, copied, verdicts }) {
  const name = ({ query, window }) => (window ? `${query}, window from ${moment(window)}` : query);
  return h(
    "li",
    null,
    h("time", { datetime: announced }, moment(announced)),
    ` (${COPIED[copied] ?? `copied at ${moment(copied)}`})`,
    h(
      "ul",
      { class: "verdicts" },
      verdicts.map((each) =>
        h("li", { "data-covered": String(each.covered) }, h("strong", null, name(each)), `: ${each.verdict}`),
      ),
    ),
  );
}

function table(rows) {
  return h(
    "div",
    null,
    h(
      "table",
      { class: "price" },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("th", { scope: "col" }, "Question"),
          h("th", { scope: "col" }, "Adds ε"),
          h("th", { scope: "col" }, "What happens"),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            { "data-refreshable": String(row.refreshable) },
            h("th", { scope: "row" }, row.query),
            h("td", null, row.epsilon === null ? "not offered" : loss(row.epsilon)),
            h("td", null, row.text),
          ),
        ),
      ),
    ),
  );
}

function confirmation(store, tell, opener) {
  const costs = h("div");
  const sure = h("input", { type: "checkbox", id: "sure" });
  const go = h("button", { class: "main danger", type: "submit", disabled: true }, "Announce now");
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const when = copyTime();
  const form = h(
    "form",
    null,
    h("h2", { id: "announce-title" }, "Announce an intrusion"),
    h("p", null, "This is recorded for good. It cannot be taken back."),
    costs,
    when.node,
    h(
      "p",
      { class: "check" },
      sure,
      h("label", { for: "sure" }, "I have read the price: someone has, or may have, copied the state."),
    ),
    problem,
    h(
      "div",
      { class: "row" },
      go,
      h("button", { class: "quiet", type: "button", onclick: () => node.close() }, "Cancel"),
    ),
  );
  const node = h("dialog", { "aria-labelledby": "announce-title", class: "wider" }, form);
  sure.addEventListener("change", () => (go.disabled = !sure.checked));
  node.addEventListener("close", () => opener.focus());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      const done = await api.announce(when.read());
      node.close();
      const safe = done.states.filter((state) => state.covered).length;
      tell(`Intrusion announced. ${safe} of ${many(done.states.length, "state")} covered.`);
      await store.refresh();
    } catch (error) {
      say(
        problem,
        error.status === 403 ? "Only a token with the scope admin can announce an intrusion." : error.message,
      );
      problem.hidden = false;
      go.disabled = false;
    }
  });

  async function open() {
    sure.checked = false;
    when.reset();
    go.disabled = true;
    problem.hidden = true;
    await store.refresh().catch(() => {});
    show(costs, table(store.intrusions.price));
    node.showModal();
  }
  return { node, open };
}

/** Ask when the state was copied: not known unless the operator says so. */
function copyTime() {
  const at = h("input", { type: "datetime-local", id: "copied-at", step: "1", "aria-label": "Time of the copy" });
  const choice = (value, label, ...more) => {
    const input = h("input", { type: "radio", name: "copied", id: `copied-${value}`, value });
    return [input, h("p", { class: "check" }, input, h("label", { for: input.id }, label), more)];
  };
  const [unknown, first] = choice("unknown", "I do not know");
  const [known, second] = choice("known", "At this time, by your clock:", at);
  const [now, third] = choice("now", "Just now, and no row has come in since");
  at.addEventListener("input", () => (known.checked = true));
  const legend = h("legend", null, "When was the state copied?");
  const node = h("fieldset", { class: "copied" }, legend, first, second, third);

  function read() {
    if (now.checked) return { just_now: true };
    if (!known.checked) return {};
    const moment = new Date(at.value);
    if (Number.isNaN(moment.getTime())) throw new Error("Give the date and time of the copy, or another answer.");
    return { copied_at: moment.toISOString() };
  }
  function reset() {
    unknown.checked = true;
    at.value = "";
  }
  return { node, read, reset };
}
