package nova.flink.plugin;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/** Where sources and sinks are, and what flows, as a person writes it in YAML. */
final class Mapping {
  /** The key of what has no key of its own. */
  static final String OTHERS = "*";

  private static final List<String> PARTS = List.of("sources", "sinks", "operators");
  private static final List<String> FIELDS = List.of("node", "rate", "selectivity", "partitions");

  /** What is said of one operator; what is not said is null. */
  static final class Entry {
    final String key;
    final String node;
    final Double rate;
    final Double selectivity;

    /** Numbers of a topic's partitions by node. */
    final Map<String, List<Integer>> partitions;

    Entry(
        String key,
        String node,
        Double rate,
        Double selectivity,
        Map<String, List<Integer>> partitions) {
      this.key = key;
      this.node = node;
      this.rate = rate;
      this.selectivity = selectivity;
      this.partitions = partitions;
    }
  }

  final String file;
  private final Map<String, Map<String, Entry>> parts = new LinkedHashMap<>();

  private Mapping(String file) {
    this.file = file;
    for (String part : PARTS) {
      parts.put(part, new LinkedHashMap<>());
    }
  }

  static Mapping none() {
    return new Mapping(Settings.MAPPING.key());
  }

  static Mapping read(String file) {
    Mapping mapping = new Mapping(file);
    ObjectNode document = Documents.read(Settings.MAPPING.key(), file);
    for (String part : Documents.names(document)) {
      if (!PARTS.contains(part)) {
        throw mapping.wrong(part + ": expected " + String.join(", ", PARTS));
      }
      JsonNode entries = document.get(part);
      for (String key : Documents.names(entries)) {
        mapping.parts.get(part).put(key, mapping.entry(part, key, entries.get(key)));
      }
    }
    return mapping;
  }

  private Entry entry(String part, String key, JsonNode said) {
    if (said.isTextual() || said.isInt()) {
      return new Entry(key, said.asText(), null, null, null);
    }
    if (!said.isObject()) {
      throw wrong(part + ": " + key + ": expected a node, or " + String.join(", ", FIELDS));
    }
    for (String field : Documents.names(said)) {
      if (!FIELDS.contains(field)) {
        throw wrong(
            part + ": " + key + ": " + field + ": expected " + String.join(", ", FIELDS));
      }
    }
    String node = said.hasNonNull("node") ? said.get("node").asText() : null;
    if (node != null && said.has("partitions")) {
      throw wrong(part + ": " + key + ": node and partitions: give one");
    }
    return new Entry(
        key,
        node,
        positive(part, key, said, "rate"),
        positive(part, key, said, "selectivity"),
        partitions(part, key, said.path("partitions")));
  }

  private Map<String, List<Integer>> partitions(String part, String key, JsonNode said) {
    if (said.isMissingNode()) {
      return null;
    }
    String where = part + ": " + key + ": partitions: ";
    if (!part.equals("sources") || !said.isObject() || said.isEmpty()) {
      throw wrong(where + "expected the numbers that each node of a source reads");
    }
    Map<String, List<Integer>> found = new LinkedHashMap<>();
    Set<Integer> taken = new HashSet<>();
    for (String node : Documents.names(said)) {
      List<Integer> numbers = new ArrayList<>();
      for (JsonNode one : said.get(node)) {
        if (!one.isInt() || one.asInt() < 0 || !taken.add(one.asInt())) {
          throw wrong(where + node + ": " + one + ": expected numbers from 0 on, each once");
        }
        numbers.add(one.asInt());
      }
      if (numbers.isEmpty()) {
        throw wrong(where + node + ": expected a list of numbers");
      }
      found.put(node, numbers);
    }
    return found;
  }

  private Double positive(String part, String key, JsonNode said, String field) {
    if (!said.has(field)) {
      return null;
    }
    JsonNode value = said.get(field);
    if (!value.isNumber() || value.asDouble() <= 0 || Double.isInfinite(value.asDouble())) {
      throw wrong(part + ": " + key + ": " + field + ": " + value + ": expected a number above 0");
    }
    return value.asDouble();
  }

  private Refusal wrong(String what) {
    return new Refusal(Settings.MAPPING.key() + ": " + file + ": " + what);
  }

  /** What is said of an operator of that name; null when nothing is. */
  Entry of(String part, String name) {
    Entry found = null;
    for (Entry entry : parts.get(part).values()) {
      if (!entry.key.equals(OTHERS) && Names.called(name, entry.key)) {
        if (found != null) {
          throw wrong(
              part + ": " + found.key + " and " + entry.key + ": both are called by the operator "
                  + name);
        }
        found = entry;
      }
    }
    return found != null ? found : parts.get(part).get(OTHERS);
  }
}
