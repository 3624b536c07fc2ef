// What changed from one run to the other, in one strip: the gain, how many questions were won and lost, and the price.

import { h, put } from "./dom.js";
import { count, percent, plural } from "./format.js";

const KINDS = [
  ["better", "won", "Answered better after than before"],
  ["same", "the same", "Answered as well as before"],
  ["worse", "lost", "Answered worse after than before"],
];
const SHIFTS = [
  ["Rounds", "rounds", (value) => value.toFixed(2)],
  ["Searches", "retrievals", (value) => value.toFixed(2)],
  ["Tokens", "tokens", count],
  ["Malformed", "malformed", percent],
];

export class Verdict {
  /** `onChoose(change)` hears which of won, lost and the same shall be listed alone; "" lists all. */
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.chosen = "";
    this.element = h("header", { class: "verdict", "aria-label": "What changed" });
  }

  clear(...children) {
    this.summary = null;
    put(this.element, children);
  }

  show(summary) {
    this.summary = summary;
    if (!summary.num) return put(this.element, h("p", { class: "muted" }, "These runs have no question in common."));
    return put(this.element, gain(summary), this.#split(summary), shifts(summary));
  }

  choose(change) {
    if (this.chosen === change) return;
    this.chosen = change;
    if (this.summary) this.show(this.summary);
  }

  #split({ changes }) {
    return h(
      "div",
      { class: "split-box" },
      h(
        "div",
        { class: "split", role: "img", "aria-label": KINDS.map(([name, word]) => `${changes[name]} ${word}`).join(", ") },
        KINDS.map(([name]) => share(name, changes[name])),
      ),
      h(
        "div",
        { class: "split-keys", role: "group", "aria-label": "Which questions" },
        KINDS.map(([name, word, title]) => this.#key(name, changes[name], word, title)),
      ),
    );
  }

  #key(name, number, word, title) {
    const on = this.chosen === name;
    return h(
      "button",
      {
        class: `split-key ${name}`,
        type: "button",
        title: on ? "List all questions again" : title,
        "aria-pressed": String(on),
        disabled: !number && !on,
        onclick: () => this.onChoose(on ? "" : name),
      },
      h("b", {}, count(number)),
      ` ${word}`,
    );
  }
}

function gain({ num, before, after }) {
  if (before.score === null || after.score === null)
    return h("div", { class: "gain" }, h("span", { class: "muted" }, `${plural(num, "question")}, not scored`));
  const change = after.score - before.score;
  return h(
    "div",
    { class: "gain" },
    h("b", { class: `gain-${change > 0 ? "better" : change < 0 ? "worse" : "same"}` }, signed(change, 3), " F1"),
    h("span", {}, `${before.score.toFixed(3)} → ${after.score.toFixed(3)} over ${plural(num, "shared question")}`),
  );
}

function shifts({ before, after }) {
  const known = SHIFTS.filter(([, name]) => typeof before[name] === "number" && typeof after[name] === "number");
  return h(
    "dl",
    { class: "prices" },
    known.map(([title, name, show]) =>
      h("div", {}, h("dt", {}, title), h("dd", {}, `${show(before[name])} → ${show(after[name])}`)),
    ),
  );
}

function share(name, number) {
  const part = h("span", { class: name });
  part.style.flexGrow = String(number);
  return part;
}

const signed = (value, digits) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
