// A list of any length: only the rows in sight exist, and their data is fetched in pages as they come into sight.

import { h, put } from "./dom.js";

const ROW = 102;
const PAGE = 100;
const MARGIN = 6;

export class List {
  /** `fetchPage(offset, limit)` gives {items, matched, …}; `render(item)` gives a row's children; `idOf(item)` its name. */
  constructor({ label, fetchPage, render, idOf, onOpen, onLoad, onError }) {
    Object.assign(this, { fetchPage, render, idOf, onOpen, onLoad, onError });
    this.space = h("div", { class: "list-space" });
    this.element = h(
      "div",
      {
        class: "list",
        role: "listbox",
        tabindex: "0",
        "aria-label": label,
        onscroll: () => this.#paint(),
        onkeydown: (event) => this.#key(event),
      },
      this.space,
    );
    new ResizeObserver(() => this.#paint()).observe(this.element);
    this.selected = "";
    this.rows = new Map();
    this.matched = 0;
    this.#forget();
  }

  /** What is shown stays until something newer has come. */
  #forget() {
    this.stale = true;
    this.pages = new Map();
    this.version = (this.version ?? 0) + 1;
  }

  /** Fetch anew; `keep` leaves the place in the list as it is. */
  async load({ keep = false } = {}) {
    this.#forget();
    this.keeping = keep;
    if (!keep) this.element.scrollTop = 0;
    await this.#fetch(Math.floor(this.element.scrollTop / ROW / PAGE));
  }

  /** Bring a place into sight, fetching what is there. */
  async reveal(place) {
    await this.#fetch(Math.floor(place / PAGE));
    this.element.scrollTop = place * ROW - this.element.clientHeight / 3;
    this.#paint();
  }

  select(id, { reveal = false } = {}) {
    this.selected = id;
    if (reveal) {
      const place = this.#placeOf(id);
      if (place >= 0) this.reveal(place);
    }
    this.#paint();
  }

  async #fetch(page) {
    if (this.pages.has(page)) return;
    const version = this.version;
    this.pages.set(page, null);
    try {
      const found = await this.fetchPage(page * PAGE, PAGE);
      if (version !== this.version) return;
      this.pages.set(page, found.items);
      this.matched = found.matched;
      this.onLoad?.(found, page);
    } catch (error) {
      if (version !== this.version) return;
      this.pages.delete(page);
      if (this.stale && !this.keeping) this.#clear();
      this.onError?.(error);
      return;
    }
    this.space.style.height = `${this.matched * ROW}px`;
    this.#dropRows((place) => this.stale || Math.floor(place / PAGE) === page);
    this.stale = false;
    this.#paint();
  }

  /** What was asked for cannot be had: what is shown belongs to something else. */
  #clear() {
    this.matched = 0;
    this.space.style.height = "0px";
    this.#dropRows(() => true);
  }

  #dropRows(drop) {
    for (const [place, row] of this.rows) {
      if (!drop(place)) continue;
      row.remove();
      this.rows.delete(place);
    }
  }

  #paint() {
    const top = Math.max(Math.floor(this.element.scrollTop / ROW) - MARGIN, 0);
    const bottom = Math.min(
      Math.ceil((this.element.scrollTop + this.element.clientHeight) / ROW) + MARGIN,
      this.matched,
    );
    this.#dropRows((place) => place < top || place >= bottom);
    for (let place = top; place < bottom; place += 1) this.#row(place);
    this.#fetchNear(top, bottom);
  }

  /** Pages that are about to come into sight are fetched before they do. */
  #fetchNear(top, bottom) {
    for (const place of [top - PAGE / 2, bottom + PAGE / 2])
      if (place >= 0 && place < this.matched) this.#fetch(Math.floor(place / PAGE));
  }

  #row(place) {
    const item = this.pages.get(Math.floor(place / PAGE))?.[place % PAGE];
    if (!item) this.#fetch(Math.floor(place / PAGE));
    let row = this.rows.get(place);
    if (!row) {
      row = h("div", {
        class: item ? "row" : "row loading",
        role: "option",
        id: `row-${place}`,
        "aria-setsize": this.matched,
        "aria-posinset": place + 1,
      });
      row.style.top = `${place * ROW}px`;
      if (item) {
        put(row, this.render(item));
        row.addEventListener("click", () => this.onOpen(item));
      }
      this.rows.set(place, row);
      this.space.append(row);
    }
    const selected = Boolean(item) && this.idOf(item) === this.selected;
    row.setAttribute("aria-selected", String(selected));
    if (selected) this.element.setAttribute("aria-activedescendant", row.id);
  }

  #item(place) {
    return this.pages.get(Math.floor(place / PAGE))?.[place % PAGE];
  }

  first() {
    return this.#item(0);
  }

  has(id) {
    return this.#placeOf(id) >= 0;
  }

  #placeOf(id) {
    for (const [page, items] of this.pages) {
      const found = (items ?? []).findIndex((item) => this.idOf(item) === id);
      if (found >= 0) return page * PAGE + found;
    }
    return -1;
  }

  #reveal(place) {
    const above = place * ROW;
    if (above < this.element.scrollTop) this.element.scrollTop = above;
    const below = above + ROW - this.element.clientHeight;
    if (below > this.element.scrollTop) this.element.scrollTop = below;
  }

  async #key(event) {
    const jumps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    if (!(event.key in jumps) || event.ctrlKey || event.metaKey || event.altKey || !this.matched) return;
    event.preventDefault();
    const jump = jumps[event.key];
    const from = this.#placeOf(this.selected);
    const start = from >= 0 ? from : jump > 0 ? -1 : 0;
    const place = Math.min(Math.max(start + jump, 0), this.matched - 1);
    await this.#fetch(Math.floor(place / PAGE));
    this.#reveal(place);
    const item = this.#item(place);
    if (!item) return;
    this.select(this.idOf(item));
    this.onOpen(item);
  }
}
