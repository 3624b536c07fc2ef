// Small charts, drawn as SVG: lines over iterations, and shares stacked into an area. No library.

import { h, put, s } from "./dom.js";
import { compact, percent } from "./format.js";

const BOX = { left: 42, right: 8, top: 10, bottom: 20 };
const COLUMN = 2; // pixels that one point of a line has at least

/** A chart that can be drawn again. `draw(data)` takes {series, marks}: each series has name, tone and points [x, y]. */
export class Chart {
  constructor({ title, kind = "line", wide = false, format = compact }) {
    Object.assign(this, { title, kind, format });
    this.legend = h("span", { class: "legend" });
    this.svg = s("svg", { role: "img", "aria-label": title });
    this.element = h(
      "figure",
      { class: `chart${wide ? " wide" : ""}` },
      h("figcaption", {}, h("h2", {}, title), this.legend),
      this.svg,
    );
    this.svg.addEventListener("pointermove", (event) => this.#point(event));
    this.svg.addEventListener("pointerleave", () => this.#leave());
    new ResizeObserver(() => this.data && this.draw(this.data)).observe(this.svg);
  }

  draw(data) {
    this.data = data;
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width) return;
    const columns = Math.max(1, Math.floor((width - BOX.left - BOX.right) / COLUMN));
    this.series = data.series
      .filter((series) => series.points.length)
      .map((series) => {
        const seen = series.dots ? series.points : thinned(series.points, data.domain, columns);
        return { ...series, seen, soft: series.dots ? seen : smooth(seen, data.smoothing) };
      });
    // Many noisy lines on top of each other show nothing: then only their means are drawn.
    this.showRaw = data.smoothing > 0 && this.series.filter((series) => !series.dots).length <= 2;
    this.x = this.#scaleX(width, data.domain);
    this.y = this.#scaleY(height);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("aria-label", this.#spoken());
    this.cursor = s("line", { class: "cursor", y1: BOX.top, y2: height - BOX.bottom, visibility: "hidden" });
    put(
      this.svg,
      this.#axes(width, height),
      this.kind === "area" ? this.#areas() : this.#lines(),
      this.#marks(data.marks ?? [], height),
      this.cursor,
    );
    this.#legend(null);
  }

  #scaleX(width, [low, high]) {
    const span = Math.max(high - low, 1);
    const scale = (x) => BOX.left + ((x - low) / span) * (width - BOX.left - BOX.right);
    scale.invert = (place) => low + ((place - BOX.left) / (width - BOX.left - BOX.right)) * span;
    return scale;
  }

