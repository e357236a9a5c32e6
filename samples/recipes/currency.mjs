// Prints a price in the currency of the caller's country, or in US dollars.
// [docs]
const prices = { USD: 10, EUR: 9, GBP: 8 };

const response = await fetch("https://ip.example/api/v1/ip", {
  headers: { Authorization: "Bearer ips_…" },
}).catch(() => undefined);
const { currency } = response?.ok ? await response.json() : {};
const chosen = currency in prices ? currency : "USD";
console.log(prices[chosen].toLocaleString("en", { style: "currency", currency: chosen }));
// [/docs]
