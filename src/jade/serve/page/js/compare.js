// Two runs side by side, question by question: what did training change?

import { compare, readTrace } from "./api.js";
import { detail } from "./detail.js";
import { h, icon, put } from "./dom.js";
import { count, score, signed } from "./format.js";
import { List } from "./list.js";
import { go } from "./route.js";
import { runLabel, runOptions } from "./runs.js";
import { TraceView } from "./traceview.js";
import { Verdict } from "./verdict.js";

const SIDES = ["before", "after"];

export class CompareView {
  constructor(library) {
    this.library = library;
    this.route = { view: "compare", before: "", after: "", params: {} };
    this.pickers = Object.fromEntries(SIDES.map((side) => [side, this.#picker(side)]));
    this.verdict = new Verdict((change) => this.#param("change", change));
    this.search = h("input", {
      class: "field",
      type: "search",
      placeholder: "Search",
      "aria-label": "Search",
      onchange: () => this.#param("q", this.search.value.trim()),
    });
    this.plans = h("div", { class: "plan-changes" });
    this.list = new List({
      label: "Questions of both runs",
      fetchPage: (offset, limit) => this.#page(offset, limit),
      render: pairChildren,
      idOf: (pair) => pair.name,
      onOpen: (pair) => {
        this.opened = true;
        go({ ...this.route, question: pair.name, side: "", step: "" });
      },
      onError: (error) => this.verdict.clear(h("p", { class: "notice bad" }, error.message)),
    });
    this.traces = Object.fromEntries(
      SIDES.map((side) => [
        side,
        new TraceView({ brief: true, onStep: (step) => go({ ...this.route, side, step: step.id }, { quietly: true }) }),
      ]),
    );
    this.stepPane = h("aside", { class: "pane step-pane", "aria-label": "Step", hidden: true });
    this.element = h(
      "div",
      { class: "view compare" },
      this.verdict.element,
      this.#left(),
      SIDES.map((side) => this.#side(side)),
      this.stepPane,
    );
    this.pairs = new Map();
  }

  #picker(side) {
    return h("select", {
      class: "field",
      "aria-label": side,
      onchange: (event) => go({ ...this.route, [side]: event.target.value, question: "", side: "", step: "" }),
    });
  }

  /** Another choice of questions opens its first one. */
  #param(name, value) {
    const params = { ...this.route.params, [name]: value };
    go({ ...this.route, question: "", side: "", step: "", params }, { quietly: true });
  }

  #left() {
    const swap = () => go({ ...this.route, before: this.route.after, after: this.route.before, side: "", step: "" });
    const top = h(
      "div",
      { class: "compare-top" },
      h(
        "div",
        { class: "compare-pick" },
        h("label", {}, "Before", this.pickers.before),
        h(
          "button",
          { class: "button quiet icon", type: "button", "aria-label": "Swap the two runs", onclick: swap },
          icon("swap"),
        ),
        h("label", {}, "After", this.pickers.after),
      ),
      this.plans,
    );
    return h(
      "section",
      { class: "pane list-pane", "aria-label": "Questions" },
      top,
      h("div", { class: "list-tools" }, h("div", { class: "search" }, icon("search"), this.search)),
      this.list.element,
    );
  }

  #side(side) {
    this[`${side}Title`] = h("div", { class: `side-title ${side}` });
    return h(
      "section",
      { class: "pane tree-pane", "aria-label": side === "before" ? "Before" : "After" },
      this[`${side}Title`],
      this.traces[side].element,
    );
  }

  async show(route) {
    const last = this.route;
    this.route = route;
    const changed =
      last.before !== route.before ||
      last.after !== route.after ||
      JSON.stringify(last.params) !== JSON.stringify(route.params);
    for (const side of SIDES) {
      put(this.pickers[side], runOptions(this.library.runs));
      this.pickers[side].value = route[side];
      put(this[`${side}Title`], h("span", { class: "dot" }), this.#title(route[side]));
    }
    this.verdict.choose(route.params.change ?? "");
    if (document.activeElement !== this.search) this.search.value = route.params.q ?? "";
    if (changed) await this.#load();
    if (!route.question) this.#openFirst();
    else await this.#showPair(changed);
    this.list.select(route.question);
  }

  #title(name) {
    const run = this.library.runs.find((each) => each.name === name);
    return run ? runLabel(run) : name;
  }

  #openFirst() {
    const [first] = this.pairs.values();
    if (first && matchMedia("(min-width: 761px)").matches)
      go({ ...this.route, question: first.name }, { quietly: true });
    else SIDES.forEach((side) => this.traces[side].clear());
  }

