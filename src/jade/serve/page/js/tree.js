// A trace as a tree. The same few moves build a finished trace, replay it, and let a new one grow while the team works.
// It is an ARIA tree: arrows move and fold, Enter opens a step.

import { h, icon, put } from "./dom.js";
import { compact, cut, seconds, signed, summarise, verdictOf } from "./format.js";

export class Tree {
  /** `onSelect(step)` hears which step was opened. */
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.element = h("ul", {
      class: "tree",
      role: "tree",
      "aria-label": "What the team did",
      onkeydown: (event) => this.#key(event),
    });
    this.clear();
  }

  clear() {
    this.verdict = "";
    this.nodes = new Map();
    this.steps = new Map();
    this.selected = "";
    this.element.replaceChildren();
  }

  /** Show a whole trace at once. */
  show(trace, selected = "") {
    this.clear();
    this.verdict = ` ${verdictOf(trace.scores?.f1)}`;
    const nodes = new Map(trace.nodes.map((node) => [node.id, node]));
    for (const move of movesOf(trace)) this.apply(move, nodes, false);
    this.select(selected);
    this.#focusable();
  }

  apply(move, nodes, fresh = true) {
    if (move.node) this.openNode(nodes.get(move.node), fresh);
    else this.endStep(move.step, fresh);
  }

  openNode(node, fresh = true) {
    const known = this.nodes.get(node.id);
    if (known) {
      this.#describe(known, node);
      return;
    }
    const head = h("div", { class: "node-head" });
    const list = h("ul", { role: "group" });
    const item = h(
      "li",
      { class: "node", role: "treeitem", "aria-expanded": "true", tabindex: "-1", data: { node: node.id } },
      head,
      list,
    );
    item.classList.toggle("fresh", fresh);
    head.addEventListener("click", () => this.#fold(item));
    const entry = { item, head, list };
    this.nodes.set(node.id, entry);
    this.#describe(entry, node);
    (this.nodes.get(node.parent)?.list ?? this.element).append(item);
    this.#focusable();
  }

  #describe({ item, head }, node) {
    const isRoot = node.parent === null;
    const asked = isRoot ? "The question" : cut(node.question);
    const answer = h("span", { class: `node-answer${isRoot ? this.verdict : ""}` }, cut(node.answer ?? "", 140));
    item.setAttribute("aria-label", cut(node.question) + (node.answer ? `, answered ${cut(node.answer)}` : ""));
    put(
      head,
      h("span", { class: "node-fold" }, icon("fold")),
      h("span", { class: "node-id" }, node.id),
      h("span", {}, h("span", { class: isRoot ? "muted" : "node-question" }, asked), " ", node.answer ? answer : null),
    );
  }

  /** A step has begun: it is shown as being worked on until it ends. */
  beginStep({ id, node, role }) {
    const item = h(
      "li",
      { class: "step busy fresh", role: "treeitem", tabindex: "-1", data: { step: id, role } },
      h("span", { class: "chip", data: { role } }, role),
      h("span", { class: "step-text" }, h("span", { class: "dots" }, "working ")),
    );
    this.steps.set(id, { item, step: null });
    this.nodes.get(node)?.list.append(item);
  }

  endStep(step, fresh = true) {
    const item = stepItem(step);
    item.classList.toggle("fresh", fresh);
    item.addEventListener("click", () => this.#open(step));
    const begun = this.steps.get(step.id)?.item;
    if (begun) begun.replaceWith(item);
    else this.nodes.get(step.node)?.list.append(item);
    this.steps.set(step.id, { item, step });
    if (step.id === this.selected) item.setAttribute("aria-selected", "true");
    this.#focusable();
  }

  /** Nobody works any more: a step that has begun does not end. */
  halt() {
    for (const { item, step } of this.steps.values()) {
      if (step) continue;
      item.classList.remove("busy");
      put(item.querySelector(".step-text"), h("span", { class: "muted" }, "not finished"));
    }
  }

  select(id) {
    this.steps.get(this.selected)?.item.removeAttribute("aria-selected");
    this.selected = id;
    const item = this.steps.get(id)?.item;
    if (!item) return;
    item.setAttribute("aria-selected", "true");
    item.scrollIntoView({ block: "nearest" });
  }

  #open(step) {
    this.select(step.id);
    this.#moveTo(this.steps.get(step.id).item);
    this.onSelect(step);
  }

  #fold(item, open = item.getAttribute("aria-expanded") === "false") {
    item.setAttribute("aria-expanded", String(open));
    this.#moveTo(item);
  }

  #visible() {
    return [...this.element.querySelectorAll('[role="treeitem"]')].filter(
      (item) => !item.parentElement.closest('[aria-expanded="false"]'),
    );
  }

  #focusable() {
    const items = [...this.element.querySelectorAll('[role="treeitem"]')];
    if (items.length && !items.some((item) => item.tabIndex === 0)) items[0].tabIndex = 0;
  }

  #moveTo(item) {
    for (const other of this.element.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    item.tabIndex = 0;
    item.focus({ preventScroll: true });
    item.scrollIntoView({ block: "nearest" });
  }

  #key(event) {
    const item = event.target.closest('[role="treeitem"]');
    const moves = {
      ArrowDown: () => this.#step(item, 1),
      ArrowUp: () => this.#step(item, -1),
      Home: () => this.#moveTo(this.#visible()[0]),
      End: () => this.#moveTo(this.#visible().at(-1)),
      ArrowRight: () => (item.getAttribute("aria-expanded") === "false" ? this.#fold(item, true) : this.#step(item, 1)),
      ArrowLeft: () => this.#leave(item),
      Enter: () => this.#enter(item),
      " ": () => this.#enter(item),
    };
    if (!item || !(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
  }

  #step(item, by) {
    const items = this.#visible();
    const next = items[items.indexOf(item) + by];
    if (next) this.#moveTo(next);
  }

  #leave(item) {
    if (item.getAttribute("aria-expanded") === "true") this.#fold(item, false);
    else {
      const parent = item.parentElement.closest('[role="treeitem"]');
      if (parent) this.#moveTo(parent);
    }
  }

  #enter(item) {
    const step = this.steps.get(item.dataset.step)?.step;
    if (step) this.#open(step);
    else if (item.dataset.node) this.#fold(item);
  }
}

