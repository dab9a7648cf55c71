package nova.flink.plugin;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.commons.text.similarity.LevenshteinDistance;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/** Where sources and sinks are, and what flows, as a person writes it in YAML. */
final class Mapping {
  /** The key of what has no key of its own. */
  static final String OTHERS = "*";

  static final String SOURCES = "sources";
  static final String SINKS = "sinks";
  static final String OPERATORS = "operators";

  private static final Map<String, List<String>> FIELDS =
      Map.of(
          SOURCES, List.of("node", "rate", "selectivity", "partitions"),
          SINKS, List.of("node"),
          OPERATORS, List.of("selectivity"));
  // So many letters may be wrong in a name that another one is suggested for.
  private static final int SLIPS = 3;

  /** What is said of one operator; what is not said is null. */
  static final class Entry {
    final String key;
    final String node;
    final Double rate;

    /** 1 where it is not said. */
    final double selectivity;

    /** Numbers of a topic's partitions by node. */
    final Map<String, List<Integer>> partitions;

    Entry(
        String key,
        String node,
        Double rate,
        double selectivity,
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
  private final Set<Entry> found = new HashSet<>();

  private Mapping(String file) {
    this.file = file;
    for (String part : List.of(SOURCES, SINKS, OPERATORS)) {
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
      if (!FIELDS.containsKey(part)) {
        throw mapping.wrong(part + ": expected " + String.join(", ", mapping.parts.keySet()));
      }
      JsonNode entries = document.get(part);
      for (String key : Documents.names(entries)) {
        mapping.parts.get(part).put(key, mapping.entry(part, key, entries.get(key)));
      }
    }
    return mapping;
  }

  private Entry entry(String part, String key, JsonNode said) {
    List<String> fields = FIELDS.get(part);
    if (fields.contains("node") && (said.isTextual() || said.isInt())) {
      return new Entry(key, said.asText(), null, 1, null);
    }
    if (!said.isObject()) {
      String node = fields.contains("node") ? "a node, or " : "";
      throw wrong(part + ": " + key + ": expected " + node + String.join(", ", fields));
    }
    for (String field : Documents.names(said)) {
      if (!fields.contains(field)) {
        throw wrong(
            part + ": " + key + ": " + field + ": expected " + String.join(", ", fields));
      }
    }
    Double selectivity = positive(part, key, said, "selectivity");
    String node = said.hasNonNull("node") ? said.get("node").asText() : null;
    if (node != null && said.has("partitions")) {
      throw wrong(part + ": " + key + ": node and partitions: give one");
    }
    return new Entry(
        key,
        node,
        positive(part, key, said, "rate"),
        selectivity == null ? 1 : selectivity,
        partitions(part, key, said.path("partitions")));
  }

  private Map<String, List<Integer>> partitions(String part, String key, JsonNode said) {
    if (said.isMissingNode()) {
      return null;
    }
    String where = part + ": " + key + ": partitions: ";
    if (!said.isObject() || said.isEmpty()) {
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
    Entry called = null;
    for (Entry entry : parts.get(part).values()) {
      if (!entry.key.equals(OTHERS) && Names.called(name, entry.key)) {
        if (called != null) {
          throw wrong(
              part + ": " + called.key + " and " + entry.key + ": both are called by the operator "
                  + name);
        }
        called = entry;
        found.add(entry);
      }
    }
    return called != null ? called : parts.get(part).get(OTHERS);
  }

  /** What is said of the operator with that id; null when nothing is. */
  Entry at(String part, String id) {
    Entry entry = parts.get(part).get(id);
    found.add(entry);
    return entry;
  }

  /** Refuse what is said of operators that a job does not have. */
  void refuseStrangers(Shape shape) {
    parts.forEach(
        (part, entries) -> {
          for (Entry entry : entries.values()) {
            if (!found.contains(entry) && !entry.key.equals(OTHERS)) {
              throw stranger(part, entry.key, shape);
            }
          }
        });
  }

  private Refusal stranger(String part, String key, Shape shape) {
    Set<String> known = new LinkedHashSet<>();
    for (Step step : shape.steps) {
      if (step.section().equals(part)) {
        known.add(step.id);
      }
      if (step.kind != Step.Kind.SINK && part.equals(OPERATORS)) {
        step.members.stream().skip(1).forEach(one -> known.add(Names.slug(one.getOperatorName())));
      }
    }
    LevenshteinDistance slips = new LevenshteinDistance(SLIPS);
    String near =
        known.stream()
            .filter(one -> slips.apply(Names.slug(key), one) >= 0)
            .min(Comparator.comparing(one -> slips.apply(Names.slug(key), one)))
            .map(one -> "; did you mean " + one + "?")
            .orElse("");
    return wrong(
        part + ": " + key + ": is not in the job, whose " + part + " are " + Placing.told(known)
            + near);
  }
}
