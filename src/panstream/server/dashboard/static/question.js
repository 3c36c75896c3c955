// The page of one question: its latest answer, its history, its groups, and what is left to ask.

import * as api from "./api.js";
import { Asking } from "./asking.js";
import { about, History, seen } from "./chart.js";
import { asksRetention, Cohorts } from "./cohorts.js";
import { h, say, show } from "./dom.js";
import { first } from "./first.js";
import { answer, loss, many, moment } from "./format.js";
import { Groups, groupsOf } from "./groups.js";
import { rhythm } from "./overview.js";
import { newest, PERIODS, ends, within } from "./periods.js";
import { address, picker } from "./picker.js";
import { saving } from "./saving.js";
import { long } from "./trend.js";

export const title = "Question";

/** Return the page; the question is named by the address. */
export function page(store, { choose }) {
  const cards = new Map(),
    periods = picker(choose);
  const back = h("a", { class: "back" }, "← All questions"),
    place = h("div");
  const node = h("div", null, h("div", { class: "head" }, back, periods.node), place);

  function update({ name, period }) {
    periods.update(period);
    back.href = address("overview", period);
    if (!store.queries) return;
    const query = store.queries.find((each) => each.name === name);
    if (!query) return show(place, h("div", { class: "empty" }, h("h1", null, "There is no such question")));
    if (!cards.has(name)) cards.set(name, new Card(store, query));
    const card = cards.get(name);
    if (place.firstChild !== card.node) show(place, card.node);
    card.update(query, period);
  }
  return { node, update };
}

const HEADS = ["#", "About", "Published", "Value", "95% from", "to"];

class Card {
  constructor(store, query) {
    this.store = store;
    this.chosen = null; // the id of a group
    const id = "question-name";
    this.whose = h("h2", { class: "whose" });
    this.value = h("p", { class: "figure" });
    this.range = h("p", { class: "range" });
    this.when = h("p", { class: "when" });
    this.left = h("p", { class: "left" });
    this.unsure = h("p", { class: "unsure" });
    this.changes = h("div", { class: "changes" });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.button = h(
      "button",
      { class: "main", type: "button", "aria-haspopup": "dialog", onclick: () => this.#ask() },
      "Answer now",
    );
    this.asking = new Asking("asking-title", this.button, () => this.#release());
    this.groups = new Groups(query, (group) => this.#choose(group));
    this.history = new History(`History of ${query.name}`);
    this.key = h("p", { class: "key-earlier", hidden: true });
    this.table = h("tbody");
    this.more = h(
      "details",
      { class: "more", ontoggle: () => this.#rows() },
      h("summary", null, "History as a table"),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "History as a table" },
        h(
          "table",
          null,
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              HEADS.map((head) => h("th", { scope: "col" }, head)),
            ),
          ),
          this.table,
        ),
      ),
    );
    this.cohorts = asksRetention(query) ? new Cohorts(query.name) : null;
    this.side = h("div", { class: "side" }, this.history.node, this.key, this.groups.node);
    this.node = h(
      "section",
      { class: "card", "aria-labelledby": id },
      h("header", null, h("h1", { id }, query.name), h("p", { class: "chip" }, rhythm(query))),
      h(
        "div",
        { class: "split" },
        h(
          "div",
          { class: "latest" },
          this.whose,
          this.value,
          this.range,
          this.unsure,
          this.when,
          this.changes,
          this.left,
          this.button,
          this.problem,
        ),
        this.side,
      ),
      this.cohorts?.node,
      h("div", { class: "under" }, promise(query), this.more, saving(query)),
      this.asking.node,
    );
  }

  update(query, period) {
    Object.assign(this, { query, period });
    const groups = groupsOf(query, this.store);
    const { id, name, all } = this.#about(query, groups);
    const last = all.at(-1),
      said = last && answer(last);
    const { additive } = query.outputs[Math.max(0, query.series.indexOf(id)) % query.outputs.length];
    this.end = newest(query, this.store);
    this.known = within(all, period, this.end);
    say(this.whose, name);
    say(this.value, last ? said.shown : "No answer yet");
    this.value.classList.toggle("none", !last);
    this.value.classList.toggle("words", Boolean(last?.description || last?.too_uncertain));
    say(
      this.unsure,
      last?.too_uncertain ? `The range is too wide for the answer to mean much. What would help: ${last.help}.` : "",
    );
    say(this.range, last ? said.range : "");
    say(this.when, last ? published(last) : first(query));
    const wanted = `${id} ${period} ${this.end} ${all.length}`;
    if (wanted !== this.drawn) {
      show(this.changes, last ? long(query, additive, all, period, this.end) : []);
      this.groups.node.hidden = !groups.length;
      this.groups.update(groups, id);
      this.#chart(all);
    }
    this.drawn = wanted;
    this.cohorts?.update(query, this.store, id);
    this.#left(query, last);
    this.#rows();
  }

