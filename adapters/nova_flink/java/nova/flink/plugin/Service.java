package nova.flink.plugin;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/** Asks `nova serve`. */
final class Service {
  private static final Duration CONNECT = Duration.ofSeconds(5);
  private static final Duration ANSWER = Duration.ofSeconds(120);

  private final String url;
  private final String token;
  // Servers that know no upgrade to HTTP/2 refuse a body that asks for one.
  private final HttpClient client =
      HttpClient.newBuilder()
          .version(HttpClient.Version.HTTP_1_1)
          .connectTimeout(CONNECT)
          .build();

  Service(Configuration configuration) {
    url = configuration.get(Settings.SERVICE).replaceAll("/+$", "");
    String file = configuration.get(Settings.TOKEN_FILE);
    try {
      token = file == null ? null : Files.readString(Path.of(file)).strip();
    } catch (IOException error) {
      throw new Refusal(Settings.TOKEN_FILE.key() + ": " + file + ": " + Documents.why(error));
    }
  }

  /** The problem of that id or name. */
  ObjectNode problem(String name) {
    for (JsonNode id : get("/problems").path("problems")) {
      ObjectNode problem = (ObjectNode) get("/problems/" + id.asText());
      if (name.equals(id.asText()) || name.equals(problem.path("name").asText())) {
        return problem;
      }
    }
    throw new Refusal(
        Settings.NODES.key() + ": " + name + ": neither a file nor a problem of " + url);
  }

  /** A plan for a problem. */
  ObjectNode plan(ObjectNode problem, String strategy, String parameters) {
    String id = post("/problems", problem).path("id").asText();
    ObjectNode how = Documents.JSON.createObjectNode().put("strategy", strategy);
    how.set("parameters", read(parameters));
    return (ObjectNode) post("/problems/" + id + "/plan", how);
  }

  private static ObjectNode read(String parameters) {
    ObjectNode found = Documents.JSON.createObjectNode();
    for (String one : parameters.isBlank() ? new String[0] : parameters.split(",")) {
      String[] parts = one.split("=", 2);
      if (parts.length < 2) {
        throw new Refusal(Settings.PARAMETERS.key() + ": " + one + ": expected NAME=VALUE");
      }
      String value = parts[1].strip();
      try {
        found.set(parts[0].strip(), Documents.JSON.readTree(value));
      } catch (IOException error) {
        found.put(parts[0].strip(), value);
      }
    }
    return found;
  }

  private JsonNode get(String path) {
    return send(path, request(path).GET());
  }

  private JsonNode post(String path, ObjectNode body) {
    return send(
        path,
        request(path)
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(body.toString())));
  }

  private HttpRequest.Builder request(String path) {
    try {
      HttpRequest.Builder builder = HttpRequest.newBuilder(URI.create(url + path)).timeout(ANSWER);
      return token == null ? builder : builder.header("Authorization", "Bearer " + token);
    } catch (IllegalArgumentException error) {
      throw new Refusal(Settings.SERVICE.key() + ": " + url + ": expected http://HOST:PORT");
    }
  }

  private JsonNode send(String path, HttpRequest.Builder request) {
    try {
      HttpResponse<String> answer =
          client.send(request.build(), HttpResponse.BodyHandlers.ofString());
      if (answer.statusCode() >= 400) {
        throw new Refusal(url + path + ": " + refusal(answer));
      }
      return Documents.JSON.readTree(answer.body());
    } catch (IOException error) {
      throw new Refusal(
          url + ": no answer from `nova serve` (" + Documents.why(error) + "); is it up?");
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new Refusal(url + ": interrupted while waiting for `nova serve`");
    }
  }

  private static String refusal(HttpResponse<String> answer) {
    try {
      String told = Documents.JSON.readTree(answer.body()).path("error").asText();
      return told.isEmpty() ? "HTTP " + answer.statusCode() : told;
    } catch (IOException error) {
      return "HTTP " + answer.statusCode();
    }
  }
}
