// The page with a new secret: sends a test request with it.

import { callApi, errorMessage } from "./api_call.js";
import "./code_tabs.js";

const section = document.getElementById("test");
const button = document.getElementById("send-test");
const output = document.getElementById("test-response");

async function sendTest() {
  const key = document.getElementById("secret").textContent;
  button.disabled = true;
  try {
    const { view } = await callApi("/api/v1/ip", { headers: { Authorization: `Bearer ${key}` } });
    output.replaceChildren(view);
  } catch {
    output.replaceChildren(errorMessage("Couldn’t reach the service. Check your connection and try again."));
  }
  button.disabled = false;
  button.focus();
}

if (section) {
  section.hidden = false;
  button.addEventListener("click", sendTest);
}
