// The choice of a section and a device on the page "Site".

import { h } from "./dom.js";

/** Choices of a section and a device, where a question has page views by both. */
export function filterPicker(choose) {
  const selects = { section: select("section", "All sections"), device: select("device", "All devices") };
  const node = h("p", { class: "filters", hidden: true }, "Page views of ", selects.section, " on ", selects.device);
  function select(key, all) {
    const change = (event) => choose({ [key]: event.target.value });
    return h("select", { "aria-label": all, onchange: change }, h("option", { value: "" }, all));
  }
  const update = (query, chosen) => {
    node.hidden = !query;
    if (!query) return;
    for (const [key, node] of Object.entries(selects)) {
      if (node.options.length === 1)
        for (const value of new Set(query.series.map((series) => groupIn(series)[key]))) {
          node.append(h("option", { value }, value));
        }
      node.value = chosen[key];
    }
  };
  return { node, update };
}

/** The group of a series: `views [section=/blog, device=mobile]`. */
export const groupIn = (series) =>
  Object.fromEntries([...series.matchAll(/[[ ](section|device)=([^,\]]*)/g)].map(([, key, value]) => [key, value]));