/** A trace as the moves that built it: a node opens, its steps follow, its children, and what closes it. */
export function movesOf(trace) {
  const nodes = new Map(trace.nodes.map((node) => [node.id, node]));
  const opened = new Set();
  const moves = [];
  const open = (id) => {
    const above = [];
    for (let node = nodes.get(id); node && !opened.has(node.id); node = nodes.get(node.parent)) {
      opened.add(node.id);
      above.unshift({ node: node.id });
    }
    moves.push(...above);
  };
  for (const step of trace.steps) {
    open(step.node);
    moves.push({ step });
  }
  trace.nodes.forEach((node) => open(node.id));
  return moves;
}

function stepItem(step) {
  const item = h(
    "li",
    { class: "step", role: "treeitem", tabindex: "-1", data: { step: step.id, role: step.role }, title: step.title },
    h("span", { class: "chip", data: { role: step.role } }, step.role),
    h("span", { class: "step-text" }, stepText(step)),
    stepCost(step),
  );
  item.classList.toggle("malformed", Boolean(step.malformed));
  item.classList.toggle("failed", Boolean(step.error));
  return item;
}

function stepText(step) {
  const text = cut(summarise(step));
  return step.applied?.kind === "Workflow" && !step.malformed
    ? h("span", { class: "workflow" }, step.applied.modules.join(" → "))
    : text;
}

function stepCost(step) {
  const tokens = step.generation ? `${compact(step.generation.completion_tokens)} tok` : "";
  const reward = step.reward
    ? h(
        "span",
        { class: `reward ${step.reward.total < 0 ? "minus" : step.reward.total > 0 ? "plus" : ""}`, title: "Reward" },
        signed(step.reward.total),
      )
    : null;
  return h(
    "span",
    { class: "step-cost" },
    h("span", {}, tokens),
    h("span", {}, seconds(step.seconds)),
    reward ?? h("span", {}),
  );
}
