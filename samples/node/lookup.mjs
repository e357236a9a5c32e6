// Prints your address, and your country where the key's scope has it. Node 18 or newer.
// [docs]
const { IPSEITY_KEY, IPSEITY_URL = "https://ip.example" } = process.env;

const response = await fetch(`${IPSEITY_URL}/api/v1/ip`, {
  headers: { Authorization: `Bearer ${IPSEITY_KEY}` },
  signal: AbortSignal.timeout(10_000),
});
const body = await response.json();

if (response.ok) {
  console.log([body.ip ?? body.ipv6, body.country].filter(Boolean).join(" "));
} else {
  console.error(`${body.error}: ${body.message}`);
  // A spent day heals at midnight UTC. A paused key (403) does not: its owner has to resume it.
  if (body.enterprise) console.error(`Try again in ${response.headers.get("Retry-After")} s.`);
  process.exitCode = 1;
}
// [/docs]
