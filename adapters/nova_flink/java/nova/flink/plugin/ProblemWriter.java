package nova.flink.plugin;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Writes a job as a problem of Nova's: a query for each sink, a stream for each source.
 *
 * <p>What has several inputs is a join, anything else an aggregate: both take what they receive of
 * their node and emit their share of it. What several sinks need is in the query of each; the first
 * query decides.
 */
final class ProblemWriter {
  private static final List<String> OF_JOBS =
      List.of("name", "sources", "query", "queries", "matrix", "tables");

  /** Marks what is no operator of the job: all but the last join of more than two inputs. */
  static final String MADE = "~";

  private final Shape shape;
  private final Map<Step, Double> rates = new HashMap<>();
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
      rate *= step.part == null ? 1 : step.part.share;
      sources
          .addObject()
          .put("id", step.id)
          .put("node", node)
          .put("stream", step.stream)
          .put("rate", rate);
      rates.put(step, rate * selectivity(step));
    }
    for (Step step : shape.steps) {
      if (step.kind == Step.Kind.SINGLE || step.kind == Step.Kind.JOIN) {
        rates.put(step, emits(step));
      }
    }
    ArrayNode queries = problem.putArray("queries");
    for (Step sink : shape.of(Step.Kind.SINK)) {
      ObjectNode query = queries.addObject();
      query.put("id", sink.id).put("sink", node("sink", sink, known, where));
      operators(query.putArray("operators"), sink);
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

  private static double selectivity(Step step) {
    return step.said == null || step.said.selectivity == null ? 1 : step.said.selectivity;
  }

  private double emits(Step step) {
    double least = Double.POSITIVE_INFINITY;
    double all = 0;
    for (double rate : inputs(step).values()) {
      least = Math.min(least, rate);
      all += rate;
    }
    return step.kind == Step.Kind.JOIN
        ? least * selectivity(step)
        : all * Math.min(1, selectivity(step));
  }

  /** Tuples/s of the streams that a step receives; parts of one source are one stream. */
  private Map<String, Double> inputs(Step step) {
    Map<String, Double> found = new LinkedHashMap<>();
    for (Step input : step.inputs) {
      found.merge(input.stream, rates.get(input), Double::sum);
    }
    return found;
  }

  private void operators(ArrayNode operators, Step sink) {
    Set<Step> before = new LinkedHashSet<>();
    sink.gather(before);
    for (Step step : before) {
      if (step.kind == Step.Kind.SINGLE) {
        operators
            .addObject()
            .put("id", step.id)
            .put("kind", "aggregate")
            .put("input", step.inputs.iterator().next().stream)
            .put("output_rate", rates.get(step));
      } else if (step.kind == Step.Kind.JOIN) {
        join(operators, step, selectivity(step));
      }
    }
    if (inputs(sink).size() > 1) {
      join(operators, sink, 1);
    } else if (operators.isEmpty()) {
      String input = sink.inputs.iterator().next().stream;
      operators.addObject().put("id", sink.id + MADE).put("kind", "project").put("input", input);
    }
  }

  private void join(ArrayNode operators, Step step, double selectivity) {
    Map<String, Double> rate = inputs(step);
    List<String> inputs = new ArrayList<>(rate.keySet());
    String left = inputs.get(0);
    double before = rate.get(left);
    for (int i = 1; i < inputs.size(); i++) {
      boolean last = i == inputs.size() - 1;
      double other = rate.get(inputs.get(i));
      // The joins before the last pass on all that they get.
      double share = last ? selectivity : (before + other) / Math.min(before, other);
      String id = last && step.kind == Step.Kind.JOIN ? step.id : step.id + MADE + i;
      ObjectNode join = operators.addObject().put("id", id).put("kind", "join");
      join.putArray("inputs").add(left).add(inputs.get(i));
      join.put("match", "all").put("selectivity", share);
      before = last ? before : before + other;
      left = id;
    }
  }
}
