// Prints your IP address, and your country if the key's scope includes it. .NET 10 or newer: dotnet run Lookup.cs
// [docs]
using System.Net.Http.Headers;
using System.Text.Json;

var url = Environment.GetEnvironmentVariable("IPSEITY_URL") ?? "https://ip.example";
var key = Environment.GetEnvironmentVariable("IPSEITY_KEY");
using var client = new HttpClient { Timeout = TimeSpan.FromSeconds(10) };
client.DefaultRequestHeaders.Authorization = new AuthenticationHeaderValue("Bearer", key);

using var response = await client.GetAsync($"{url}/api/v1/ip");
using var body = JsonDocument.Parse(await response.Content.ReadAsStringAsync());
// Null if the field is null or outside the key's scope.
string? Text(string field) => body.RootElement.TryGetProperty(field, out var value) ? value.GetString() : null;

if (!response.IsSuccessStatusCode)
{
    Console.Error.WriteLine($"{Text("error")}: {Text("message")}");
    // The daily quota resets at midnight UTC. A paused key (403) stays paused until its owner resumes it.
    if (Text("enterprise") != null)
    {
        Console.Error.WriteLine($"Try again in {response.Headers.RetryAfter} s.");
    }
    return 1;
}
var facts = new[] { Text("ip") ?? Text("ipv6"), Text("country") };
Console.WriteLine(string.Join(" ", facts.Where(fact => fact != null)));
return 0;
// [/docs]
