// Progressive enhancement of all pages: copy buttons, passkeys and live updates. Without JavaScript these are hidden or not needed.

const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 60_000;
const COUNTDOWN_INTERVAL_MS = 30_000;

/** Announces a text to screen readers. */
function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/* Copy buttons. */

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  const label = button.querySelector("span");
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    getSelection().selectAllChildren(source);
    announce("Selected. Copy it with your keyboard.");
    return;
  }
  announce("Copied.");
  if (button.classList.contains("copied")) return;
  const before = [...label.childNodes];
  label.replaceChildren("Copied");
  button.classList.add("copied");
  setTimeout(() => {
    label.replaceChildren(...before);
    button.classList.remove("copied");
  }, 2_000);
}

function enableCopyButtons(root) {
  for (const button of root.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }
}

enableCopyButtons(document);

/* Buttons that show a password. It is hidden again before it is sent, so that browsers do not store it as text. */

for (const button of document.querySelectorAll("[data-show-password]")) {
  const input = document.getElementById(button.dataset.showPassword);
  const show = (isShown) => {
    input.type = isShown ? "text" : "password";
    button.setAttribute("aria-pressed", isShown);
  };
  button.hidden = false;
  button.addEventListener("click", () => show(input.type === "password"));
  input.form.addEventListener("submit", () => show(false));
}

/* Passkeys. */

const CEREMONIES = {
  get: (options) => navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) }),
  create: (options) => navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) }),
};

/** The server rejected a request. The message is that of its error page. */
class Rejection extends Error {
  static async from(response) {
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    return new Rejection(page.querySelector("main .lead")?.textContent);
  }
}

async function submitPasskey(form) {
  const { credential } = form.elements;
  const response = await fetch(form.dataset.begin, { method: "POST", body: new URLSearchParams(new FormData(form)) });
  // The session must be confirmed first, on another page.
  if (response.redirected) return location.assign(response.url);
  if (!response.ok) throw await Rejection.from(response);
  const { publicKey } = await response.json();
  credential.value = JSON.stringify(await CEREMONIES[form.dataset.passkey](publicKey));
  form.submit();
}

function passkeyErrorText(error) {
  if (error instanceof Rejection && error.message) return error.message;
  switch (error.name) {
    case "NotAllowedError":
      return "Passkey request canceled or timed out. Nothing changed.";
    case "InvalidStateError":
      return "This device already has a passkey for your account.";
    default:
      return "Couldn’t use the passkey. Reload the page and try again.";
  }
}

if (window.PublicKeyCredential?.parseRequestOptionsFromJSON) {
  for (const form of document.querySelectorAll("[data-passkey]")) {
    const message = form.querySelector("[role=alert]");
    const button = form.querySelector("button");
    form.hidden = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      message.hidden = true;
      button.disabled = true;
      try {
        await submitPasskey(form);
      } catch (error) {
        message.textContent = passkeyErrorText(error);
        message.hidden = false;
      }
      button.disabled = false;
    });
  }
}

/* Live updates. Live elements may contain other live elements. Each is compared without them, so that a changed number does not replace a list. */

function htmlWithoutNested(element) {
  const clone = element.cloneNode(true);
  for (const inner of clone.querySelectorAll("[data-live]")) inner.replaceWith(inner.id);
  // As in the response, before the script showed them.
  for (const button of clone.querySelectorAll("[data-copy]")) button.hidden = true;
  return clone.outerHTML;
}

function liveElementsOf(page) {
  return new Map([...page.querySelectorAll("[data-live]")].map((element) => [element.id, htmlWithoutNested(element)]));
}

function hasFocusedInput(element) {
  const active = document.activeElement;
  return element.contains(active) && active.matches("input, select, textarea, .chart");
}

function replaceElement(old, fresh) {
  const focused = old.contains(document.activeElement) ? document.activeElement.id : null;
  const opened = new Set([...old.querySelectorAll("details[open]")].map((details) => details.closest("[id]").id));
  old.replaceWith(fresh);
  enableCopyButtons(fresh);
  for (const details of fresh.querySelectorAll("details")) details.open = opened.has(details.closest("[id]").id);
  if (focused !== null) (document.getElementById(focused) ?? document.getElementById("main")).focus({ preventScroll: true });
}

