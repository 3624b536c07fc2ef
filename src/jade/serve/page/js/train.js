// A training run as it goes: figures, curves, the mix of workflows, guard events and remarks, and the traces sampled on the way.

import { listRows, readCurves } from "./api.js";
import { Chart } from "./chart.js";
import { h, put } from "./dom.js";
import { compact, count, percent } from "./format.js";
import { print } from "./route.js";

const LOOK_AGAIN_MS = 2000;
const QUIET_MS = 60_000;
const MAX_PLANS = 7;
const TILES = [
  ["loss", "Loss"],
  ["reward", "Reward"],
  ["outcome", "Outcome"],
  ["rounds", "Rounds"],
  ["retrievals", "Searches"],
  ["malformed", "Malformed"],
  ["approx_kl", "KL"],
  ["entropy", "Entropy"],
  ["speed", "Trained tokens/s"],
];
const CHARTS = [
  { title: "Reward", names: ["reward"] },
  { title: "Loss of the warm start", names: ["loss"] },
  { title: "Outcome", names: ["outcome"], prefix: "outcome/" },
  { title: "Rounds and searches", names: ["rounds", "retrievals"] },
  { title: "Malformed output by role", prefix: "malformed/", format: percent },
  { title: "Selection", prefix: "selection/", format: percent },
  { title: "KL from the sampling policy", names: ["approx_kl", "reference_kl"] },
  { title: "Entropy", names: ["entropy"] },
  { title: "Tokens trained on a second", names: ["speed"] },
  { title: "Clipped share", names: ["clipped"], format: percent },
];
const LABELS = {
  retrievals: "searches",
  approx_kl: "KL",
  reference_kl: "KL from the start",
  outcome: "all",
  "selection/kept": "passages kept",
  "selection/held": "an answer kept",
  "selection/from_top": "an answer in as many from the top",
};

export class TrainingView {
  constructor() {
    this.route = { view: "training", run: "" };
    this.pulse = h("span", { class: "pulse" });
    this.title = h("h1");
    this.smoothing = h("input", {
      type: "range",
      min: "0",
      max: "0.98",
      step: "0.02",
      value: "0.7",
      "aria-label": "Smoothing",
      oninput: () => this.#draw(),
    });
    this.tiles = h("dl", { class: "tiles" });
    this.plans = new Chart({ title: "Workflows the planner chose", kind: "area", wide: true });
    this.charts = CHARTS.map((spec) => ({ ...spec, chart: new Chart(spec) }));
    this.events = h("section", { class: "card", "aria-label": "Guard events and remarks" });
    this.samples = h("section", { class: "card", "aria-label": "Sampled traces", hidden: true });
    this.nothing = h(
      "div",
      { class: "empty" },
      h("strong", {}, "Nothing written yet"),
      "The curves begin with the first iteration, and follow by themselves.",
    );
    const drawn = this.charts.map(({ chart }) => chart.element);
    const grid = h("div", { class: "charts" }, drawn.slice(0, 4), this.plans.element, drawn.slice(4));
    this.element = h(
      "div",
      { class: "view training" },
      h(
        "div",
        { class: "board" },
        h(
          "div",
          { class: "board-head" },
          this.title,
          this.pulse,
          h("label", { class: "smooth" }, "Smoothing", this.smoothing),
        ),
        this.nothing,
        this.tiles,
        grid,
        this.events,
        this.samples,
      ),
    );
    setInterval(() => document.hidden || !this.element.isConnected || this.#look(), LOOK_AGAIN_MS);
  }

  async show(route) {
    const changed = this.route.run !== route.run;
    this.route = route;
    const run = this.library?.runs.find((each) => each.name === route.run);
    put(this.title, run?.title ?? route.run, run ? h("small", {}, run.group) : null);
    if (changed) this.#forget();
    await this.#look();
    this.#draw();
  }

  #forget() {
    this.next = 0;
    this.rows = [];
    this.seen = false;
    this.changedAt = 0;
  }