  async #page(offset, limit) {
    if (!this.route.before || !this.route.after) return { items: [], matched: 0 };
    const found = await compare({ ...this.#query(), offset, limit });
    if (!offset) {
      this.pairs.clear();
      this.verdict.show(found.summary);
      put(this.plans, planChanges(found.summary.plans));
    }
    found.pairs.forEach((pair) => this.pairs.set(pair.name, pair));
    return { items: found.pairs, matched: found.matched };
  }

  async #showPair(force) {
    const wanted = [this.route.before, this.route.after, this.route.question].join("\n");
    if (force || this.shown !== wanted) {
      this.shown = wanted;
      const pair = this.pairs.get(this.route.question);
      if (!pair) {
        SIDES.forEach((side) =>
          this.traces[side].clear(h("p", { class: "notice warn" }, "This question is not in both runs.")),
        );
        return;
      }
      await Promise.all(SIDES.map((side) => this.#showTrace(side, pair[side].key, wanted)));
      if (this.shown !== wanted) return;
      this.#bringIntoSight();
    }
    this.#showStep();
  }

  async #showTrace(side, key, wanted) {
    const view = this.traces[side];
    try {
      const trace = await readTrace(this.route[side], key);
      if (this.shown === wanted) view.show(trace, this.route.side === side ? this.route.step : "");
    } catch (error) {
      if (this.shown === wanted) view.clear(h("p", { class: "notice bad" }, error.message));
    }
  }

  /** On a narrow screen the traces stand below the list that one was chosen from. */
  #bringIntoSight() {
    if (this.opened && matchMedia("(max-width: 760px)").matches)
      this.element.querySelector(".tree-pane").scrollIntoView({ block: "start" });
    this.opened = false;
  }

  /** The list anew; where a link names a question far down, it is brought into sight. */
  async #load() {
    const { question } = this.route;
    await this.list.load();
    if (!question || this.list.has(question)) return this.list.select(question, { reveal: true });
    const { place } = await compare({ ...this.#query(), question, limit: 0 });
    if (place !== null && this.route.question === question) await this.list.reveal(place);
  }

  #query() {
    const { before, after, params } = this.route;
    return { before, after, q: params.q ?? "", change: params.change || "all" };
  }

  #showStep() {
    const { side, step: id } = this.route;
    SIDES.forEach((each) => this.traces[each].tree.select(each === side ? id : ""));
    const view = this.traces[side];
    const step = view?.trace?.steps.find((each) => each.id === id);
    this.stepPane.hidden = !step;
    this.element.classList.toggle("has-step", Boolean(step));
    const onClose = () => go({ ...this.route, side: "", step: "" }, { quietly: true });
    put(this.stepPane, step ? detail(step, { ...view.wanted(step), onClose }) : null);
  }
}

/** Which other workflow the planner chose for how many questions. */
function planChanges(plans) {
  if (!plans?.length) return null;
  const row = ([old, fresh, number]) => [
    h("dt", { class: "mono" }, old),
    h("dd", { class: "mono" }, `→ ${fresh}`),
    h("dd", { class: "muted" }, count(number)),
  ];
  return [
    h("h3", {}, "Plans that changed most"),
    h("dl", { class: "shifts", "aria-label": "Workflows that changed" }, plans.map(row)),
  ];
}

function pairChildren(pair) {
  return [
    h(
      "div",
      { class: "row-top" },
      h("div", { class: "row-question", title: pair.before.question }, pair.before.question),
      h(
        "span",
        { class: `row-score gain-${pair.change}` },
        pair.gain === null ? "" : pair.change === "same" ? score(pair.after.score) : signed(pair.gain),
      ),
    ),
    h(
      "div",
      { class: "row-answer pair" },
      h("span", {}, pair.before.answer || "none"),
      "→",
      h("span", { class: "after" }, pair.after.answer || "none"),
    ),
    h(
      "div",
      { class: "row-tags" },
      h("span", { class: "tag mono" }, pair.before.workflow || "none"),
      h("span", { class: "muted" }, "→"),
      h("span", { class: "tag mono" }, pair.after.workflow || "none"),
    ),
  ];
}
