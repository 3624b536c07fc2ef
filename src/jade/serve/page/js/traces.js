// Left the questions of a run, in the middle a trace, right one of its steps.

import { listRows, readTrace } from "./api.js";
import { detail } from "./detail.js";
import { announce, h, put } from "./dom.js";
import { asQuery, Filters } from "./filters.js";
import { compact, count, plural, score, verdictOf } from "./format.js";
import { List } from "./list.js";
import { go, print } from "./route.js";
import { TraceView } from "./traceview.js";

const LOOK_AGAIN_MS = 3000;
const READING_MS = 20;

export class TracesView {
  constructor() {
    this.route = { view: "traces", run: "", params: {} };
    this.filters = new Filters((params) => go({ ...this.route, params }, { quietly: true }));
    this.summary = h("div", { class: "list-summary" });
    this.list = new List({
      label: "Questions",
      fetchPage: (offset, limit) => this.#page(offset, limit),
      render: rowChildren,
      idOf: (row) => row.key,
      onOpen: (row) => go({ ...this.route, key: row.key, step: "" }),
      onError: (error) => this.#fail(error),
    });
    this.trace = new TraceView({
      onStep: (step) => go({ ...this.route, step: step.id }, { quietly: true }),
      back: () => print({ ...this.route, key: "", step: "" }),
    });
    this.listPane = h(
      "section",
      { class: "pane list-pane", "aria-label": "Questions" },
      this.filters.element,
      this.summary,
      this.list.element,
    );
    this.treePane = h("section", { class: "pane tree-pane", "aria-label": "Trace" }, this.trace.element);
    this.stepPane = h("aside", { class: "pane step-pane", "aria-label": "Step" });
    this.element = h("div", { class: "view traces" }, this.listPane, this.treePane, this.stepPane);
    this.total = null; // not known yet
    setInterval(() => this.#lookAgain(), LOOK_AGAIN_MS);
  }

  async show(route) {
    const before = this.route;
    this.route = route;
    const changedRun = before.run !== route.run;
    const changedFilters = JSON.stringify(before.params) !== JSON.stringify(route.params);
    this.filters.show(route.params);
    this.#layout();
    if (changedRun) {
      this.total = null;
      this.filters.offer({});
    }
    await Promise.all([changedRun || changedFilters || !this.total ? this.#load() : null, this.#showTrace(changedRun)]);
    this.list.select(route.key);
    if (!route.key && this.route === route) this.#openFirst();
  }

  /** Where there is room for it, the first question is opened at once. */
  #openFirst() {
    const first = this.list.first();
    if (first && matchMedia("(min-width: 761px)").matches) go({ ...this.route, key: first.key }, { quietly: true });
  }

  async #load() {
    await this.list.load();
    this.wanted = this.route.key;
    await this.#bringIntoSight();
  }

  /** A link may name a question far down the list, or one that has not been read yet. */
  async #bringIntoSight() {
    const { run, key, params } = this.route;
    if (!key || this.wanted !== key || this.partial) return;
    this.wanted = "";
    const found = await listRows(run, { ...asQuery(params), key, limit: 0 }).catch(() => null);
    if (found && found.place !== null && this.route.key === key) await this.list.reveal(found.place);
  }

