const response = await fetch("https://ip.example/api/v1/ip", {
  headers: { Authorization: "Bearer ips_…" },
});
console.log(await response.json());
