// The filters over a list of questions: what there is to choose comes from the run itself, with counts.

import { h, icon, put } from "./dom.js";
import { count } from "./format.js";

const CHOICES = [
  ["dataset", "All datasets"],
  ["verdict", "Right and wrong"],
  ["workflow", "All workflows"],
  ["flag", "Flagged or not"],
  ["part", "All iterations"],
];
const LABELS = {
  dataset: "Dataset",
  verdict: "Right or wrong",
  workflow: "Workflow",
  flag: "Flag",
  part: "Iteration",
  cost: "Cost",
  sort: "Order",
};
const WORDS = {
  error: "errors",
  malformed: "malformed output",
  stopped: "out of budget",
  unsupported: "unsupported",
  unscored: "not scored",
};
const COSTS = [
  ["", "Any cost"],
  ["min_rounds=2", "2+ rounds"],
  ["min_rounds=4", "4+ rounds"],
  ["min_retrievals=2", "2+ searches"],
  ["min_retrievals=4", "4+ searches"],
  ["min_tokens=5000", "5k+ tokens"],
  ["min_tokens=20000", "20k+ tokens"],
];
const SORTS = [
  ["", "In order"],
  ["score", "Lowest F1"],
  ["-score", "Highest F1"],
  ["-rounds", "Most rounds"],
  ["-retrievals", "Most searches"],
  ["-tokens", "Most tokens"],
  ["-seconds", "Slowest"],
];
export const NAMES = ["q", "dataset", "verdict", "workflow", "flag", "part", "cost", "sort"];

export class Filters {
  /** `onChange(params)` hears the filters as they stand. */
  constructor(onChange) {
    this.onChange = onChange;
    this.params = {};
    this.search = h("input", {
      class: "field",
      type: "search",
      placeholder: "Search questions and passages",
      "aria-label": "Search",
      oninput: () => this.#later(),
    });
    this.selects = Object.fromEntries(
      [...CHOICES.map(([name]) => name), "cost", "sort"].map((name) => [name, this.#select(name)]),
    );
    fillSelect(this.selects.cost, COSTS);
    fillSelect(this.selects.sort, SORTS);
    this.element = h(
      "div",
      { class: "list-tools" },
      h("div", { class: "search" }, icon("search"), this.search),
      h("div", { class: "filters" }, Object.values(this.selects)),
    );
    this.offer({});
  }

  #select(name) {
    return h("select", {
      class: "field",
      name,
      "aria-label": LABELS[name],
      onchange: (event) => this.#set(name, event.target.value),
    });
  }

  #set(name, value) {
    this.params = { ...this.params, [name]: value };
    this.#mark();
    this.onChange(this.params);
  }

  #later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#set("q", this.search.value.trim()), 220);
  }

  /** Show what an address says. */
  show(params) {
    this.params = Object.fromEntries(NAMES.filter((name) => params[name]).map((name) => [name, params[name]]));
    if (document.activeElement !== this.search) this.search.value = params.q ?? "";
    this.#mark();
  }

  /** What there is to choose from. */
  offer(facets) {
    for (const [name, all] of CHOICES) {
      const found = facets[name] ?? [];
      this.selects[name].hidden = found.length === 0 || (name !== "flag" && found.length < 2 && !this.params[name]);
      fillSelect(this.selects[name], [
        ["", all],
        ...found.map(([value, number]) => [value, `${WORDS[value] ?? value} (${count(number)})`]),
      ]);
    }
    this.#mark();
  }

  #mark() {
    for (const [name, select] of Object.entries(this.selects)) {
      const value = this.params[name] ?? "";
      if (value && ![...select.options].some((option) => option.value === value))
        select.append(h("option", { value }, value));
      select.value = value;
      select.classList.toggle("set", Boolean(value) && name !== "sort");
    }
  }
}

function fillSelect(select, options) {
  put(
    select,
    options.map(([value, label]) => h("option", { value }, label)),
  );
}

/** Filters as the server wants them. */
export function asQuery(params) {
  const { cost = "", sort = "", ...rest } = params;
  const [name, value] = cost.split("=");
  const order = sort ? { sort: sort.replace("-", ""), descending: sort.startsWith("-") } : {};
  return {
    ...Object.fromEntries(Object.entries(rest).filter(([key]) => NAMES.includes(key))),
    ...(cost ? { [name]: value } : {}),
    ...order,
  };
}
