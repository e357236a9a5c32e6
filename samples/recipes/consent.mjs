// Prints whether the caller needs a consent banner. Without an answer, it is shown.
// [docs]
const response = await fetch("https://ip.example/api/v1/ip", {
  headers: { Authorization: "Bearer ips_…" },
}).catch(() => undefined);
const { is_eu: isInEu } = response?.ok ? await response.json() : {};
const needsBanner = isInEu !== false;
console.log(needsBanner ? "Show the banner" : "No banner");
// [/docs]
