package nova.flink.plugin;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import nova.engines.Intervals;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/** Finds the operators of a plan in a job: of queries by their names, of pairs by their sources. */
final class PlanReader {
  private static final int VERSION = 2;

  private final String where;
  private final boolean queries;
  private final Map<String, String> sources = new LinkedHashMap<>();
  private final Map<String, String> sinks = new LinkedHashMap<>();
  private final Map<String, List<JsonNode>> operators = new LinkedHashMap<>();
  private final Map<String, double[]> bounds = new HashMap<>();

  /**
   * @param plan as `nova plan` writes it
   * @param where what it was read from
   */
  PlanReader(ObjectNode plan, String where) {
    this.where = where;
    if (plan.path("nova_plan").asInt() != VERSION
        || !plan.path("instances").isArray()
        || !plan.path("edges").isArray()) {
      throw new Refusal(
          where + ": not a plan of format version " + VERSION + " with instances and edges;"
              + " write it with `nova plan -o FILE.json`");
    }
    queries = plan.has("rewriting");
    JsonNode rows = plan.get("instances");
    for (JsonNode row : rows) {
      operators.computeIfAbsent(row.path("operator").asText(), key -> new ArrayList<>()).add(row);
    }
    for (JsonNode edge : plan.get("edges")) {
      if (edge.path("producer").isMissingNode() || edge.path("producer").isNull()) {
        sources.put(edge.path("carries").asText(), edge.path("from").asText());
      }
      if (edge.path("consumer").isMissingNode() || edge.path("consumer").isNull()) {
        // Several queries may share an operator, which has the name of the first.
        String operator = rows.path(edge.path("producer").asInt(-1)).path("operator").asText();
        String sink = edge.path("sink").asText(text(operator.split("/", 2)[0]));
        sinks.put(sink, edge.path("to").asText());
      }
    }
    for (JsonNode row : plan.path("partitions")) {
      bounds.put(
          row.path("operator").asText() + " " + row.path("side").asText(), sums(row));
    }
  }

  private static double[] sums(JsonNode row) {
    JsonNode shares = row.has("shares") ? row.get("shares") : row.path("rates");
    double all = 0;
    for (JsonNode one : shares) {
      all += one.asDouble();
    }
    double[] sums = new double[shares.size() + 1];
    for (int i = 0; i < shares.size(); i++) {
      sums[i + 1] = sums[i] + shares.get(i).asDouble() / all;
    }
    // Whatever is rounded: every tuple is in a partition.
    sums[shares.size()] = 1;
    return sums;
  }

  private static String text(String written) {
    return written.replace("%2F", "/").replace("%2A", "*").replace("%25", "%");
  }

  /** Names of the sources. */
  Set<String> sources() {
    return sources.keySet();
  }

  Placement placement(Shape shape) {
    Placement placement = new Placement(where);
    for (Step step : shape.steps) {
      if (step.kind == Step.Kind.SOURCE) {
        placement.nodes.put(step, source(step));
      }
    }
    if (queries) {
      byName(shape, placement);
    } else {
      byPairs(shape, placement);
    }
    return placement;
  }

  private String source(Step step) {
    String planned = sources.getOrDefault(step.id, sources.get(step.key));
    String wanted = step.wanted();
    if (planned == null && !sources.isEmpty() && wanted != null && queries) {
      // It only passes through to a sink, which a plan does not list.
      return wanted;
    }
    if (planned == null) {
      throw new Refusal(
          where + ": the job's source '" + Names.plain(step.name()) + "' is not in the plan, which"
              + " has " + Placing.told(sources.keySet()) + "; is it a plan of another job? Names"
              + " can be mapped in " + Settings.MAPPING.key());
    }
    if (wanted != null && !wanted.equals(planned)) {
      throw new Refusal(
          where + ": source " + step.key + ": is on node " + planned + " in the plan and on "
              + wanted + " by the job's mapping; plan it again");
    }
    return planned;
  }

