<?php
// Prints your IP address, and your country if the key's scope includes it. PHP 8 with the curl extension.
// [docs]
$url = getenv('IPSEITY_URL') ?: 'https://ip.example';
$headers = [];
$curl = curl_init("$url/api/v1/ip");
curl_setopt_array($curl, [
    CURLOPT_HTTPHEADER => ['Authorization: Bearer ' . getenv('IPSEITY_KEY')],
    CURLOPT_RETURNTRANSFER => true,
    CURLOPT_TIMEOUT => 10,
    CURLOPT_HEADERFUNCTION => function ($curl, $line) use (&$headers) {
        [$name, $value] = explode(':', $line, 2) + [1 => ''];
        $headers[strtolower($name)] = trim($value);
        return strlen($line);
    },
]);
$response = curl_exec($curl);
if ($response === false) {
    fwrite(STDERR, curl_error($curl) . "\n");
    exit(1);
}
$body = json_decode($response, true);

if (curl_getinfo($curl, CURLINFO_RESPONSE_CODE) !== 200) {
    fwrite(STDERR, "{$body['error']}: {$body['message']}\n");
    // The daily quota resets at midnight UTC. A paused key (403) stays paused until its owner resumes it.
    if (isset($body['enterprise'])) {
        fwrite(STDERR, "Try again in {$headers['retry-after']} s.\n");
    }
    exit(1);
}
echo implode(' ', array_filter([$body['ip'] ?? $body['ipv6'], $body['country'] ?? null])), "\n";
// [/docs]
