// What the pages do better with a script: copying, passkeys, and staying up to date. Each works, or is not shown, without it.

const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 60_000;

/** Says something to whoever does not see the page. */
function say(text) {
  document.getElementById("say").textContent = text;
}

/* Copying. */

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  const label = button.querySelector("span");
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    getSelection().selectAllChildren(source);
    say("Selected. Copy it with your keyboard.");
    return;
  }
  say("Copied.");
  if (button.classList.contains("done")) return;
  const before = [...label.childNodes];
  label.replaceChildren("Copied");
  button.classList.add("done");
  setTimeout(() => {
    label.replaceChildren(...before);
    button.classList.remove("done");
  }, 2_000);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}

/* Passkeys. */

const CEREMONIES = {
  get: (options) => navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) }),
  create: (options) => navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) }),
};

async function usePasskey(form) {
  const { csrf, credential } = form.elements;
  const begun = await fetch(form.dataset.begin, { method: "POST", body: new URLSearchParams({ csrf: csrf.value }) });
  if (!begun.ok) throw new Error(`the server answered ${begun.status}`);
  const { publicKey } = await begun.json();
  credential.value = JSON.stringify(await CEREMONIES[form.dataset.passkey](publicKey));
  form.submit();
}

function whyNoPasskey(error) {
  switch (error.name) {
    case "NotAllowedError":
      return "No passkey was used: it was cancelled, or it took too long. Nothing was changed.";
    case "InvalidStateError":
      return "This device holds a passkey of your account already.";
    default:
      return "The passkey could not be used. Load the page anew and try once more.";
  }
}

if (window.PublicKeyCredential?.parseRequestOptionsFromJSON) {
  for (const form of document.querySelectorAll("[data-passkey]")) {
    const problem = form.querySelector("[role=alert]");
    const button = form.querySelector("button");
    form.hidden = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      problem.hidden = true;
      button.disabled = true;
      try {
        await usePasskey(form);
      } catch (error) {
        problem.textContent = whyNoPasskey(error);
        problem.hidden = false;
      }
      button.disabled = false;
    });
  }
}

/* Staying up to date. Live elements may hold others; each is compared by its own part alone, so that a changed number does not replace a list. */

function ownPart(element) {
  const clone = element.cloneNode(true);
  for (const inner of clone.querySelectorAll("[data-live]")) inner.replaceWith(inner.id);
  return clone.outerHTML;
}

function livePartsOf(page) {
  return new Map([...page.querySelectorAll("[data-live]")].map((element) => [element.id, ownPart(element)]));
}

function isBeingTypedInto(element) {
  const active = document.activeElement;
  return element.contains(active) && active.matches("input, select, textarea");
}

function replace(old, fresh) {
  const focused = old.contains(document.activeElement) ? document.activeElement.id : null;
  const opened = new Set([...old.querySelectorAll("details[open]")].map((details) => details.closest("[id]").id));
  old.replaceWith(fresh);
  for (const details of fresh.querySelectorAll("details")) details.open = opened.has(details.closest("[id]").id);
  if (focused !== null) (document.getElementById(focused) ?? document.getElementById("main")).focus({ preventScroll: true });
}

function bringIn(page, known) {
  const pausesBefore = document.querySelectorAll(".pause").length;
  for (const [id, part] of livePartsOf(page)) {
    const old = document.getElementById(id);
    const fresh = page.getElementById(id);
    // What came in with the element around it is no longer in the fetched page.
    if (!old || !fresh || known.get(id) === part || isBeingTypedInto(old)) continue;
    replace(old, document.adoptNode(fresh));
    known.set(id, part);
  }
  document.title = page.title;
  if (document.querySelectorAll(".pause").length > pausesBefore) {
    document.querySelector(".notice")?.remove();
    say("A key has been paused. The page shows why, and a button to resume it.");
  }
}

function stayUpToDate(first) {
  const address = first.dataset.live || location.pathname;
  const sign = document.querySelector("[data-live-sign]");
  const known = livePartsOf(document);
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
        const response = await fetch(address, { headers: { Accept: "text/html" } });
        if (response.redirected) return location.assign(response.url);
        if (response.ok) bringIn(new DOMParser().parseFromString(await response.text(), "text/html"), known);
      }
    })()
      .catch(() => {})
      .finally(() => (fetching = null));
    await fetching;
  }

  function listen() {
    // The server tells at once what changed while nobody listened.
    const seen = document.getElementById("edition")?.dataset.edition ?? "";
    source = new EventSource(`/events?seen=${seen}`);
    source.addEventListener("open", () => {
      retryMs = RETRY_FIRST_MS;
      sign.hidden = false;
    });
    source.addEventListener("changed", refresh);
    source.addEventListener("gone", () => location.assign("/signin"));
    source.addEventListener("error", () => {
      stop();
      retry = setTimeout(listen, retryMs * (0.75 + Math.random() / 2));
      retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
    });
  }

  function stop() {
    clearTimeout(retry);
    source?.close();
    sign.hidden = true;
  }

  // A page that nobody sees holds no connection open.
  document.addEventListener("visibilitychange", () => {
    stop();
    if (!document.hidden) listen();
  });
  addEventListener("pagehide", stop);
  // What a form leads to is said by its own answer; signing out ends the stream as well.
  addEventListener("submit", stop);
  if (!document.hidden) listen();
}

const firstLive = document.querySelector("[data-live]");
if (firstLive) stayUpToDate(firstLive);

/* What was done is told once, not again on every reload. */

if (location.search.startsWith("?done=")) history.replaceState(null, "", location.pathname + location.hash);
