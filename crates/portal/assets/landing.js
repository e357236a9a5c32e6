// The landing page's button: calls the demo for real, and shows what was asked and answered.

import { answered, element, refusalIn } from "./api_call.js";

const button = document.getElementById("demo");
const place = document.getElementById("demo-answer");

/** A spent quota is nobody's fault: when it opens again, and what helps until then. */
function spent(body, retryAfterS) {
  const hours = Math.floor(retryAfterS / 3600);
  const minutes = Math.ceil((retryAfterS % 3600) / 60);
  const wait = hours ? `${hours} h ${minutes} min` : `${minutes} min`;
  const notice = element("div", "kindly");
  notice.append(
    element("h3", "", "Today’s demo requests are all used"),
    element("p", "", `Others were curious too. The demo opens again at midnight UTC, in ${wait}. A key of your own is free, and has 10,000 requests a day to itself.`),
  );
  const link = element("a", "button primary", "Get a free key");
  link.href = new URL(body.signup).pathname === "/signup" ? "/signup" : body.signup;
  notice.append(link);
  return notice;
}

button.addEventListener("click", async (event) => {
  event.preventDefault();
  button.classList.add("busy");
  try {
    const shown = await answered("/api/v1/ip/demo");
    const isSpent = shown.status === 429 && shown.body?.signup;
    place.replaceChildren(...(isSpent ? [spent(shown.body, Number(shown.headers["retry-after"])), shown.view] : [shown.view]));
  } catch {
    place.replaceChildren(refusalIn("The service could not be reached. Look at your connection and try once more."));
  }
  button.classList.remove("busy");
});
document.querySelector(".try .hint").hidden = true;
