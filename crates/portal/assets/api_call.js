// Calls the API from a page and shows the response: status, time, headers and body.

/** Creates an element with a class and text. */
export function element(name, className = "", text = "") {
  const created = document.createElement(name);
  created.className = className;
  created.textContent = text;
  return created;
}

/** Creates the message for a request that got no response. */
export function errorMessage(text) {
  const message = element("p", "error-message", text);
  message.setAttribute("role", "alert");
  return message;
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d[\d.eE+-]*/g;

/** Highlights JSON with the classes that the documentation uses. */
function highlightJson(text) {
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

function scrollRegion(content, label) {
  const pre = element("pre", "scroll");
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", label);
  pre.append(content);
  return pre;
}

function headerList(headers) {
  const list = element("dl", "response-headers");
  for (const [name, value] of Object.entries(headers)) {
    const row = document.createElement("div");
    row.append(element("dt", "", name), element("dd", "", value));
    list.append(row);
  }
  const details = element("details", "disclosure");
  details.append(element("summary", "", `${Object.keys(headers).length} headers`), list);
  return details;
}

/** Sends a request to this service. Returns the response and an element that shows it. */
export async function callApi(url, init = {}) {
  const start = performance.now();
  const response = await fetch(url, { cache: "no-store", ...init });
  const text = await response.text();
  const durationMs = performance.now() - start;
  const headers = Object.fromEntries(response.headers);
  let body;
  let displayed = text;
  try {
    body = JSON.parse(text);
    displayed = JSON.stringify(body, null, 2);
  } catch {
    body = undefined;
  }
  const header = element("p", "response-header");
  const remaining = headers["x-ratelimit-remaining"];
  header.append(
    element("span", `response-status${response.ok ? "" : " error"}`, `${response.status}`),
    element("span", "response-time", `${durationMs.toFixed(durationMs < 10 ? 1 : 0)} ms round trip`),
  );
  if (remaining !== undefined) header.append(element("span", "response-remaining", `${Number(remaining).toLocaleString("en")} left today`));
  const view = element("div", "panel response-view");
  view.append(header, scrollRegion(body === undefined ? element("code", "", displayed) : highlightJson(displayed), "Response body"), headerList(headers));
  return { status: response.status, headers, body, view };
}