  async #look() {
    const run = this.route.run;
    if (!run || this.looking) return;
    this.looking = true;
    try {
      for (let more = true; more && run === this.route.run;) {
        const found = await readCurves(run, this.next);
        if (run !== this.route.run) break;
        this.#take(found);
        more = found.more;
      }
      this.seen = true;
    } catch (error) {
      this.pulse.textContent = error.message;
    } finally {
      this.looking = false;
    }
    this.#beat();
  }

  #take(found) {
    if (found.restarted) this.rows = [];
    this.next = found.next;
    if (!found.rows.length && !found.restarted) return;
    this.rows = this.rows.concat(found.rows.map(withSpeed));
    if (this.seen) this.changedAt = Date.now();
    this.#draw();
    this.#drawSamples();
  }

  #beat() {
    const last = this.rows.at(-1)?.iteration;
    const live = Date.now() - this.changedAt < QUIET_MS;
    this.pulse.classList.toggle("live", live);
    this.pulse.textContent =
      last === undefined ? "no iteration yet" : `iteration ${count(last)}${live ? ", live" : ""}`;
  }

  /** After a rollback an iteration is written again; the later line is the one that counts. */
  #iterations(...kinds) {
    const byNumber = new Map(this.rows.filter((row) => kinds.includes(row.kind)).map((row) => [row.iteration, row]));
    return [...byNumber.values()].sort((a, b) => a.iteration - b.iteration);
  }

  #draw() {
    if (!this.element.isConnected || !this.rows) return;
    const rows = this.#iterations("iteration", "fit");
    const dev = this.#iterations("dev");
    const events = this.rows.filter((row) => row.kind === "guard" || row.kind === "mind");
    const domain = [
      Math.min(rows[0]?.iteration ?? 0, dev[0]?.iteration ?? Infinity),
      Math.max(rows.at(-1)?.iteration ?? 1, dev.at(-1)?.iteration ?? 0),
    ];
    const common = {
      domain,
      marks: events.map((row) => ({ x: row.iteration, label: `${row.event}: ${row.detail}` })),
      smoothing: Number(this.smoothing.value),
    };
    for (const { chart, ...spec } of this.charts) {
      const series = seriesOf(spec, rows, dev);
      chart.element.hidden = !series.some(({ points }) => points.length);
      chart.draw({ ...common, series });
    }
    const shares = planShares(rows);
    this.plans.element.hidden = !shares.length;
    this.plans.draw({ ...common, domain: [rows[0]?.iteration ?? 0, domain[1]], series: shares });
    put(
      this.tiles,
      TILES.map(([name, label]) => tile(rows, name, label)),
    );
    this.nothing.hidden = !this.seen || this.rows.length > 0;
    put(this.events, eventsTable(events));
    this.events.hidden = !events.length;
  }

  async #drawSamples() {
    const run = this.route.run;
    const found = await listRows(run, { limit: 0 }).catch(() => null);
    if (!found || run !== this.route.run) return;
    const parts = found.facets.part ?? [];
    this.samples.hidden = !parts.length;
    put(
      this.samples,
      h("h2", {}, "Traces sampled along the way"),
      h(
        "div",
        { class: "samples" },
        parts.map(([part, number]) =>
          h(
            "a",
            { class: "tag", href: print({ view: "traces", run, params: { part } }), title: `${number} traces` },
            `iteration ${part}`,
          ),
        ),
      ),
    );
  }
}

function withSpeed(row) {
  if (typeof row.tokens_per_second === "number") return { ...row, speed: row.tokens_per_second };
  const trained = Object.entries(row)
    .filter(([name]) => name.startsWith("tokens/"))
    .reduce((sum, [, value]) => sum + value, 0);
  return trained && row.seconds ? { ...row, speed: trained / row.seconds } : row;
}

function seriesOf({ names = [], prefix }, rows, dev) {
  const parts = prefix
    ? [...new Set(rows.flatMap((row) => Object.keys(row).filter((name) => name.startsWith(prefix))))].sort()
    : [];
  const all = [...names, ...parts].map((name, place) => ({
    name: LABELS[name] ?? name.replace(prefix ?? "", ""),
    tone: toneOf(place),
    points: pointsOf(rows, name),
  }));
  const measured = names.length === 1 || prefix ? pointsOf(dev, names[0]) : [];
  // A divergence that is not measured is written as zeros.
  const lines = all.filter(
    ({ name, points }) => name !== LABELS.reference_kl || points.some(([, value]) => value !== 0),
  );
  const solo = lines.filter(({ points }) => points.length).length === 1;
  return [
    ...lines.map((line) => (solo ? { ...line, name: "training" } : line)),
    ...(measured.length ? [{ name: "dev", tone: "s0", points: measured, dots: true }] : []),
  ];
}

const toneOf = (place) => `s${(place % 8) + 1}`;
const pointsOf = (rows, name) =>
  rows.filter((row) => typeof row[name] === "number").map((row) => [row.iteration, row[name]]);

/** The shares of the most frequent workflows over the whole run; the others together. */
function planShares(rows) {
  const totals = new Map();
  for (const row of rows) {
    for (const [name, value] of Object.entries(row))
      if (name.startsWith("plan/") && value) totals.set(name, (totals.get(name) ?? 0) + value);
  }
  const names = [...totals].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const planned = rows.filter((row) => names.some((name) => row[name] !== undefined));
  const share = (list) => planned.map((row) => [row.iteration, list.reduce((sum, name) => sum + (row[name] ?? 0), 0)]);
  const shown = names
    .slice(0, MAX_PLANS)
    .map((name, place) => ({ name: name.slice(5), tone: toneOf(place), points: share([name]) }));
  const rest = names.slice(MAX_PLANS);
  return rest.length ? [...shown, { name: "others", tone: "s8", points: share(rest) }] : shown;
}

function tile(rows, name, label) {
  const values = rows.map((row) => row[name]).filter((value) => typeof value === "number");
  if (!values.length) return null;
  const [first, last] = [values[0], values.at(-1)];
  const show = name === "malformed" ? percent : compact;
  return h(
    "div",
    { class: "tile" },
    h("dt", {}, label),
    h("dd", {}, show(last)),
    h("p", { class: "since" }, values.length > 1 ? `from ${show(first)}` : ""),
  );
}

function eventsTable(events) {
  if (!events.length) return null;
  const rows = events.map((row) =>
    h(
      "tr",
      {},
      h("td", {}, row.iteration),
      h("td", {}, row.event),
      h("td", {}, row.detail),
      h("td", {}, row.kind === "guard" ? `back to ${row.back_to}, step × ${compact(row.scale)}` : "nothing"),
    ),
  );
  return [
    h("h2", {}, "Guard events and remarks"),
    h(
      "table",
      { class: "events" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["Iteration", "Event", "Seen", "Done"].map((name) => h("th", { scope: "col" }, name)),
        ),
      ),
      h("tbody", {}, rows),
    ),
  ];
}
