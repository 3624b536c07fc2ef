// The address after `#` says what is shown, so that any view can be sent to somebody else.
//   #/traces/RUN/KEY/STEP?q=…     #/compare/BEFORE/AFTER/QUESTION/SIDE/STEP?change=…     #/training/RUN     #/ask

const NAMES = {
  traces: ["run", "key", "step"],
  compare: ["before", "after", "question", "side", "step"],
  training: ["run"],
  ask: ["step"],
};

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...parts] = path.split("/").map(decode);
  const known = view in NAMES ? view : "traces";
  const route = { view: known, params: Object.fromEntries(new URLSearchParams(query)) };
  NAMES[known].forEach((name, place) => {
    route[name] = parts[place] ?? "";
  });
  return route;
}

export function print(route) {
  const parts = NAMES[route.view].map((name) => encodeURIComponent(route[name] ?? ""));
  while (parts.length && !parts.at(-1)) parts.pop();
  const params = new URLSearchParams(Object.entries(route.params ?? {}).filter(([, value]) => value !== ""));
  const query = params.toString();
  return `#/${[route.view, ...parts].join("/")}${query ? `?${query}` : ""}`;
}

/** Go there; `quietly` replaces the present entry of the history. */
export function go(route, { quietly = false } = {}) {
  const hash = print(route);
  if (hash === location.hash) return;
  if (quietly) {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = hash;
  }
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
