// When a question that has no answer yet will have one.

import { duration, moment } from "./format.js";

/** Said on a card without an answer. */
export function first(query) {
  if (query.next_answer) return `first answer: ${moment(query.next_answer)}`;
  const length = query.every ?? query.window;
  if (length !== null) return `first answer: after the first rows that are later than a whole ${duration(length)}`;
  return query.on_demand ? "no answer yet: it is given when asked for" : "no answer yet";
}
