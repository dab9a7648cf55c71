package nova.flink.plugin;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.graph.StreamEdge;

/**
 * Writes a job as a problem of Nova's: a query for each sink, a stream for each source.
 *
 * <p>What has several inputs is a join, anything else an aggregate, or a projection where it emits
 * more than it receives: they take what they receive of their node and emit their share of it. What
 * several sinks need is in the query of each, the same in all; Nova places it once.
 */
final class ProblemWriter {
  private static final List<String> OF_JOBS =
      List.of("name", "sources", "streams", "query", "queries", "matrix", "tables");

  /** Marks what is no operator of the job: all but the last join of more than two inputs. */
  static final String MADE = "~";

  private final Shape shape;

  /**
   * Tuples/s by what a problem calls a stream: of each of its sources, or of each pair that a join
   * is to Nova.
   */
  private final Map<String, List<Double>> rates = new HashMap<>();

  private final boolean complete;

  private ProblemWriter(Shape shape, boolean complete) {
    this.shape = shape;
    this.complete = complete;
  }

  /**
   * The problem that a job is.
   *
   * @param nodes a problem whose nodes and latencies are taken
   * @param where what they were read from
   * @param complete whether all rates have to be known; otherwise those that are not are 1
   */
  static ObjectNode write(
      Shape shape, String job, ObjectNode nodes, String where, boolean complete) {
    return new ProblemWriter(shape, complete).problem(job, nodes, where);
  }

  private ObjectNode problem(String job, ObjectNode nodes, String where) {
    Set<String> known = new LinkedHashSet<>();
    for (JsonNode node : nodes.path("nodes")) {
      known.add(node.path("id").asText());
    }
    if (known.isEmpty()) {
      throw new Refusal(Settings.NODES.key() + ": " + where + ": has no nodes");
    }
    ObjectNode problem = Documents.JSON.createObjectNode();
    problem.put("nova", 1).put("name", Names.slug(job));
    for (String field : Documents.names(nodes)) {
      if (!OF_JOBS.contains(field)) {
        problem.set(field, nodes.get(field));
      }
    }
    ArrayNode sources = problem.putArray("sources");
    for (Step step : shape.of(Step.Kind.SOURCE)) {
      String node = node("source", step, known, where);
      if (complete && (step.said == null || step.said.rate == null)) {
        throw new Refusal(
            "source " + step.key + ": its rate is not known: give it in " + Settings.MAPPING.key()
                + " (sources: {" + step.key + ": {node: " + node + ", rate: TUPLES_PER_S}}), or"
                + " run the job with nova.plan: none and let `nova observe` find it");
      }
      double rate = step.said == null || step.said.rate == null ? 1 : step.said.rate;
      // What leaves the node: operators chained to the source are part of it.
      rate *= step.selectivity * (step.part == null ? 1 : step.part.share);
      sources
          .addObject()
          .put("id", step.id)
          .put("node", node)
          .put("stream", step.stream)
          .put("rate", rate);
      rates.computeIfAbsent(step.stream, stream -> new ArrayList<>()).add(rate);
    }
    Map<Step, List<ObjectNode>> operators = new HashMap<>();
    for (Step step : shape.steps) {
      if (step.kind != Step.Kind.SOURCE) {
        operators.put(step, operators(step));
      }
    }
    ArrayNode queries = problem.putArray("queries");
    for (Step sink : shape.of(Step.Kind.SINK)) {
      ObjectNode query = queries.addObject();
      query.put("id", sink.id).put("sink", node("sink", sink, known, where));
      Set<Step> before = new LinkedHashSet<>();
      sink.gather(before);
      ArrayNode all = query.putArray("operators");
      before.forEach(step -> all.addAll(operators.getOrDefault(step, List.of())));
      if (all.isEmpty()) {
        String input = sink.inputs.iterator().next().stream;
        all.addObject().put("id", sink.id + MADE).put("kind", "project").put("input", input);
      }
    }
    return problem;
  }

  private static String node(String kind, Step step, Set<String> known, String where) {
    String node = step.wanted();
    if (node == null) {
      throw Placing.unmapped(kind, step);
    }
    if (!known.contains(node)) {
      throw new Refusal(
          kind + " " + step.key + ": node " + node + " is not in " + where + ", which has "
              + Placing.told(known));
    }
    return node;
  }

  /** What a step is in a problem: several joins, where it has more than two inputs. */
  private List<ObjectNode> operators(Step step) {
    List<String> inputs = step.inputs.stream().map(one -> one.stream).distinct().collect(Collectors.toList());
    double emitted = emits(step);
    List<ObjectNode> made = new ArrayList<>();
    if (inputs.size() == 1 && step.kind != Step.Kind.SINK) {
      made.add(single(step, inputs.get(0), emitted));
    }
    String left = inputs.get(0);
    for (int i = 1; i < inputs.size(); i++) {
      String right = inputs.get(i);
      boolean last = i == inputs.size() - 1;
      List<Double> pairs = new ArrayList<>();
      for (double one : rates.get(left)) {
        rates.get(right).forEach(other -> pairs.add(Math.min(one, other)));
      }
      // The joins before the last pass on all that they get.
      double passed = last ? emitted : rate(List.of(left, right));
      double selectivity = passed / sum(pairs);
      String id = last && step.kind != Step.Kind.SINK ? step.id : step.id + MADE + i;
      ObjectNode join = Documents.JSON.createObjectNode().put("id", id).put("kind", "join");
      join.putArray("inputs").add(left).add(right);
      made.add(join.put("match", "all").put("selectivity", selectivity));
      pairs.replaceAll(pair -> pair * selectivity);
      rates.put(id, pairs);
      left = id;
    }
    return made;
  }

  private ObjectNode single(Step step, String input, double emitted) {
    ObjectNode made = Documents.JSON.createObjectNode().put("id", step.id);
    if (emitted <= rate(List.of(input))) {
      rates.put(step.id, List.of(emitted));
      return made.put("kind", "aggregate").put("input", input).put("output_rate", emitted);
    }
    List<Double> passed = new ArrayList<>(rates.get(input));
    passed.replaceAll(one -> one * step.selectivity);
    rates.put(step.id, passed);
    return made.put("kind", "project").put("input", input).put("selectivity", step.selectivity);
  }

  /** Tuples/s that a step emits. */
  private double emits(Step step) {
    Map<Object, Set<String>> sides = new LinkedHashMap<>();
    for (StreamEdge edge : step.head.getInEdges()) {
      String stream = shape.of(shape.graph.getSourceVertex(edge)).stream;
      // The inputs of a window over both have no numbers.
      Object side = edge.getTypeNumber() == 0 ? stream : edge.getTypeNumber();
      sides.computeIfAbsent(side, key -> new LinkedHashSet<>()).add(stream);
    }
    double received =
        step.kind == Step.Kind.JOIN
            ? sides.values().stream().mapToDouble(this::rate).min().getAsDouble()
            : step.kind == Step.Kind.CONNECT
                ? rate(sides.get(1))
                : rate(step.inputs.stream().map(one -> one.stream).collect(Collectors.toSet()));
    return received * step.selectivity;
  }

  /** Tuples/s of streams, all together. */
  private double rate(Collection<String> streams) {
    return streams.stream().mapToDouble(one -> sum(rates.get(one))).sum();
  }

  private static double sum(List<Double> rates) {
    return rates.stream().mapToDouble(Double::doubleValue).sum();
  }
}
