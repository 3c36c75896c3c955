// The page "What an intruder sees": a simulated day in this page. The live state is never shown, since showing it
// would be an intrusion.

import { colour, h, s, say, show } from "./dom.js";
import { chance, loss, many, number, odds } from "./format.js";
import * as model from "./model.js";

export const title = "What an intruder sees";

const SIZE = 9; // pixels of a cell
const EDGE = 4; // room for the mark of a cell at the edge
const DAYS = {
  morning: "in the morning, before the copy",
  afternoon: "in the afternoon, after the copy",
  both: "before and after the copy",
};

export function page() {
  const view = new Simulation();
  return { node: view.node, update: () => {} };
}

class Simulation {
  constructor() {
    this.id = h("input", {
      id: "who",
      type: "text",
      value: "maria@example.org",
      maxlength: "200",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.look(),
    });
    this.came = select("came", { no: "did not come", yes: "came" }, "yes", () => this.draw());
    this.when = select("when", DAYS, "morning", () => this.draw());
    this.epsilon = select(
      "epsilon",
      Object.fromEntries([...model.SPLITS.keys()].map((value) => [value, `ε = ${value}`])),
      "1",
      () => this.draw(),
    );
    this.people = h("input", {
      id: "people",
      type: "range",
      "aria-describedby": "crowd",
      min: "0",
      max: "600",
      step: "20",
      value: "200",
      oninput: () => (say(this.count, many(+this.people.value, "other visitor")), this.draw()),
    });
    this.count = h("span", { class: "count", id: "crowd" }, "200 other visitors");
    this.ours = h("canvas", { role: "img", class: "cells" });
    this.plain = h("canvas", { role: "img", class: "cells" });
    this.said = h("div", { class: "verdict" });
    this.node = h(
      "div",
      { class: "simulation" },
      h("h1", null, "What an intruder sees"),
      h(
        "p",
        { class: "lead" },
        "A fictional day, simulated in your browser. The live state is not shown here, because showing it would " +
          "itself be an intrusion.",
      ),
      h(
        "form",
        { class: "card controls", "aria-label": "The simulated day", onsubmit: (event) => event.preventDefault() },
        h("p", { class: "grow" }, h("label", { for: "who" }, "Anyone’s id"), this.id),
        h("p", null, h("label", { for: "came" }, "In truth"), this.came),
        h("p", { class: "grow" }, h("label", { for: "when" }, "The visit in question"), this.when),
        h("p", null, h("label", { for: "epsilon" }, "Privacy"), this.epsilon),
        h("p", null, h("label", { for: "people" }, "Others"), this.people, this.count),
        h("p", null, h("button", { class: "quiet", type: "button", onclick: () => this.draw() }, "Draw the day again")),
      ),
      h(
        "div",
        { class: "pictures" },
        h(
          "figure",
          null,
          h(
            "figcaption",
            null,
            h("b", null, "panstream’s memory at noon"),
            h(
              "span",
              null,
              "A filled cell says almost nothing: empty cells are often filled, and full ones often empty.",
            ),
          ),
          this.ours,
        ),
        h(
          "figure",
          null,
          h(
            "figcaption",
            null,
            h("b", null, "The same table without noise"),
            h("span", null, "What an ordinary sketch keeps: an empty cell proves that you never came."),
          ),
          this.plain,
        ),
      ),
      h(
        "section",
        { class: "card", "aria-labelledby": "verdict" },
        h("h2", { id: "verdict" }, "What she learns"),
        this.said,
      ),
      h(
        "p",
        { class: "small" },
        "The thief copies the memory once, at noon, and reads the answer in the evening. She knows the program, the " +
          `hash function and every other visitor: the worst case. Each id has one of ${model.CELLS} cells ` +
          `(${model.BUCKETS} per row, ${model.LEVELS} rows, half of all people in the first).`,
      ),
    );
    document.addEventListener("themechange", () => this.paint());
    this.draw();
  }

  draw() {
    this.when.disabled = false;
    this.rules = model.law(+this.epsilon.value);
    const crowd = Array.from({ length: +this.people.value }, (_, i) => `visitor ${i}`);
    const half = crowd.length / 2;
    const day = { morning: crowd.slice(0, half), afternoon: crowd.slice(half) };
    this.crowd = { morning: [...day.morning], afternoon: [...day.afternoon] };
    if (this.came.value === "yes")
      for (const part of ["morning", "afternoon"])
        if (this.when.value === part || this.when.value === "both") day[part].push(this.id.value);
    this.drawnFor = this.id.value;
    this.truth = new Set([...day.morning, ...day.afternoon]).size;
    this.run = model.simulate(day, this.rules);
    this.look();
  }