  #scaleY(height) {
    const values =
      this.kind === "area"
        ? [0, 1]
        : this.series.flatMap((series) => (this.showRaw ? series.seen : series.soft).map((point) => point[1]));
    const [low, high] = bounds(values, this.kind === "area");
    const scale = (y) => height - BOX.bottom - ((y - low) / (high - low)) * (height - BOX.bottom - BOX.top);
    return Object.assign(scale, { low, high });
  }

  #axes(width, height) {
    const values = ticks(this.y.low, this.y.high);
    const digits = Math.min(6, Math.max(...values.map((value) => String(value).split(".")[1]?.length ?? 0)));
    const plain = (value) => (Math.abs(value) >= 1e4 ? compact(value) : value.toFixed(digits));
    const label =
      this.kind === "area" || this.format === percent
        ? (value) => `${(value * 100).toFixed(Math.max(0, digits - 2))}%`
        : plain;
    const rows = values.map((value) => [
      s("line", { class: "grid", x1: BOX.left, x2: width - BOX.right, y1: this.y(value), y2: this.y(value) }),
      s("text", { class: "axis", x: BOX.left - 7, y: this.y(value) + 3.5, "text-anchor": "end" }, label(value)),
    ]);
    const [low, high] = this.data.domain;
    const columns = wholeTicks(low, high, width).map((value) =>
      s("text", { class: "axis", x: this.x(value), y: height - 4, "text-anchor": "middle" }, compact(value)),
    );
    return [rows, columns];
  }

  #lines() {
    return this.series.map(({ seen, soft, tone, dots }) => {
      if (dots)
        return seen.map(([x, y]) => s("circle", { class: `dot ${tone}`, cx: this.x(x), cy: this.y(y), r: 3.2 }));
      const single =
        seen.length === 1
          ? s("circle", { class: `dot ${tone}`, cx: this.x(seen[0][0]), cy: this.y(seen[0][1]), r: 3 })
          : null;
      return [
        this.showRaw ? s("path", { class: `raw ${tone}`, d: this.#path(seen) }) : null,
        s("path", { class: `line ${tone}`, d: this.#path(soft) }),
        single,
      ];
    });
  }

  #path(points) {
    return points
      .map(([x, y], place) => `${place ? "L" : "M"}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`)
      .join("");
  }

  #areas() {
    const xs = [...new Set(this.series.flatMap((series) => series.seen.map((point) => point[0])))].sort((a, b) => a - b);
    let floor = xs.map(() => 0);
    return this.series.map(({ soft, tone }) => {
      const at = new Map(soft);
      const top = xs.map((x, place) => floor[place] + (at.get(x) ?? 0));
      const there = xs.map((x, place) => [x, top[place]]);
      const back = xs.map((x, place) => [x, floor[place]]).reverse();
      floor = top;
      return s("path", { class: `area ${tone}`, d: `${this.#path(there)}L${this.#path(back).slice(1)}Z` });
    });
  }

  #marks(marks, height) {
    return marks.map(({ x, label }) =>
      s(
        "line",
        { class: "event", x1: this.x(x), x2: this.x(x), y1: BOX.top, y2: height - BOX.bottom },
        s("title", {}, label),
      ),
    );
  }

  #point(event) {
    if (!this.x) return;
    const wanted = this.x.invert(event.clientX - this.svg.getBoundingClientRect().left);
    const xs = this.series.filter((series) => !series.dots).flatMap((series) => series.points.map((point) => point[0]));
    if (!xs.length) return;
    const nearest = xs.reduce((best, x) => (Math.abs(x - wanted) < Math.abs(best - wanted) ? x : best));
    for (const name of ["x1", "x2"]) this.cursor.setAttribute(name, this.x(nearest));
    this.cursor.setAttribute("visibility", "visible");
    this.#legend(nearest);
  }

  #leave() {
    this.cursor?.setAttribute("visibility", "hidden");
    if (this.series) this.#legend(null);
  }

  /** Names with the values under the pointer; without a pointer, where several lines need telling apart, the last ones. */
  #legend(x) {
    const shown = this.series.map(({ name, tone, points }) => {
      const point = x === null ? points.at(-1) : points.find((each) => each[0] === x);
      if (!point && x !== null) return null;
      return h("span", { class: tone }, h("i"), name, " ", point ? this.#value(point[1]) : "");
    });
    put(this.legend, x === null ? null : h("span", {}, `at ${x}`), shown);
  }

  #value(value) {
    return (this.kind === "area" ? percent : this.format)(value);
  }

  #spoken() {
    const parts = this.series
      .filter((series) => !series.dots)
      .map(({ name, points }) => `${name} from ${this.#value(points[0][1])} to ${this.#value(points.at(-1)[1])}`);
    return `${this.title}: ${parts.join("; ") || "nothing yet"}`;
  }
}

function bounds(values, exact) {
  if (exact) return [0, 1];
  const low = Math.min(...values, Infinity);
  const high = Math.max(...values, -Infinity);
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 && low < high * 0.5 ? 0 : low - room, high + room];
}

function ticks(low, high) {
  const step = niceStep((high - low) / 4);
  const first = Math.ceil(low / step - 1e-9) * step;
  return Array.from({ length: Math.floor((high - first) / step + 1e-9) + 1 }, (_, place) =>
    Number((first + place * step).toPrecision(10)),
  );
}

function wholeTicks(low, high, width) {
  const step = Math.ceil(niceStep((high - low) / Math.max(2, width / 90)));
  const first = Math.ceil(low / step) * step;
  return Array.from({ length: Math.max(0, Math.floor((high - first) / step) + 1) }, (_, place) => first + place * step);
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? power;
}

/** Where there are more points than columns to draw them in: the mean of each column's. */
function thinned(points, [low, high], columns) {
  if (points.length <= columns) return points;
  const sums = new Map();
  for (const [x, y] of points) {
    const column = Math.floor(((x - low) / (high - low + 1)) * columns);
    const [sumX, sumY, number] = sums.get(column) ?? [0, 0, 0];
    sums.set(column, [sumX + x, sumY + y, number + 1]);
  }
  return [...sums.values()].map(([sumX, sumY, number]) => [sumX / number, sumY / number]);
}

/** A running mean that starts at the first value; 0 leaves the points as they are. */
function smooth(points, weight) {
  let mean = null;
  return points.map(([x, y]) => {
    mean = mean === null ? y : weight * mean + (1 - weight) * y;
    return [x, mean];
  });
}
