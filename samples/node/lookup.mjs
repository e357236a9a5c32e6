// Prints your IP address, and your country if the key's scope includes it. Node 18 or newer.
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
  // The daily quota resets at midnight UTC. A paused key (403) stays paused until its owner resumes it.
  if (body.enterprise) console.error(`Try again in ${response.headers.get("Retry-After")} s.`);
  process.exitCode = 1;
}
// [/docs]
