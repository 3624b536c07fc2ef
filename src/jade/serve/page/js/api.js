// The server's data. A key, where one is needed, lives in this tab's memory alone and goes into a header.

let key = sessionStorage.getItem("jade-key") ?? "";
const listeners = new Set();

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setKey(value) {
  key = value;
  sessionStorage.setItem("jade-key", value);
}

/** Called when the server wants a key, with whether it refused one. */
export function onKeyNeeded(listener) {
  listeners.add(listener);
}

export async function get(path, params = {}, { signal } = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value !== undefined));
  const response = await fetch(`/v1${path}${query.size ? `?${query}` : ""}`, { headers: headers(), signal });
  return (await checked(response)).json();
}

export const listRuns = () => get("/runs");
export const listRows = (run, params, options) => get(`/runs/${encodeURIComponent(run)}/rows`, params, options);
export const readTrace = (run, id, options) =>
  get(`/runs/${encodeURIComponent(run)}/traces/${encodeURIComponent(id)}`, {}, options);
export const readCurves = (run, after) => get(`/runs/${encodeURIComponent(run)}/curves`, { after });
export const compare = (params, options) => get("/compare", params, options);

/** Ask the team; `hear(name, data)` is called for every event. Aborting the signal stops the team's work. */
export async function ask(body, hear, signal) {
  const response = await fetch("/v1/ask", {
    method: "POST",
    headers: { ...headers(), "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  await checked(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (waiting + value).split("\n\n");
    waiting = events.pop();
    events.forEach((event) => deliver(event, hear));
  }
}

function deliver(event, hear) {
  const lines = event.split("\n");
  const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
  const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
  if (name && data) hear(name, JSON.parse(data));
}

function headers() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function checked(response) {
  if (response.ok) return response;
  if (response.status === 401) listeners.forEach((listener) => listener(key !== ""));
  const body = await response.json().catch(() => null);
  throw new ApiError(response.status, body?.error?.message ?? `the server answered ${response.status}`);
}
