// Serves index.html, and creates tickets for its visitors. Node 18 or newer.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const PAGE = readFileSync(new URL("index.html", import.meta.url));

// [docs]
const { IPSEITY_KEY, IPSEITY_URL = "https://ip.example", PORT = "3000" } = process.env;
const { ORIGIN = `http://localhost:${PORT}` } = process.env;

// Works for five lookups per node in five minutes, and only for pages of ORIGIN. Creating it is not charged.
async function createTicket() {
  const response = await fetch(`${IPSEITY_URL}/api/v1/tickets`, {
    method: "POST",
    headers: { Authorization: `Bearer ${IPSEITY_KEY}`, "Content-Type": "application/json" },
    body: JSON.stringify({ origin: ORIGIN, scope: "geo" }),
    signal: AbortSignal.timeout(10_000),
  });
  const body = await response.json();
  if (!response.ok) throw new Error(`${body.error}: ${body.message}`);
  return body;
}

async function sendTicket(response) {
  const headers = { "Content-Type": "application/json", "Cache-Control": "no-store" };
  try {
    const ticket = await createTicket();
    response.writeHead(200, headers).end(JSON.stringify(ticket));
  } catch (error) {
    // The reason is for you, not for visitors.
    console.error(error.message);
    response.writeHead(502, headers).end(JSON.stringify({ message: "No ticket. Try again later." }));
  }
}

createServer((request, response) => {
  // Check here that the visitor may have a ticket, for example that there is a session.
  if (request.method === "POST" && request.url === "/ticket") sendTicket(response);
  else if (request.url === "/") response.writeHead(200, { "Content-Type": "text/html" }).end(PAGE);
  else response.writeHead(404).end();
}).listen(PORT, () => console.log(`Open ${ORIGIN}/`));
// [/docs]
