// Small helpers to build elements. Text is always text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

// Characters that are invisible or change the order of others: strangers choose names.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;
const SPOKEN = new Set(["alt", "aria-description", "aria-label", "placeholder", "title"]);

/** Return a text that shows such characters as \x1b or \u202e, and leaves the order of all others alone. */
export function printable(text) {
  return String(text).replace(UNSEEN, (sign) => {
    if (sign === "\n") return sign;
    const code = sign.codePointAt(0);
    const [letter, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${letter}${code.toString(16).padStart(digits, "0")}`;
  });
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "value" || name === "checked" || name === "disabled") node[name] = value;
    else node.setAttribute(name, value === true ? "" : SPOKEN.has(name) ? printable(value) : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : printable(child));
  }
  return node;
}

/** Build an HTML element. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** Build an SVG element. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Replace what a node shows. */
export const show = (node, ...children) =>
  node.replaceChildren(
    ...children
      .flat(3)
      .filter((child) => child !== null && child !== false)
      .map((child) => (child instanceof Node ? child : printable(child))),
  );

/** Change a node's text only if it differs, so that screen readers are not told twice. */
export function say(node, text) {
  const shown = printable(text);
  if (node.textContent !== shown) node.textContent = shown;
}

/** Return the value of a CSS custom property, for drawing on canvas. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
