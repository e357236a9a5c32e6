# Prints your address, and your country where the key's scope has it.
# [docs]
require "json"
require "net/http"

uri = URI(ENV.fetch("IPSEITY_URL", "https://ip.example") + "/api/v1/ip")
request = Net::HTTP::Get.new(uri, "Authorization" => "Bearer #{ENV.fetch("IPSEITY_KEY")}")
# A lookup is charged, so one that got no answer is not sent again behind your back.
options = { use_ssl: uri.scheme == "https", open_timeout: 10, read_timeout: 10, max_retries: 0 }
response = Net::HTTP.start(uri.host, uri.port, **options) { |http| http.request(request) }
body = JSON.parse(response.body)

unless response.is_a?(Net::HTTPOK)
  warn "#{body["error"]}: #{body["message"]}"
  # A spent day heals at midnight UTC. A paused key (403) does not: its owner has to resume it.
  warn "Try again in #{response["Retry-After"]} s." if body["enterprise"]
  exit 1
end
puts [body["ip"] || body["ipv6"], body["country"]].compact.join(" ")
# [/docs]