  #layout() {
    this.element.classList.toggle("no-step", !this.route.step);
    this.element.classList.toggle("has-trace", Boolean(this.route.key));
    this.stepPane.hidden = !this.route.step;
  }

  async #page(offset, limit) {
    const run = this.route.run;
    if (!run) return { items: [], matched: 0 };
    const found = await listRows(run, { ...asQuery(this.route.params), offset, limit });
    if (run === this.route.run) this.#loaded(found, offset);
    if (!offset) announce(`${plural(found.matched, "question")} shown`);
    return { items: found.rows, matched: found.matched };
  }

  #loaded(found, offset) {
    this.total = found.total;
    this.partial = !found.complete;
    this.matched = found.matched;
    if (!this.route.key) this.#invite();
    if (!found.complete) setTimeout(() => this.#lookAgain(), READING_MS);
    if (!offset) this.filters.offer(found.facets);
    const mean = found.summary;
    put(
      this.summary,
      h(
        "span",
        {},
        h("b", {}, count(found.matched)),
        found.matched === found.total
          ? ` ${found.total === 1 ? "question" : "questions"}`
          : ` of ${count(found.total)}`,
      ),
      mean.score === null ? null : h("span", {}, "F1 ", h("b", {}, score(mean.score))),
      mean.rounds === null ? null : h("span", {}, h("b", {}, mean.rounds.toFixed(1)), " rounds"),
      mean.retrievals === null ? null : h("span", {}, h("b", {}, mean.retrievals.toFixed(1)), " searches"),
      mean.tokens === null ? null : h("span", {}, h("b", {}, compact(Math.round(mean.tokens))), " tokens"),
      found.complete ? null : h("span", {}, "still reading …"),
    );
  }

  /** While a large run is still being read only the figures follow; its list is fetched anew at the end. */
  async #lookAgain() {
    const { run, params } = this.route;
    if (document.hidden || !this.element.isConnected || !run || this.looking) return;
    this.looking = true;
    const found = await listRows(run, { ...asQuery(params), limit: 0 }).catch(() => null);
    this.looking = false;
    if (!found || run !== this.route.run || (found.total === this.total && !this.partial)) return;
    this.#loaded(found, 0);
    if (!found.complete) return;
    await this.list.load({ keep: true });
    await this.#bringIntoSight();
  }

  async #showTrace(force) {
    const { run, key, step } = this.route;
    if (!key) {
      this.shown = "";
      this.#invite();
      put(this.stepPane);
      return;
    }
    const wanted = `${run}/${key}`;
    if (force || this.shown !== wanted) {
      this.shown = wanted;
      try {
        const trace = await readTrace(run, key);
        if (this.shown !== wanted) return;
        this.trace.show(trace, step);
        this.treePane.scrollTop = 0;
        document.title = `${trace.question.text} · JADE`;
      } catch (error) {
        if (this.shown === wanted) this.trace.clear(h("p", { class: "notice bad" }, error.message));
        return;
      }
    }
    this.#showStep(step);
  }

  /** What stands where a trace would, while none is chosen. */
  #invite() {
    if (this.total === null) this.trace.clear();
    else if (!this.total) this.#say("No traces yet", "This run has written none so far; they appear here as they come.");
    else if (!this.matched) this.#say("Nothing matches", "No question of this run has what the filters ask for.");
    else this.#say("Choose a question", "What the team did for it appears here, step by step.");
  }

  #say(title, text) {
    this.trace.clear(h("div", { class: "empty" }, h("strong", {}, title), text));
  }

  #fail(error) {
    put(this.summary, h("span", {}, error.message));
    if (!this.route.key) this.#say("Nothing to show", error.message);
  }

  #showStep(id) {
    const step = this.trace.trace?.steps.find((each) => each.id === id);
    this.trace.tree.select(id);
    const onClose = () => go({ ...this.route, step: "" }, { quietly: true });
    put(
      this.stepPane,
      step
        ? detail(step, { ...this.trace.wanted(step), onClose })
        : id
          ? h("p", { class: "notice warn" }, `There is no step ${id}.`)
          : null,
    );
    this.stepPane.scrollTop = 0;
  }
}

/** What a row of the list shows. */
function rowChildren(row) {
  const flags = { error: "bad", malformed: "bad", stopped: "warn" };
  return [
    h(
      "div",
      { class: "row-top" },
      h("div", { class: "row-question", title: row.question }, row.question || row.error || "unreadable"),
      h(
        "span",
        { class: `row-score ${verdictOf(row.score)}`, title: row.score === null ? "No gold answer" : "F1" },
        row.score === null ? "" : score(row.score),
      ),
    ),
    h(
      "div",
      { class: "row-answer" },
      row.error && row.question ? row.error : row.answer || (row.question ? "no answer" : ""),
    ),
    h(
      "div",
      { class: "row-tags" },
      row.part ? h("span", { class: "tag" }, `it. ${row.part}`) : null,
      row.workflow ? h("span", { class: "tag mono" }, row.workflow) : null,
      h("span", { class: "tag" }, plural(row.rounds, "round")),
      row.flags.filter((flag) => flag in flags).map((flag) => h("span", { class: `tag ${flags[flag]}` }, flag)),
      row.dataset ? h("span", { class: "tag" }, row.dataset) : null,
    ),
  ];
}
