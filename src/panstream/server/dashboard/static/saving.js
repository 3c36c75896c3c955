// Answers as files: the server writes them, the browser keeps them.

import * as api from "./api.js";
import { h, say } from "./dom.js";

/** Buttons that save all answers of a question, as CSV for spreadsheets or as JSON. */
export function saving(query) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const save = async (format) => {
    problem.hidden = true;
    try {
      keep(await api.file(query.name, format), `${query.name.replace(/[^\w.-]+/g, "-")}.${format}`);
    } catch (error) {
      say(problem, error.message);
      problem.hidden = false;
    }
  };
  const button = (format, label) =>
    h("button", { class: "quiet", type: "button", onclick: () => save(format) }, `Save ${label}`);
  return h("div", { class: "saving" }, button("csv", "CSV"), button("json", "JSON"), problem);
}

function keep(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
