// Prints your IP address, and your country if the key's scope includes it. Java 17 or newer: java Lookup.java
// [docs]
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.regex.Pattern;

public class Lookup {
    public static void main(String[] arguments) throws Exception {
        var url = System.getenv().getOrDefault("IPSEITY_URL", "https://ip.example");
        var request = HttpRequest.newBuilder(URI.create(url + "/api/v1/ip"))
                .header("Authorization", "Bearer " + System.getenv("IPSEITY_KEY"))
                .timeout(Duration.ofSeconds(10))
                .build();
        var response = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
        var body = response.body();

        if (response.statusCode() != 200) {
            System.err.println(text(body, "error") + ": " + text(body, "message"));
            // The daily quota resets at midnight UTC. A paused key (403) stays paused until its owner resumes it.
            if (!text(body, "enterprise").isEmpty()) {
                var seconds = response.headers().firstValue("Retry-After").orElse("some");
                System.err.println("Try again in " + seconds + " s.");
            }
            System.exit(1);
        }
        var address = text(body, "ip").isEmpty() ? text(body, "ipv6") : text(body, "ip");
        System.out.println((address + " " + text(body, "country")).strip());
    }

    // Java has no built-in JSON parser; use your project's instead. Empty if the field is null or absent.
    static String text(String json, String field) {
        var found = Pattern.compile("\"" + field + "\":\"((?:[^\"\\\\]|\\\\.)*)\"").matcher(json);
        return found.find() ? found.group(1) : "";
    }
}
// [/docs]
