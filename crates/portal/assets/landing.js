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
  const link = element("a", "button primary", "Get a free key");
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
