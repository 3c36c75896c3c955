// Small helpers to build elements. Text is always text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "value" || name === "checked" || name === "disabled") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/** Build an HTML element. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** Build an SVG element. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Replace what a node shows. */
export const show = (node, ...children) =>
  node.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== false));

/** Change a node's text only if it differs, so that screen readers are not told twice. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Return the value of a CSS custom property, for drawing on canvas. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