function applyUpdate(page, known) {
  const pausesBefore = document.querySelectorAll(".pause").length;
  for (const [id, html] of liveElementsOf(page)) {
    const old = document.getElementById(id);
    const fresh = page.getElementById(id);
    // An element that moved with its parent is no longer in the fetched page.
    if (!old || !fresh || known.get(id) === html || hasFocusedInput(old)) continue;
    if (fresh.dataset.announce && !old.dataset.announce) announce(fresh.dataset.announce);
    replaceElement(old, document.adoptNode(fresh));
    known.set(id, html);
  }
  document.title = page.title;
  if (document.querySelectorAll(".pause").length > pausesBefore) {
    document.querySelector(".notice")?.remove();
    announce("A key was paused. The page shows why, with a button to resume it.");
  }
}

/** Counts down to the reset of the daily limit. Returns whether it has passed. */
function updateCountdowns() {
  let hasPassed = false;
  for (const time of document.querySelectorAll("[data-countdown]")) {
    const minutes = Math.ceil((new Date(time.dateTime) - Date.now()) / 60_000);
    if (minutes <= 0) hasPassed = true;
    else time.textContent = remainingText(minutes);
  }
  return hasPassed;
}

function remainingText(minutes) {
  const parts = [[Math.floor(minutes / 60), "h"], [minutes % 60, "min"]];
  return `in ${parts.filter(([number]) => number > 0).map((part) => part.join(" ")).join(" ")}`;
}

function startLiveUpdates(first) {
  const url = first.dataset.live || location.pathname;
  const indicator = document.querySelector("[data-live-indicator]");
  const known = liveElementsOf(document);
  let source = null;
  let retryMs = RETRY_FIRST_MS;
  let retry = null;
  let fetching = null;
  let isStale = false;

  async function refresh() {
    isStale = true;
    fetching ??= (async () => {
      while (isStale) {
        isStale = false;
        const response = await fetch(url, { headers: { Accept: "text/html" } });
        if (response.redirected) return location.assign(response.url);
        if (response.ok) applyUpdate(new DOMParser().parseFromString(await response.text(), "text/html"), known);
      }
    })()
      .catch(() => {})
      .finally(() => (fetching = null));
    await fetching;
  }

  function connect() {
    // With this version the server knows whether the page missed a change.
    const version = document.getElementById("page-version")?.dataset.version ?? "";
    source = new EventSource(`/events?version=${version}`);
    source.addEventListener("open", () => {
      retryMs = RETRY_FIRST_MS;
      indicator.hidden = false;
    });
    source.addEventListener("changed", refresh);
    // The server redirects to the sign-in page, which leads back.
    source.addEventListener("signed-out", () => location.assign(url));
    source.addEventListener("error", () => {
      disconnect();
      retry = setTimeout(connect, retryMs * (0.75 + Math.random() / 2));
      retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
    });
  }

  function disconnect() {
    clearTimeout(retry);
    source?.close();
    indicator.hidden = true;
  }

  setInterval(() => {
    if (updateCountdowns()) refresh();
  }, COUNTDOWN_INTERVAL_MS);
  // A hidden page keeps no connection open.
  document.addEventListener("visibilitychange", () => {
    disconnect();
    if (!document.hidden) connect();
  });
  addEventListener("pagehide", disconnect);
  // A submitted form loads a new page, and signing out also ends the stream.
  addEventListener("submit", disconnect);
  if (!document.hidden) connect();
}

const firstLive = document.querySelector("[data-live]");
// The admin console shows parts of the pages of owners, but gets no events.
if (firstLive && document.querySelector("[data-live-indicator]")) startLiveUpdates(firstLive);

/* A notice is shown once, not again on every reload. */

if (location.search.startsWith("?done=")) history.replaceState(null, "", location.pathname + location.hash);
