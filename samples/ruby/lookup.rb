# Prints your IP address, and your country if the key's scope includes it.
# [docs]
require "json"
require "net/http"

uri = URI(ENV.fetch("IPSEITY_URL", "https://ip.example") + "/api/v1/ip")
request = Net::HTTP::Get.new(uri, "Authorization" => "Bearer #{ENV.fetch("IPSEITY_KEY")}")
# Lookups are charged, so disable automatic retries.
options = { use_ssl: uri.scheme == "https", open_timeout: 10, read_timeout: 10, max_retries: 0 }
response = Net::HTTP.start(uri.host, uri.port, **options) { |http| http.request(request) }
body = JSON.parse(response.body)

unless response.is_a?(Net::HTTPOK)
  warn "#{body["error"]}: #{body["message"]}"
  # The daily quota resets at midnight UTC. A paused key (403) stays paused until its owner resumes it.
  warn "Try again in #{response["Retry-After"]} s." if body["enterprise"]
  exit 1
end
puts [body["ip"] || body["ipv6"], body["country"]].compact.join(" ")
# [/docs]
