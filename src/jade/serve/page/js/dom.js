// Elements from values. Whatever comes from a run or a model only ever becomes a text node, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element: attributes by name, `on…` as listeners, `data` as data attributes; children as nodes or text. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2).toLowerCase(), value);
    else if (name === "data") for (const [key, datum] of Object.entries(value)) element.dataset[key] = datum;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Put these children in the place of what is there. */
export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

const ICONS = {
  search: "M11 11l4 4M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10z",
  fold: "M3 5.5l5 5 5-5",
  link: "M6.5 9.5l3-3M7 4.5l1.2-1.2a3 3 0 0 1 4.3 4.3L11.3 9M9 11.5l-1.2 1.2a3 3 0 0 1-4.3-4.3L4.7 7",
  play: "M4.5 3v10l8-5z",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  swap: "M3 5.5h10M10 2.5l3 3-3 3M13 10.5H3M6 7.5l-3 3 3 3",
  sun: "M8 4.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM8 .8v1.6M8 13.6v1.6M.8 8h1.6M13.6 8h1.6M2.9 2.9L4 4M12 12l1.1 1.1M2.9 13.1L4 12M12 4l1.1-1.1",
  moon: "M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5a5.8 5.8 0 1 0 7.1 7.1z",
  down: "M8 2.5v11M3.5 9L8 13.5 12.5 9",
  up: "M8 13.5v-11M3.5 7L8 2.5 12.5 7",
};

export function icon(name) {
  const path = s("path", {
    d: ICONS[name],
    fill: "none",
    stroke: "currentColor",
    "stroke-width": 1.5,
    "stroke-linecap": "round",
    "stroke-linejoin": "round",
  });
  return s("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
}

/** Tell those who listen instead of looking. */
export function announce(text) {
  document.getElementById("status").textContent = text;
}
