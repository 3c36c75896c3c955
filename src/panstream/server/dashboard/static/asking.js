// The question before an answer is used up: what it costs, and what is left after it.

import { h, say } from "./dom.js";
import { loss, many } from "./format.js";

/** A dialog that asks before `go()` runs; `opener` has the focus again when it is closed. */
export class Asking {
  constructor(id, opener, go) {
    this.title = h("h2", { id });
    this.cost = h("p");
    this.left = h("p", { class: "remains" });
    this.yes = h("button", { class: "main", type: "button", onclick: () => this.#go() });
    this.no = h(
      "button",
      { class: "quiet", type: "button", autofocus: true, onclick: () => this.node.close() },
      "Cancel",
    ); // a second Enter must not spend
    this.node = h(
      "dialog",
      { "aria-labelledby": id, class: "asking" },
      this.title,
      this.cost,
      this.left,
      h("div", { class: "row" }, this.yes, this.no),
    );
    this.go = go;
    this.node.addEventListener("close", () => opener.isConnected && !opener.hidden && opener.focus());
  }

  /** Say what another answer costs, and open. */
  open(query, made) {
    const { planned } = query.releases,
      { claim } = query;
    const after = planned - made - 1;
    const groups = query.series.length > 1 ? ` It answers for all ${query.series.length} groups at once.` : "";
    say(this.title, `Answer “${query.name}” now?`);
    say(
      this.cost,
      `This uses up one of the ${many(planned, "answer")} that ε = ${loss(claim.epsilon)} per ${claim.unit} ` +
        `pays for. It is published for good and cannot be taken back.${groups}`,
    );
    say(
      this.left,
      after > 0
        ? `${made === 0 ? "None" : made.toLocaleString("en")} published so far; ${many(after, "answer")} will be left.`
        : "This is the last one. No further answers can be requested for this question, whatever comes in.",
    );
    this.left.classList.toggle("last", after <= 0);
    say(this.yes, after > 0 ? "Use one answer" : "Use the last answer");
    this.node.showModal();
    this.no.focus();
  }

  #go() {
    this.node.close();
    this.go();
  }
}