  private void byName(Shape shape, Placement placement) {
    // A join of a source that is read on several nodes is one operator for each of its parts.
    Map<String, Map<String, List<JsonNode>>> found = new LinkedHashMap<>();
    Map<String, String> queries = new HashMap<>();
    for (Map.Entry<String, List<JsonNode>> each : operators.entrySet()) {
      String[] words = each.getKey().split("/", 2);
      String name = text(words[words.length - 1].split("\\(", 2)[0]);
      if (!name.contains(ProblemWriter.MADE)
          && queries.computeIfAbsent(name, key -> words[0]).equals(words[0])) {
        found
            .computeIfAbsent(name, key -> new LinkedHashMap<>())
            .put(each.getKey(), each.getValue());
      }
    }
    Set<String> left = new LinkedHashSet<>(found.keySet());
    for (Step step : shape.steps) {
      if (step.kind == Step.Kind.SINK) {
        placement.nodes.put(step, sink(step, sinks.get(step.id)));
      } else if (step.kind != Step.Kind.SOURCE) {
        Map<String, List<JsonNode>> rows = found.get(step.id);
        if (rows == null) {
          throw another("the job's operator " + step.id + " (" + step.name() + ")", found.keySet());
        }
        left.remove(step.id);
        decide(shape, placement, step, rows, false);
      }
    }
    if (!left.isEmpty()) {
      throw new Refusal(
          where + ": its operator " + left.iterator().next() + " is not in the job;"
              + " is it a plan of another job?");
    }
  }

  private Refusal another(String what, Set<String> has) {
    return new Refusal(
        where + ": " + what + " is not in the plan, which has " + Placing.told(has)
            + "; is it a plan of another job?");
  }

  private String sink(Step step, String planned) {
    String wanted = step.wanted();
    if (planned == null && wanted == null) {
      throw Placing.unmapped("sink", step);
    }
    if (planned != null && wanted != null && !planned.equals(wanted)) {
      throw new Refusal(
          where + ": sink " + step.key + ": is on node " + planned + " in the plan and on " + wanted
              + " by the job's mapping; plan it again");
    }
    return planned != null ? planned : wanted;
  }

  private void byPairs(Shape shape, Placement placement) {
    Map<Step, Set<String>> behind = new HashMap<>();
    Set<String> left = new LinkedHashSet<>(operators.keySet());
    for (Step step : shape.steps) {
      Set<String> joined = new LinkedHashSet<>();
      for (Step input : step.inputs) {
        joined.addAll(behind.getOrDefault(input, Set.of()));
      }
      if (step.kind == Step.Kind.SOURCE) {
        continue;
      }
      if (step.kind == Step.Kind.SINK) {
        String planned = joined.size() == 1 ? sinks.get(joined.iterator().next()) : null;
        placement.nodes.put(step, sink(step, planned));
      } else if (!joined.isEmpty()) {
        placement.nodes.put(step, sinks.get(joined.iterator().next()));
      } else if (step.kind == Step.Kind.SINGLE) {
        placement.nodes.put(step, placement.nodes.get(step.inputs.iterator().next()));
      } else {
        joined.add(join(shape, placement, step, left));
      }
      behind.put(step, joined);
    }
    if (!left.isEmpty()) {
      throw new Refusal(
          where + ": its join " + left.iterator().next() + " is not in the job;"
              + " is it a plan of another job?");
    }
  }

  /** Place a join of sources; the plan's name of it. */
  private String join(Shape shape, Placement placement, Step step, Set<String> open) {
    List<Step> inputs = new ArrayList<>(step.inputs);
    Set<String> one = keys(inputs.get(0));
    Set<String> other = new LinkedHashSet<>();
    for (Step input : inputs.subList(1, inputs.size())) {
      other.addAll(keys(input));
    }
    List<String> pairs = new ArrayList<>();
    boolean swapped = false;
    for (String operator : operators.keySet()) {
      String[] sides = operator.substring(operator.indexOf('/') + 1).split("\\*", 2);
      String left = text(sides[0]);
      String right = text(sides[sides.length - 1]);
      boolean straight = one.contains(left) && other.contains(right);
      if (straight || (one.contains(right) && other.contains(left))) {
        swapped = !straight;
        pairs.add(operator);
      }
    }
    if (pairs.isEmpty()) {
      throw another(
          "the job's join of " + String.join(", ", one) + " with " + String.join(", ", other),
          operators.keySet());
    }
    open.removeAll(pairs);
    Map<String, List<JsonNode>> rows = new LinkedHashMap<>();
    for (String pair : pairs) {
      rows.put(pair, operators.get(pair));
    }
    Set<String> nodes = nodes(rows);
    if (pairs.size() > 1 && nodes.size() > 1) {
      throw new Refusal(
          where + ": the job's " + step.id + " does in one operator what the plan has on "
              + Placing.told(nodes) + " for " + String.join(" and ", pairs)
              + "; a join of several sources at a time needs one node");
    }
    decide(shape, placement, step, rows, swapped);
    return text(pairs.get(0).split("/", 2)[0]);
  }

