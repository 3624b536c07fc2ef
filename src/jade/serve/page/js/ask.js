// Ask a new question and watch the tree grow while the team works.

import { ask } from "./api.js";
import { detail } from "./detail.js";
import { announce, h, put } from "./dom.js";
import { go, print } from "./route.js";
import { TraceView } from "./traceview.js";

const EFFORTS = [
  ["", "Usual effort"],
  ["low", "Low effort"],
  ["medium", "Medium effort"],
  ["high", "High effort"],
];

export class AskView {
  constructor() {
    this.route = { view: "ask", step: "", params: {} };
    this.input = h("textarea", {
      class: "field",
      rows: "2",
      "aria-label": "Your question",
      placeholder: "Ask the team a question about your documents",
      onkeydown: (event) => this.#key(event),
    });
    this.effort = h(
      "select",
      { class: "field", "aria-label": "Effort", title: "What to spend; a team trained with reward.dial heeds it" },
      EFFORTS.map(([value, label]) => h("option", { value }, label)),
    );
    this.send = h("button", { class: "button primary", type: "submit" }, "Ask");
    this.stop = h(
      "button",
      { class: "button", type: "button", hidden: true, onclick: () => this.working?.abort() },
      "Stop",
    );
    this.hint = h("span", { class: "muted small grow" }, "Enter asks, Shift+Enter makes a new line.");
    this.trace = new TraceView({ onStep: (step) => go({ ...this.route, step: step.id }, { quietly: true }) });
    const form = h(
      "form",
      { class: "ask-box" },
      this.input,
      h("div", { class: "ask-line" }, this.hint, this.effort, this.stop, this.send),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    this.stepPane = h("aside", { class: "pane step-pane", "aria-label": "Step", hidden: true });
    this.element = h(
      "div",
      { class: "view ask no-step" },
      h(
        "section",
        { class: "pane ask-pane", "aria-label": "Ask" },
        form,
        h("div", { class: "ask-result" }, this.trace.element),
      ),
      this.stepPane,
    );
    this.steps = new Map();
    this.answers = new Map();
  }

  show(route) {
    this.route = route;
    if (!route.step && !this.working) this.input.focus();
    this.#showStep();
  }

  #key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#ask();
  }

  async #ask() {
    const question = this.input.value.trim();
    if (!question || this.working) return;
    this.working = new AbortController();
    this.steps.clear();
    this.answers.clear();
    go({ ...this.route, step: "" }, { quietly: true });
    this.trace.clear(h("h1", {}, question));
    this.#busy(true);
    try {
      await ask({ question, effort: this.effort.value || null }, (name, data) => this.#hear(name, data), this.working.signal);
    } catch (error) {
      if (error.name === "AbortError") this.#tell("warn", "Stopped.");
      else this.#tell("bad", error.message);
    }
    this.trace.tree.halt();
    this.working = null;
    this.#busy(false);
  }

  #busy(is) {
    this.send.disabled = is;
    this.stop.hidden = !is;
    this.hint.textContent = is ? "The team is working." : "Enter asks, Shift+Enter makes a new line.";
    announce(is ? "The team is working" : "The team is done");
  }

  #hear(name, data) {
    const moves = {
      node: () => this.trace.tree.openNode(data),
      solved: () => {
        this.answers.set(data.id, data.answer ?? "");
        this.trace.tree.openNode(data);
        this.#showStep();
      },
      began: () => this.trace.tree.beginStep(data),
      step: () => {
        this.steps.set(data.id, data);
        this.trace.tree.endStep(data);
      },
      answer: () => this.#done(data),
      error: () => {
        this.#tell("bad", data.message);
        if (data.trace_id) this.#link(data.trace_id);
      },
    };
    moves[name]?.();
  }

  #done(trace) {
    trace.steps.forEach((step) => this.steps.set(step.id, step));
    this.trace.show(trace, this.route.step);
    this.hint.textContent = "";
    this.#link(trace.id);
    announce(`Answer: ${trace.answer || "none"}`);
    this.#showStep();
  }

  #tell(kind, message) {
    this.trace.head.append(h("p", { class: `notice ${kind}`, role: "alert" }, message));
  }

  /** What was answered here is kept, and so is what failed. */
  #link(key) {
    const href = print({ view: "traces", run: "live", key, params: {} });
    this.trace.head.append(h("p", {}, h("a", { href }, "Link to this trace")));
  }

  /** What to look for in a step's passages, as far as it is known by now. */
  #wanted(step) {
    if (this.trace.trace) return this.trace.wanted(step);
    const answer = this.answers.get(step.node) ?? "";
    return { answer, phrases: [answer] };
  }

  #showStep() {
    const step = this.steps.get(this.route.step);
    this.stepPane.hidden = !step;
    this.element.classList.toggle("no-step", !step);
    this.trace.tree.select(this.route.step);
    const onClose = () => go({ ...this.route, step: "" }, { quietly: true });
    put(this.stepPane, step ? detail(step, { ...this.#wanted(step), onClose }) : null);
  }
}
