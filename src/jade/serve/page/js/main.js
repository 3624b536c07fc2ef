// The page: which view is shown for which address, the runs to choose from, the theme, and the key where one is needed.

import { listRuns, onKeyNeeded, setKey } from "./api.js";
import { AskView } from "./ask.js";
import { CompareView } from "./compare.js";
import { h, put } from "./dom.js";
import { go, parse } from "./route.js";
import { runOptions } from "./runs.js";
import { themeButton } from "./theme.js";
import { TracesView } from "./traces.js";
import { TrainingView } from "./train.js";

const LOOK_AGAIN_MS = 10_000;
const main = document.getElementById("main");
const picker = h("select", { class: "field", "aria-label": "Run", onchange: () => chooseRun(picker.value) });
const views = {};
const makers = { traces: TracesView, compare: CompareView, training: TrainingView, ask: AskView };
let library = { runs: [], team: false };
let route = parse(location.hash);

const offered = () => ({
  traces: library.runs.length > 0,
  compare: library.runs.filter((run) => run.kind !== "live").length > 1,
  training: library.runs.some((run) => run.kind === "training"),
  ask: library.team,
});
const TITLES = { traces: "Traces", compare: "Compare", training: "Training", ask: "Ask" };

async function start() {
  document.getElementById("tools").append(picker, themeButton());
  onKeyNeeded(askForKey);
  addEventListener("hashchange", follow);
  addEventListener("keydown", leaveStep);
  setInterval(lookAgain, LOOK_AGAIN_MS);
  try {
    await refresh();
  } catch (error) {
    if (error.status !== 401)
      put(main, h("div", { class: "empty" }, h("strong", {}, "The server does not answer"), error.message));
    return;
  }
  follow();
}

/** Not while a key is being typed: the refusal would ask for it anew. */
function lookAgain() {
  if (!document.hidden && !main.querySelector(".gate")) refresh().catch(() => {});
}

async function refresh() {
  const found = await listRuns();
  if (JSON.stringify(found) === JSON.stringify(library)) return;
  library = found;
  drawBar();
}

function follow() {
  route = complete(parse(location.hash));
  drawBar();
  document.title = `${TITLES[route.view]} · JADE`;
  const view = (views[route.view] ??= new makers[route.view](library));
  view.library = library;
  if (!view.element.isConnected) put(main, view.element);
  view.show(route);
}

/** An address that leaves out the run means the first one there is. */
function complete(given) {
  const able = offered();
  if (location.hash.length < 3 && !able.traces && able.ask) return { ...given, view: "ask" };
  if (location.hash.length < 3 && library.runs[0]?.kind === "training")
    return { ...given, view: "training", run: library.runs[0].name };
  if (given.view === "traces" && !given.run) return { ...given, run: library.runs[0]?.name ?? "" };
  if (given.view === "training" && !given.run)
    return { ...given, run: library.runs.find((run) => run.kind === "training")?.name ?? "" };
  if (given.view === "compare" && !(given.before && given.after)) {
    const names = library.runs.filter((run) => run.kind !== "live").map((run) => run.name);
    const before = given.before || names.find((name) => name !== given.after) || "";
    return { ...given, before, after: given.after || names.find((name) => name !== before) || "" };
  }
  return given;
}

function drawBar() {
  const able = offered();
  put(
    document.getElementById("tabs"),
    Object.keys(TITLES)
      .filter((name) => able[name] || name === route.view)
      .map((name) => h("a", { href: `#/${name}`, "aria-current": name === route.view ? "page" : null }, TITLES[name])),
  );
  const choices = library.runs.filter((run) => route.view !== "training" || run.kind === "training");
  picker.hidden = !["traces", "training"].includes(route.view) || choices.length < 2;
  put(picker, runOptions(choices));
  picker.value = route.run ?? "";
}

/** Escape closes the step and goes back to where in the tree it was opened. */
function leaveStep(event) {
  if (event.key !== "Escape" || !route.step) return;
  go({ ...route, side: "", step: "" }, { quietly: true });
  (document.querySelector('.tree .step[tabindex="0"]') ?? document.querySelector('.tree [tabindex="0"]'))?.focus();
}

function chooseRun(name) {
  go({ view: route.view, run: name, params: {} });
}

function askForKey(refused) {
  const input = h("input", {
    class: "field",
    type: "password",
    autocomplete: "off",
    "aria-label": "API key",
    placeholder: "API key",
  });
  const form = h(
    "form",
    { class: "gate" },
    h("h1", {}, "This server needs a key"),
    h("p", { class: "muted" }, "It is kept in this tab only."),
    refused ? h("p", { class: "notice bad", role: "alert" }, "This key is not known here.") : null,
    input,
    h("button", { class: "button primary" }, "Enter"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setKey(input.value.trim());
    refresh().then(follow, () => {});
  });
  Object.keys(views).forEach((name) => delete views[name]);
  picker.hidden = true;
  put(main, form);
  input.focus();
}

start();
