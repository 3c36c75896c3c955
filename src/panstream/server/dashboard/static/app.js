// Puts the page together: status, pages, token, theme.

import * as answers from "./answers.js";
import { token } from "./api.js";
import * as budget from "./budget.js";
import { h, say, show } from "./dom.js";
import { answer } from "./format.js";
import * as intruder from "./intruder.js";
import * as intrusions from "./intrusions.js";
import { Store } from "./store.js";

const PAGES = { answers, budget, intrusions, intruder };
const WORDS = { connecting: "Connecting", live: "Live", reconnecting: "Reconnecting", offline: "Offline", denied: "Token needed" };
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
  find("spoken").textContent = text;
}

/** Have the outcome of what the reader did read out. */
function tell(text) {
  find("told").textContent = text;
}

function route() {
  const name = location.hash.replace(/^#\//, "");
  if (location.hash === "#main") return;
  const wanted = name in PAGES ? name : "answers";
  const first = current === null;
  if (wanted === current) return;
  current = wanted;
  if (!shown.has(wanted)) shown.set(wanted, PAGES[wanted].page(store, tell));
  show(find("main"), shown.get(wanted).node);
  document.title = `${PAGES[wanted].title}, panstream`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${wanted}`) {
      link.setAttribute("aria-current", "page");
      reveal(link);
    } else link.removeAttribute("aria-current");
  }
  update();
  if (!first) find("main").focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function reveal(link) {
  const nav = link.parentElement, end = link.offsetLeft - nav.offsetLeft + link.offsetWidth;
  nav.scrollLeft = Math.max(0, end - nav.clientWidth); // scrollIntoView would move where Tab starts
}

function update() {
  const status = find("status");
  status.dataset.state = store.status;
  say(status.querySelector(".text"), WORDS[store.status]);
  find("retry").hidden = !["reconnecting", "offline"].includes(store.status);
  if (store.stream) say(find("stream-name"), store.stream.name);
  banner();
  find("main").dataset.loading = String(!store.queries && store.status === "connecting");
  shown.get(current)?.update();
}

function banner() {
  const node = find("banner");
  const words = {
    reconnecting: ["The server does not answer.", store.queries ? "What you see was published before and stays true. This page reconnects by itself." : store.problem],
    offline: ["This device is offline.", "What you see was published before and stays true."],
    denied: ["This server wants a token.", store.problem],
  }[store.status];
  const wanted = words ? words.join(" ") : "";
  if (node.dataset.text === wanted) return;
  node.dataset.text = wanted;
  node.hidden = !words;
  if (words) show(node, h("b", null, words[0]), ` ${words[1]} `, store.status === "denied" && h("button", { class: "main", type: "button", onclick: () => openToken() }, "Enter token"));
}

function openToken() {
  find("token-field").value = "";
  const denied = store.status === "denied" && token.get() !== "";
  find("token-error").hidden = !denied;
  if (denied) say(find("token-error"), store.problem);
  if (!find("token-dialog").open) find("token-dialog").showModal();
}

find("token-dialog").addEventListener("close", () => {
  const dialog = find("token-dialog"), typed = find("token-field").value.trim();
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
  if (kind === "release") updateSoon(); // many may come at once
  else update();
  if (kind === "release") {
    const { value, low, high } = answer(detail);
    const words = detail.too_uncertain ? "too uncertain" : detail.statement ?? `${value}, between ${low} and ${high}`;
    speak(`New answer: ${detail.series}, ${words}.`);
  }
  if (kind === "status" && store.status === "denied") openToken();
});

themed();
route();
store.run();