  private static Set<String> keys(Step step) {
    Set<String> found = new LinkedHashSet<>();
    for (Step source : step.sources()) {
      found.add(source.key);
      found.add(source.id);
    }
    return found;
  }

  private static Set<String> nodes(Map<String, List<JsonNode>> rows) {
    Set<String> found = new LinkedHashSet<>();
    rows.values().forEach(all -> all.forEach(row -> found.add(row.path("node").asText())));
    return found;
  }

  /**
   * Decide where a step runs.
   *
   * @param rows instances by what the plan calls the operator; several of a source's parts
   */
  private void decide(
      Shape shape,
      Placement placement,
      Step step,
      Map<String, List<JsonNode>> rows,
      boolean swapped) {
    Map<String, Integer> pieces = new LinkedHashMap<>();
    rows.forEach(
        (operator, all) -> {
          for (JsonNode row : all) {
            refuseRoutes(operator, row);
            pieces.merge(row.path("node").asText(), row.path("replicas").asInt(1), Integer::sum);
          }
        });
    String most = pieces.keySet().iterator().next();
    placement.nodes.put(step, most);
    if (pieces.size() == 1) {
      return;
    }
    String why = Cutting.obstacle(shape, step);
    List<Placement.Instance> instances = new ArrayList<>();
    for (Map.Entry<String, List<JsonNode>> each : rows.entrySet()) {
      String operator = each.getKey();
      Step[] parts = {null, null};
      if (why == null && rows.size() > 1) {
        parts = parts(shape, operator);
        why = parts == null ? "its inputs are of several parts of a source, and no sources" : null;
      }
      for (JsonNode row : why == null ? each.getValue() : List.<JsonNode>of()) {
        Intervals left = part(operator, row, "left");
        Intervals right = part(operator, row, "right");
        String node = row.path("node").asText();
        instances.add(
            swapped
                ? new Placement.Instance(node, right, left, parts[1], parts[0])
                : new Placement.Instance(node, left, right, parts[0], parts[1]));
      }
    }
    if (why == null) {
      placement.cuts.put(step, instances);
      return;
    }
    // Where most of it is meant to be.
    for (Map.Entry<String, Integer> each : pieces.entrySet()) {
      most = each.getValue() > pieces.get(most) ? each.getKey() : most;
    }
    placement.nodes.put(step, most);
    Placing.say(step.id + " is not cut but runs whole on " + most + ": " + why);
  }

  private void refuseRoutes(String operator, JsonNode row) {
    for (String route : List.of("left_route", "right_route", "result_route")) {
      if (row.path(route).size() > 2) {
        throw new Refusal(
            where + ": " + operator + ": its tuples are relayed over other nodes; a plan for a job"
                + " of one's own must not have multi-hop routes");
      }
    }
  }

  /** The sources that an operator called NAME(LEFT*RIGHT) joins; null where it joins others. */
  private static Step[] parts(Shape shape, String operator) {
    String[] sides = operator.substring(operator.indexOf('(') + 1).split("\\*", 2);
    Step[] found = new Step[2];
    for (Step step : shape.of(Step.Kind.SOURCE)) {
      for (int side = 0; side < sides.length; side++) {
        String label = side == 1 ? sides[1].replaceAll("\\)$", "") : sides[0];
        found[side] = text(label).equals(step.id) ? step : found[side];
      }
    }
    return found[0] == null || found[1] == null ? null : found;
  }

  private Intervals part(String operator, JsonNode row, String side) {
    double[] sums = bounds.get(operator + " " + side);
    if (sums == null) {
      return null;
    }
    int first = row.path(side).path(0).asInt(-1);
    int end = row.path(side).path(1).asInt(-1);
    if (first < 0 || end <= first || end >= sums.length) {
      throw new Refusal(where + ": " + operator + ": " + side + ": not a range of its partitions");
    }
    if (first == 0 && end == sums.length - 1) {
      return null;
    }
    return new Intervals(new double[] {sums[first]}, new double[] {sums[end]});
  }
}