  look() {
    if (this.came.value === "yes" && this.id.value !== this.drawnFor) return this.draw();
    this.cell = model.cellOf(this.id.value);
    const others = (part) => new Set(this.crowd[part].filter((id) => id !== this.id.value).map(model.cellOf));
    this.others = { morning: others("morning"), afternoon: others("afternoon") };
    const { rules, run } = this;
    const { memory, both } = model.factors({
      cell: this.cell,
      when: this.when.value,
      others: this.others,
      seen: run.seen,
      published: run.published,
      rules,
    });
    const bound = Math.exp(rules.epsilon);
    const bit = run.seen[this.cell] ? "filled" : "empty";
    const told = run.seenExact[this.cell]
      ? this.others.morning.has(this.cell)
        ? "The cell is shared with someone else who came, so here it would prove nothing, by luck."
        : "She would know for certain that this person came."
      : this.when.value === "afternoon"
        ? "She would know for certain that this person had not come by noon."
        : "She would know for certain that this person did not come.";
    show(
      this.said,
      h(
        "p",
        null,
        "Suppose she starts at even odds (1 : 1). The cell of ",
        h("b", null, this.id.value || "(empty id)"),
        ` is ${bit}.`,
      ),
      h(
        "dl",
        { class: "odds" },
        h("dt", null, "before"),
        h("dd", null, odds(1), h("span", null, chance(1))),
        h("dt", null, "after the memory"),
        h("dd", { id: "odds-memory" }, odds(memory), h("span", null, chance(memory))),
        h("dt", null, "after memory and answer"),
        h("dd", { id: "odds-both" }, odds(both), h("span", null, chance(both))),
      ),
      scale(memory, both, rules.epsilon),
      h(
        "p",
        null,
        "Whatever is in the memory and whatever is published, the odds can change by a factor between " +
          `${loss(1 / bound)} and ${loss(bound)}: e`,
        h("sup", null, "±ε"),
        `, ε = ${rules.epsilon}.`,
      ),
      h("p", null, `Without noise: ${told}`),
      h(
        "p",
        { class: "small" },
        `Published in the evening: about ${number(model.estimate(run.published, rules))} visitors. ` +
          `In this simulation there were ${number(this.truth)}. A real table has several thousand cells per row and ` +
          "is several times as accurate.",
      ),
    );
    this.said.dataset.memory = String(Math.log(memory));
    this.said.dataset.both = String(Math.log(both));
    this.paint();
  }

  paint() {
    if (!this.run) return;
    paint(this.ours, this.run.seen, this.cell);
    paint(this.plain, this.run.seenExact, this.cell);
    this.ours.setAttribute("aria-label", `Noisy memory: ${fullness(this.run.seen, this.cell)}`);
    this.plain.setAttribute("aria-label", `Memory without noise: ${fullness(this.run.seenExact, this.cell)}`);
  }
}

function fullness(bits, cell) {
  const filled = bits.reduce((sum, bit) => sum + bit, 0);
  return `${filled} of ${model.CELLS} cells are filled; the cell in question is ${bits[cell] ? "filled" : "empty"}.`;
}

function select(id, choices, chosen, change) {
  return h(
    "select",
    { id, onchange: change },
    Object.entries(choices).map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
  );
}

const place = (cell) => [(cell % model.BUCKETS) * SIZE + EDGE, Math.floor(cell / model.BUCKETS) * SIZE + EDGE];

function paint(canvas, bits, marked) {
  const ratio = Math.max(2, window.devicePixelRatio || 1);
  canvas.width = (model.BUCKETS * SIZE + 2 * EDGE) * ratio;
  canvas.height = (model.LEVELS * SIZE + 2 * EDGE) * ratio;
  const brush = canvas.getContext("2d");
  brush.scale(ratio, ratio);
  const [full, none, mark] = [colour("--ink"), colour("--line"), colour("--accent")];
  for (let at = 0; at < bits.length; at++) {
    const [x, y] = place(at);
    brush.fillStyle = bits[at] ? full : none;
    brush.globalAlpha = bits[at] ? 0.78 : 0.7;
    brush.fillRect(x + 1, y + 1, SIZE - 2, SIZE - 2);
  }
  brush.globalAlpha = 1;
  const [x, y] = place(marked);
  brush.fillStyle = bits[marked] ? mark : colour("--paper");
  brush.fillRect(x, y, SIZE, SIZE);
  brush.strokeStyle = mark;
  brush.lineWidth = 2.5;
  brush.strokeRect(x - 1, y - 1, SIZE + 2, SIZE + 2);
}

/** The odds on a logarithmic scale, between the two bounds that hold for any view. */
function scale(memory, both, epsilon) {
  const at = (factor) => 200 + (Math.log(factor) / epsilon) * 190;
  const point = (factor, y, name) => [
    s("line", { class: "from", x1: 200, x2: at(factor), y1: y, y2: y }),
    s("circle", { class: name, cx: at(factor), cy: y, r: 5 }),
  ];
  return h(
    "div",
    { class: "scale" },
    s(
      "svg",
      {
        viewBox: "0 0 400 56",
        role: "img",
        "aria-label":
          "On a scale from e to the minus epsilon to e to the epsilon, the odds are at " +
          `${odds(memory)} after the memory and ${odds(both)} after memory and answer.`,
      },
      s("rect", { class: "zone", x: 10, y: 4, width: 380, height: 48, rx: 6 }),
      s("line", { class: "middle", x1: 200, x2: 200, y1: 0, y2: 56 }),
      point(memory, 19, "one"),
      point(both, 37, "two"),
    ),
    h(
      "p",
      { "aria-hidden": "true" },
      h("span", null, "e", h("sup", null, "−ε")),
      h("span", null, "1 : 1"),
      h("span", null, "e", h("sup", null, "ε")),
    ),
  );
}
