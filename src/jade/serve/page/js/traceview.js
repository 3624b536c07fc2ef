// One trace: the question with its answer and price, the tree, what the answer rests on. Used by every view.

import { announce, h, icon, put } from "./dom.js";
import { compact, count, noun, plural, score, seconds, verdictOf } from "./format.js";
import { highlighted } from "./highlight.js";
import { movesOf, Tree } from "./tree.js";

const REPLAY_MS = 420;
const SAID_MS = 2500;

export class TraceView {
  /** `onStep(step)` hears which step is opened; `back` is where a narrow screen's way back leads. */
  constructor({ onStep, back, brief = false }) {
    this.brief = brief;
    this.back = back;
    this.tree = new Tree(onStep);
    this.head = h("header", { class: "trace-head" });
    this.citations = h("section", { class: "citations", "aria-label": "Citations" });
    this.element = h("div", { class: "trace" }, this.head, this.tree.element, this.citations);
  }

  show(trace, step = "") {
    this.#stop();
    this.trace = trace;
    put(this.head, this.#head(trace));
    this.tree.show(trace, step);
    put(this.citations, this.brief ? null : citations(trace));
  }

  clear(...children) {
    this.#stop();
    this.trace = null;
    this.tree.clear();
    put(this.head, children);
    put(this.citations);
  }

  /** The steps again, one after the other, as the team took them. */
  async replay() {
    this.#stop();
    const run = (this.running = {});
    const nodes = new Map(this.trace.nodes.map((node) => [node.id, node]));
    this.tree.clear();
    for (const move of movesOf(this.trace)) {
      this.tree.apply(move, nodes);
      await new Promise((resolve) => setTimeout(resolve, move.step ? REPLAY_MS : REPLAY_MS / 2));
      if (this.running !== run) return;
    }
    this.running = null;
    announce("Replayed");
  }

  #stop() {
    this.running = null;
  }

  /** What the passages of a step are looked through for: the answer of its node, and any answer's words. */
  wanted(step) {
    const answer = this.trace?.nodes.find((each) => each.id === step.node)?.answer ?? "";
    return { answer, phrases: [answer, this.trace?.answer, ...(this.trace?.question.answers ?? [])].filter(Boolean) };
  }

  #head(trace) {
    return [
      h(
        "div",
        { class: "trace-line" },
        this.back ? h("a", { class: "back small", href: this.back() }, "← Questions") : null,
        trace.question.dataset ? h("span", { class: "tag" }, trace.question.dataset) : null,
        trace.nodes[0]?.workflow ? h("span", { class: "tag mono" }, trace.nodes[0].workflow) : null,
        this.brief ? null : this.#tools(),
      ),
      h("h1", {}, trace.question.text),
      answers(trace),
      figures(trace, this.brief),
      notices(trace),
    ];
  }

  #tools() {
    const said = h("span", { class: "muted small" });
    return h(
      "span",
      { class: "trace-tools" },
      said,
      h(
        "button",
        {
          class: "button quiet icon",
          type: "button",
          title: "Replay the steps",
          "aria-label": "Replay the steps",
          onclick: () => this.replay(),
        },
        icon("play"),
      ),
      h(
        "button",
        {
          class: "button quiet icon",
          type: "button",
          title: "Copy a link to this",
          "aria-label": "Copy a link to this",
          onclick: async () => say(said, await copyLink()),
        },
        icon("link"),
      ),
    );
  }
}

/** Browsers give pages that came over plain HTTP from elsewhere no clipboard. */
async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    return "Link copied";
  } catch {
    return "The link is in the address bar";
  }
}

/** Say something for a moment, also to those who listen. */
function say(place, text) {
  announce(text);
  place.textContent = text;
  setTimeout(() => (place.textContent = ""), SAID_MS);
}

function answers(trace) {
  return h(
    "dl",
    { class: "answers" },
    h("dt", {}, "Answer"),
    h("dd", { class: `said ${verdictOf(trace.scores?.f1)}` }, trace.answer || "none"),
    trace.question.answers.length ? [h("dt", {}, "Gold"), h("dd", {}, trace.question.answers.join(" / "))] : null,
  );
}

/** Beside each other two runs are weighed by what they did; how long it took says more of the machine. */
function figures({ usage, scores, effort }, brief) {
  const rows = [
    scores && ["F1", score(scores.f1)],
    [noun(usage.rounds, "round"), count(usage.rounds)],
    [noun(usage.retrievals, "search"), count(usage.retrievals)],
    [noun(usage.calls, "call"), count(usage.calls)],
    ["tokens", `${compact(usage.prompt_tokens)} + ${compact(usage.completion_tokens)}`],
    brief ? null : ["", seconds(usage.seconds)],
    effort && ["prices", `turn ${score(effort.alpha)}, search ${score(effort.beta)}`],
  ];
  return h(
    "div",
    { class: "figures" },
    rows.filter(Boolean).map(([name, value]) => h("span", {}, h("b", {}, value), name ? ` ${name}` : "")),
  );
}

function notices(trace) {
  return [
    trace.error ? h("p", { class: "notice bad" }, `The team failed: ${trace.error}`) : null,
    trace.stopped ? h("p", { class: "notice warn" }, `Stopped early: the budget of ${trace.stopped} was spent.`) : null,
    !trace.supported && trace.answer
      ? h("p", { class: "notice warn" }, "No document that was found supports this answer.")
      : null,
  ];
}

function citations(trace) {
  if (!trace.citations.length) return null;
  const answerOf = new Map(trace.nodes.map((node) => [node.id, node.answer]));
  return [
    h("h3", {}, plural(trace.citations.length, "citation")),
    trace.citations.map(({ number, node, passage, holds_answer: holds }) =>
      h(
        "div",
        { class: `citation${holds ? " holds" : ""}` },
        h(
          "span",
          { class: "number", title: holds ? "Holds the answer" : "Does not hold the answer" },
          holds ? `✓${number}` : number,
        ),
        h(
          "span",
          {},
          h("strong", {}, passage.title || passage.id),
          " ",
          h("span", { class: "muted small" }, `node ${node} · ${passage.source || passage.id}`),
        ),
        h("p", {}, highlighted(passage.text, [answerOf.get(node), trace.answer].filter(Boolean))),
      ),
    ),
  ];
}