  /** What is shown: the group that was chosen, else the first one, or the whole list of names. */
  #about(query, groups) {
    const lists = this.store.series.get(query.series[0]) ?? [],
      listed = lists.at(-1)?.items;
    const found = groups.find(({ id }) => id === this.chosen) ?? (listed ? undefined : groups[0]);
    if (found) return { ...found, all: found.all() };
    return { id: query.series[0], name: listed ? "Any name" : "", all: lists };
  }

  #left(query, last) {
    const { planned } = query.releases;
    const made = Math.max(query.releases.made, last?.number ?? 0); // an answer may be here before its count
    const all =
      planned === 1
        ? "The only answer has been published."
        : `All ${many(planned ?? 0, "answer")} have been published.`;
    say(
      this.left,
      planned === null
        ? `${many(made, "answer")} so far`
        : query.finished
          ? `${all} No further answers can be requested for this question.`
          : `${made.toLocaleString("en")} of ${many(planned, "answer")} published`,
    );
    this.left.classList.toggle("spent", query.finished && query.on_demand);
    this.button.hidden = !query.on_demand || query.finished;
  }

  /** Draw the period, and the one before as a dashed line where answers of the two can be laid over each other. */
  #chart(all) {
    const { query, period, known } = this,
      window = query.every === null ? (query.window ?? 0) : 0;
    const shift = PERIODS[period].seconds;
    const earlier =
      query.window !== null && Number.isFinite(shift)
        ? all.filter((each) => ends(each) <= this.end - shift && ends(each) > this.end - 2 * shift)
        : [];
    this.history.node.hidden = known.length < 2;
    this.side.hidden = this.groups.node.hidden && known.length < 2;
    if (known.length > 1) this.history.update(known, { window, earlier, shift });
    this.key.hidden = known.length < 2 || earlier.length < 2;
    show(this.key, h("span", { class: "dash", "aria-hidden": "true" }), ` ${PERIODS[period].before}`);
  }

  /** Fill the table, if it is open and something is new: building it is the dearest part of a page. */
  #rows() {
    const known = this.known ?? [];
    this.more.hidden = known.length < 1;
    const wanted = `${this.drawn} ${known.length} ${known.at(-1)?.number}`;
    if (!this.more.open || wanted === this.tabled) return;
    this.tabled = wanted;
    show(
      this.table,
      known
        .slice(-500)
        .reverse()
        .map((release) => {
          const { value, low, high } = answer(release); // the number stays readable here
          const texts = [String(release.number), about(release), moment(release.time), value, low, high];
          return h(
            "tr",
            null,
            texts.map((text) => h("td", null, text)),
          );
        }),
    );
  }

  #choose(group) {
    this.chosen = this.chosen === group ? null : group;
    this.update(this.query, this.period);
  }

  #ask() {
    const last = this.store.series.get(this.query.series[0])?.at(-1);
    this.asking.open(this.query, Math.max(this.query.releases.made, last?.number ?? 0));
  }

  async #release() {
    this.button.disabled = true;
    this.problem.hidden = true;
    try {
      await api.release(this.query.name);
    } catch (error) {
      say(this.problem, error.message);
      this.problem.hidden = false;
    }
    this.button.disabled = false;
    await this.store.refresh().catch(() => {});
    if (this.button.hidden) {
      this.left.tabIndex = -1; // the button is gone: keep the keyboard where it was
      this.left.focus();
    }
  }
}

// What an answer is about, its number, and when it was published.
function published(answer) {
  const when = [moment(answer.time), ...(answer.window ? [] : seen(answer))].join(", ");
  return `${answer.window ? `${about(answer)}, ` : ""}answer ${answer.number}, published ${when}`;
}

function promise(query) {
  const { claim } = query,
    { unannounced, announced, machines, together, freezes } = claim.intrusions;
  const locations = claim.locations.join(" and ");
  const both = together ? "both in one epoch once at most" : "both never in one epoch";
  const copies = machines
    ? `any number of undetected copies of one machine at a time (${locations}), ${both}`
    : `${many(unannounced, "undetected copy", "undetected copies")} of ${locations}`;
  const late = freezes ? " (covered only if no row was applied between the copy and the refresh)" : "";
  const rows = [
    ["Question", h("code", null, query.sql)],
    ["Protects", `one ${claim.unit} (${claim.adjacency}), ε = ${loss(claim.epsilon)}`],
    ["Against", `${copies}${announced ? `, ${announced} announced${late}` : ""}, together with every answer`],
    ["Depends on", claim.assumption],
    ["Algorithm", `${query.algorithm}, ${query.state_bytes.toLocaleString("en")} bytes. ${query.why}`],
    ["Not protected", claim.public.join("; ")],
    ["Note", claim.note],
  ];
  return h(
    "details",
    { class: "more" },
    h("summary", null, `Promise: ε = ${loss(claim.epsilon)} per ${claim.unit}`),
    h(
      "dl",
      null,
      rows.filter(([, text]) => text).map(([name, text]) => [h("dt", null, name), h("dd", null, text)]),
    ),
  );
}
