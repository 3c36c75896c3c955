// Puts the page together: status, pages, token, theme.

import { token } from "./api.js";
import * as budget from "./budget.js";
import { h, printable, say, show } from "./dom.js";
import { answer } from "./format.js";
import * as intruder from "./intruder.js";
import * as intrusions from "./intrusions.js";
import * as overview from "./overview.js";
import { address, parse } from "./picker.js";
import * as question from "./question.js";
import * as site from "./site.js";
import { Store } from "./store.js";

const PAGES = { site, overview, question, budget, intrusions, intruder };
const WORDS = {
  connecting: "Connecting",
  live: "Live",
  reconnecting: "Reconnecting",
  offline: "Offline",
  denied: "Token needed",
};
const find = (id) => document.getElementById(id);
const store = new Store();
const shown = new Map();
let current = null;

const QUIET = 10000; // milliseconds between two answers that are read out: a stream may answer every second
let spokenAt = -QUIET;

/** Have an answer read out, unless one was a moment ago. */
function speak(text) {
  if (performance.now() - spokenAt < QUIET) return;
  spokenAt = performance.now();
  find("spoken").textContent = printable(text);
}

/** Have the outcome of what the reader did read out. */
function tell(text) {
  find("told").textContent = printable(text);
}

/** Take the token of a shared link out of the address, and keep it in this tab. */
function shared() {
  const [path, rest] = location.hash.split("?"),
    given = new URLSearchParams(rest ?? "");
  if (!given.has("token")) return false;
  token.set(given.get("token"));
  given.delete("token");
  history.replaceState(null, "", given.size ? `${path}?${given}` : path);
  return true;
}

function route() {
  if (location.hash === "#main") return;
  if (shared() && current !== null) store.run();
  const wanted = parse(location.hash);
  if (!Object.hasOwn(PAGES, wanted.page)) wanted.page = store.web ? "site" : "overview";
  const first = current === null,
    moved = wanted.page !== current?.page || wanted.name !== current?.name;
  current = wanted;
  if (!shown.has(wanted.page)) shown.set(wanted.page, PAGES[wanted.page].page(store, { tell, choose }));
  if (moved) show(find("main"), shown.get(wanted.page).node);
  document.title = `${printable(wanted.name || PAGES[wanted.page].title)}, panstream`;
  for (const link of document.querySelectorAll("nav a")) {
    const page = parse(link.hash).page,
      here = page === wanted.page;
    if (page === "overview") link.href = address(page, wanted.period);
    if (here || (page === "overview" && wanted.page === "question"))
      link.setAttribute("aria-current", here ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
  update();
  if (!first && moved) find("main").focus({ preventScroll: true });
  if (moved) window.scrollTo(0, 0);
}

/** Show another period of the same page; the way back leads to the page before. */
function choose(period) {
  history.replaceState(null, "", address(current.page, period, current.page === "question" ? current.name : undefined));
  route();
}

function update() {
  const status = find("status");
  status.dataset.state = store.status;
  say(status.querySelector(".text"), WORDS[store.status]);
  find("retry").hidden = !["reconnecting", "offline"].includes(store.status);
  if (store.stream) say(find("stream-name"), store.web?.site ?? store.stream.name);
  find("site-link").hidden = !store.web;
  // Where a site is counted, its page is the first; which stream it is shows only after the server has answered.
  if (store.web && !parse(location.hash).page && current?.page !== "site") return route();
  banner();
  find("main").dataset.loading = String(!store.queries && store.status === "connecting");
  shown.get(current?.page)?.update(current);
}

function banner() {
  const node = find("banner");
  const stays = "What you see was published before and stays true.";
  const words = {
    reconnecting: [
      "The server does not answer.",
      store.queries ? `${stays} This page reconnects by itself.` : store.problem,
    ],
    offline: ["This device is offline.", stays],
    denied: ["This server needs a token.", store.problem],
  }[store.status];
  const wanted = words ? words.join(" ") : "";
  if (node.dataset.text === wanted) return;
  node.dataset.text = wanted;
  node.hidden = !words;
  const enter = h("button", { class: "main", type: "button", onclick: () => openToken() }, "Enter token");
  if (words) show(node, h("b", null, words[0]), ` ${words[1]} `, store.status === "denied" && enter);
}

function openToken() {
  find("token-field").value = "";
  const denied = store.status === "denied" && token.get() !== "";
  find("token-error").hidden = !denied;
  if (denied) say(find("token-error"), store.problem);
  if (!find("token-dialog").open) find("token-dialog").showModal();
}

find("token-dialog").addEventListener("close", () => {
  const dialog = find("token-dialog"),
    typed = find("token-field").value.trim();
  find("token-field").value = "";
  if (dialog.returnValue === "use" && typed) token.set(typed);
  else if (dialog.returnValue === "forget") token.forget();
  else return;
  dialog.returnValue = "";
  store.run();
});

find("token").addEventListener("click", openToken);
find("retry").addEventListener("click", () => store.retry());
window.addEventListener("online", () => store.retry());
window.addEventListener("hashchange", route);

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
function themed() {
  find("theme").setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
  document.dispatchEvent(new Event("themechange"));
}
find("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("panstream-theme", document.documentElement.dataset.theme);
  themed();
});
dark.addEventListener("change", themed);

let due = 0;
function updateSoon() {
  due ||= requestAnimationFrame(() => {
    due = 0;
    update();
  });
}

store.addEventListener("change", ({ detail: { kind, detail } }) => {
  if (kind === "release")
    updateSoon(); // many may come at once
  else update();
  if (kind === "release") {
    const { value, low, high } = answer(detail);
    const words = detail.too_uncertain
      ? "too uncertain to say"
      : (detail.description ?? `${value}, between ${low} and ${high}`);
    speak(`New answer: ${detail.series}, ${words}.`);
  }
  if (kind === "status" && store.status === "denied") openToken();
});

themed();
route();
store.run();
