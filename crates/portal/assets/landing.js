// The landing page's demo button: sends a request to the demo and shows the response.

import { callApi, element, errorMessage } from "./api_call.js";

const button = document.getElementById("demo");
const output = document.getElementById("demo-response");

/** Says when the demo quota resets, and links to a free key. */
function quotaNotice(body, retryAfterS) {
  const hours = Math.floor(retryAfterS / 3600);
  const minutes = Math.ceil((retryAfterS % 3600) / 60);
  const wait = hours ? `${hours} h ${minutes} min` : `${minutes} min`;
  const notice = element("div", "quota-notice");
  notice.append(
    element("h3", "", "Today’s demo quota is used up"),
    element("p", "", `Everyone shares it. It resets at midnight UTC, in ${wait}. A key is free and has 10,000 requests per day.`),
  );
  const link = element("a", "button primary", "Get a key");
  link.href = new URL(body.signup).pathname === "/signup" ? "/signup" : body.signup;
  notice.append(link);
  return notice;
}

button.addEventListener("click", async (event) => {
  event.preventDefault();
  button.classList.add("loading");
  try {
    const { status, headers, body, view } = await callApi("/api/v1/ip/demo");
    const isExhausted = status === 429 && body?.signup;
    output.replaceChildren(...(isExhausted ? [quotaNotice(body, Number(headers["retry-after"])), view] : [view]));
  } catch {
    output.replaceChildren(errorMessage("Couldn’t reach the service. Check your connection and try again."));
  }
  button.classList.remove("loading");
});
document.querySelector(".demo .hint").hidden = true;

// A connection shows one address. The visitor's other one comes from a token of a connection over the other family.
const PAIR_TIMEOUT_MS = 5000;
const lookup = document.querySelector("[data-pair-urls]");

async function requestToken(url) {
  const response = await fetch(`${url}/api/v1/pair`, { credentials: "omit", signal: AbortSignal.timeout(PAIR_TIMEOUT_MS) });
  return (await response.json()).token;
}

async function showOtherAddress() {
  const results = await Promise.allSettled(lookup.dataset.pairUrls.split(" ").map(requestToken));
  const tokens = results.flatMap(({ value }) => value ?? []);
  if (!tokens.length) return;
  const response = await fetch("/paired-address", { headers: { "Ipseity-Pair": tokens.join(",") } });
  if (response.status !== 200) return;
  const { ip, ipv6 } = await response.json();
  const shown = lookup.querySelector(".lookup-facts .mono").textContent;
  const [address, family] = shown === ip ? [ipv6, "IPv6"] : [ip, "IPv4"];
  for (const [id, text] of [["other-address", address], ["other-family", `${family}, from your browser’s second connection`]]) {
    document.getElementById(id).textContent = text;
    document.getElementById(id).hidden = false;
  }
}

if (lookup) showOtherAddress().catch(() => {});
