// The groups of a question: one row each, with its bar and interval; many of them sorted, and found by typing.

import { h, say, show } from "./dom.js";
import { answer } from "./format.js";
import { ends } from "./periods.js";
import { bar, span } from "./pictures.js";

const FEW = 8; // so many stand as they were declared, without a search box
const FIRST = 12; // rows before more are asked for

/** What a series is about, apart from its question: `north`, or `total, north` where there are several answers. */
function nameOf(query, series, release) {
  const [, base, listed = ""] = series.match(/^(.*?)(?: \[(.*)\])?$/s);
  const group = release?.group ? Object.values(release.group).join(", ") : listed.replace(/(^|, )[^=,]+=/g, "$1");
  const output = query.outputs.length > 1 ? query.outputs.find(({ name }) => base.endsWith(`.${name}`))?.name : "";
  return [output, group].filter(Boolean).join(", ") || base;
}

/** A name of a list as an answer of its own. */
const asAnswer = (release, { count, interval, standard_error }) => ({
  ...release,
  value: count,
  unclipped: count,
  interval,
  standard_error,
});

/** The answers about one name of all lists that have it. */
function named(lists, name) {
  const found = (release) => release.items.find((item) => item.name === name);
  return lists.filter(found).map((release) => asAnswer(release, found(release)));
}

/**
 * What a question has answers about, apart from itself: the names of its latest list, in their order, or its groups.
 * Each has an id, a name, its last answer, and all of them; with `until`, of answers about times before it.
 */
export function groupsOf(query, store, until = Infinity) {
  const answers = (series) => (store.series.get(series) ?? []).filter((release) => ends(release) <= until);
  const lists = answers(query.series[0]);
  const latest = lists.at(-1);
  if (latest?.items) {
    return latest.items.map((item) => ({
      id: `name ${item.name}`,
      name: String(item.name),
      last: asAnswer(latest, item),
      all: () => named(lists, item.name),
    }));
  }
  if (query.series.length < 2) return [];
  return query.series.map((series) => {
    const known = answers(series);
    return { id: series, name: nameOf(query, series, known.at(-1)), last: known.at(-1), all: () => known };
  });
}

/** Groups with the largest first; a list of names has its own order. */
export function ranked(groups) {
  if (groups[0]?.last?.items) return groups;
  const size = ({ last }) => last?.value ?? -Infinity;
  return [...groups].sort((a, b) => size(b) - size(a));
}

/** The list; `choose(id)` hears which one is to be shown. */
export class Groups {
  constructor(query, choose) {
    this.choose = choose;
    this.search = h("input", {
      type: "search",
      placeholder: "Find a name",
      "aria-label": `Find a name in ${query.name}`,
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.update(this.groups, this.chosen),
    });
    this.note = h("p", { class: "small" });
    this.rest = h("p", { class: "small", role: "status" });
    this.list = h("ul", { class: "groups" });
    this.all = h("button", { type: "button", class: "quiet", onclick: () => this.#open() });
    this.node = h("div", { class: "grouped" }, this.search, this.list, this.all, this.rest, this.note);
  }

  update(groups, chosen) {
    Object.assign(this, { groups, chosen });
    const many = groups.length > FEW;
    const wanted = this.search.value.trim().toLowerCase();
    const found = (many ? ranked(groups) : groups).filter(({ name }) => name.toLowerCase().includes(wanted));
    const shown = this.opened || wanted ? found.length : FIRST;
    const scale = span(groups.flatMap(({ last }) => last ?? []));
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    this.search.hidden = !many;
    show(
      this.list,
      found.slice(0, shown).map((each) => h("li", null, this.#row(each, scale))),
    );
    if (focused) [...this.list.querySelectorAll("button")].find((each) => each.dataset.id === focused)?.focus();
    this.all.hidden = found.length <= shown;
    say(this.all, `Show all ${found.length.toLocaleString("en")}`);
    say(this.rest, found.length || !wanted ? "" : "Nothing of this name is listed.");
    const least = groups[0]?.last?.listing_threshold;
    say(
      this.note,
      least ? `Names with at least ${Math.ceil(least).toLocaleString("en")} events are listed (95%).` : "",
    );
  }

  #open() {
    this.opened = true;
    this.update(this.groups, this.chosen);
    this.list.children[FIRST].querySelector("button").focus(); // the button that was pressed is gone
  }

  #row({ id, name, last }, scale) {
    const said = last && answer(last);
    return h(
      "button",
      {
        type: "button",
        class: "group",
        "data-id": id,
        "aria-pressed": String(id === this.chosen),
        onclick: () => this.choose(id),
      },
      h("span", { class: "key" }, name),
      bar(last, scale),
      h(
        "span",
        { class: "number" },
        said ? h("b", null, last.too_uncertain ? "uncertain" : said.value) : "–",
        said && h("small", null, last.description ? "" : `${said.low} to ${said.high}`),
      ),
    );
  }
}
