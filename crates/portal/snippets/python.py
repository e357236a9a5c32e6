import json
from urllib.request import Request, urlopen

request = Request("https://ip.example/api/v1/ip", headers={"Authorization": "Bearer ips_…"})
with urlopen(request, timeout=10) as response:
    print(json.load(response))
