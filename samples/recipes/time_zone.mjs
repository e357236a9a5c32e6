// Prints the time at the caller's location, or in UTC.
// [docs]
const response = await fetch("https://ip.example/api/v1/ip", {
  headers: { Authorization: "Bearer ips_…" },
}).catch(() => undefined);
const { timezone } = response?.ok ? await response.json() : {};
const timeZone = timezone ?? "UTC";
console.log(`${new Date().toLocaleTimeString("en", { timeStyle: "short", timeZone })} (${timeZone})`);
// [/docs]
