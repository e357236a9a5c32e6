// Calls the API from a page, and shows what came back: status, time, headers and body.

/** An element with a class and text. */
export function element(name, className = "", text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

/** A sentence about a call that got no answer. */
export function refusalIn(text) {
  const made = element("p", "problem", text);
  made.setAttribute("role", "alert");
  return made;
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d[\d.eE+-]*/g;

/** JSON in the colours of the documentation. */
function coloured(text) {
  const code = document.createElement("code");
  let from = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [whole, quoted, colon] = match;
    code.append(text.slice(from, match.index));
    code.append(element("span", quoted ? (colon ? "code-key" : "code-text") : "code-number", quoted ?? whole), colon ?? "");
    from = match.index + whole.length;
  }
  code.append(text.slice(from));
  return code;
}

function scrolling(content, label) {
  const pre = element("pre", "scroll");
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", label);
  pre.append(content);
  return pre;
}

function headersOf(headers) {
  const list = element("dl", "headers");
  for (const [name, value] of Object.entries(headers)) {
    const row = document.createElement("div");
    row.append(element("dt", "", name), element("dd", "", value));
    list.append(row);
  }
  const details = element("details", "numbers");
  details.append(element("summary", "", `${Object.keys(headers).length} headers`), list);
  return details;
}

/** Calls an address of this service, and gives the answer with a view of it. */
export async function answered(address, init = {}) {
  const start = performance.now();
  const response = await fetch(address, { cache: "no-store", ...init });
  const text = await response.text();
  const tookMs = performance.now() - start;
  const headers = Object.fromEntries(response.headers);
  let body;
  let written = text;
  try {
    body = JSON.parse(text);
    written = JSON.stringify(body, null, 2);
  } catch {
    body = undefined;
  }
  const head = element("p", "answer-head");
  const limits = headers["x-ratelimit-remaining"];
  head.append(
    element("span", `answer-status${response.ok ? "" : " refused"}`, `${response.status}`),
    element("span", "answer-time", `${tookMs.toFixed(tookMs < 10 ? 1 : 0)} ms, there and back`),
  );
  if (limits !== undefined) head.append(element("span", "answer-left", `${Number(limits).toLocaleString("en")} left today`));
  const view = element("div", "panel shown");
  view.append(head, scrolling(body === undefined ? element("code", "", written) : coloured(written), "The answer"), headersOf(headers));
  return { status: response.status, headers, body, view };
}
