curl -H 'Authorization: Bearer ips_…' https://ip.example/api/v1/ip
