package nova.flink.plugin;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.streaming.api.graph.StreamEdge;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.apache.flink.streaming.runtime.partitioner.ForwardPartitioner;

/**
 * A job as steps: a source, a join or any other operator that gets its input from another host's
 * point of view, each with what Flink can chain to it. A sink is a step of its own.
 */
final class Shape {
  // Where SQL writes files: the operator that ends such a job only discards what is told of them.
  private static final String FILES = "org.apache.flink.connector.file.table.stream.";

  final StreamGraph graph;

  /** Inputs first. */
  final List<Step> steps = new ArrayList<>();

  private final Map<Integer, Step> at = new HashMap<>();

  private final Map<Integer, Partitions.Part> parts;

  private Shape(StreamGraph graph, Map<Integer, Partitions.Part> parts) {
    this.graph = graph;
    this.parts = parts;
  }

  /**
   * @param mapping what a person says of the job
   * @param known sources that a plan names
   * @param parts of sources that are read on several nodes
   */
  static Shape of(
      StreamGraph graph,
      Mapping mapping,
      Collection<String> known,
      Map<Integer, Partitions.Part> parts) {
    Shape shape = new Shape(graph, parts);
    Set<Integer> ends = shape.ends();
    for (StreamNode node : graph.getStreamNodesSortedTopologicallyFromSources()) {
      shape.add(node, ends.contains(node.getId()));
    }
    shape.name(mapping, known);
    return shape;
  }

  /** Sinks' operators: the last ones, the writer before a committer, and writers of files. */
  private Set<Integer> ends() {
    Set<Integer> found = new HashSet<>();
    for (StreamNode node : graph.getStreamNodes()) {
      if (node.getOutEdges().isEmpty() && !node.getInEdges().isEmpty()) {
        StreamNode one = node;
        found.add(one.getId());
        while (one.getInEdges().size() == 1) {
          StreamNode before = graph.getSourceVertex(one.getInEdges().get(0));
          if (!Operators.kind(one).contains("Committer")
              && !Operators.kind(before).startsWith(FILES)) {
            break;
          }
          one = before;
          found.add(one.getId());
        }
      }
    }
    return found;
  }

  private void add(StreamNode node, boolean end) {
    List<StreamEdge> edges = node.getInEdges();
    Step step;
    if (edges.isEmpty()) {
      step = begin(Step.Kind.SOURCE, node);
    } else {
      Step before = at.get(edges.get(0).getSourceId());
      boolean ended = before.kind == Step.Kind.SINK;
      if (ended || (!end && follows(node))) {
        step = before;
      } else if (end) {
        step = begin(Step.Kind.SINK, node);
      } else {
        Set<Integer> inputs = new HashSet<>();
        for (StreamEdge edge : edges) {
          inputs.add(at.get(edge.getSourceId()).origin());
        }
        step = begin(inputs.size() > 1 ? several(node) : Step.Kind.SINGLE, node);
      }
      for (StreamEdge edge : edges) {
        Step input = at.get(edge.getSourceId());
        if (input != step) {
          step.inputs.add(input);
        }
      }
    }
    step.members.add(node);
    at.put(node.getId(), step);
  }

  /** What a node with several inputs does. */
  private static Step.Kind several(StreamNode node) {
    if (Operators.joins(node)) {
      return Step.Kind.JOIN;
    }
    // Inputs of a union come one after the other; others are numbered 1, 2, ...
    boolean union = node.getInEdges().stream().allMatch(edge -> edge.getTypeNumber() == 0);
    return union ? Step.Kind.UNION : Step.Kind.CONNECT;
  }

  /** Whether Flink can chain a node to what it receives from. */
  private boolean follows(StreamNode node) {
    if (node.getInEdges().size() != 1) {
      return false;
    }
    StreamEdge edge = node.getInEdges().get(0);
    return edge.getPartitioner() instanceof ForwardPartitioner
        && graph.getSourceVertex(edge).getParallelism() == node.getParallelism();
  }

  private Step begin(Step.Kind kind, StreamNode head) {
    Step step = new Step(kind, head);
    step.part = parts.get(head.getId());
    steps.add(step);
    return step;
  }

  /** The step that an operator is of. */
  Step of(StreamNode node) {
    return at.get(node.getId());
  }

  /** The first step that a step sends to; itself without any. */
  Step receiver(Step sender) {
    for (Step step : steps) {
      if (step.inputs.contains(sender)) {
        return step;
      }
    }
    return sender;
  }

  List<Step> of(Step.Kind kind) {
    List<Step> found = new ArrayList<>();
    for (Step step : steps) {
      if (step.kind == kind) {
        found.add(step);
      }
    }
    return found;
  }

  private void name(Mapping mapping, Collection<String> known) {
    Set<String> taken = new HashSet<>();
    Map<Integer, String> streams = new HashMap<>();
    // Copies come last: all else is called as it would be without them.
    for (boolean copies : new boolean[] {false, true}) {
      for (Step step : steps) {
        if (copies == (step.origin() != step.head.getId())) {
          name(step, mapping, known, taken);
          step.stream = streams.computeIfAbsent(step.origin(), origin -> step.id);
        }
      }
    }
    mapping.refuseStrangers(this);
  }

  private void name(Step step, Mapping mapping, Collection<String> known, Set<String> taken) {
    String section = step.section();
    step.said = step.part == null ? mapping.of(section, step.name()) : step.part.said;
    if (!own(step.said) && step.kind == Step.Kind.SINK && of(Step.Kind.SINK).size() == 1) {
      // SQL calls a job that writes one table after it, and not always the operator.
      String job = graph.getJobName();
      step.said = mapping.of(section, job.substring(job.lastIndexOf('.') + 1));
    }
    step.key = key(step, known);
    String slug = Names.slug(step.key);
    step.id = slug;
    for (int number = 2; !taken.add(step.id); number++) {
      step.id = slug + "-" + number;
    }
    Mapping.Entry exact = step.part == null ? mapping.at(section, step.id) : null;
    if (exact != null) {
      step.said = exact;
      step.key = step.id;
    }
    step.selectivity = step.said == null ? 1 : step.said.selectivity;
    if (step.kind != Step.Kind.SINK) {
      for (StreamNode one : step.members.subList(1, step.members.size())) {
        Mapping.Entry said = mapping.of(Mapping.OPERATORS, one.getOperatorName());
        step.selectivity *= own(said) ? said.selectivity : 1;
      }
    }
  }

  private static boolean own(Mapping.Entry said) {
    return said != null && !said.key.equals(Mapping.OTHERS);
  }

  private static String key(Step step, Collection<String> known) {
    if (own(step.said) && !step.section().equals(Mapping.OPERATORS)) {
      return step.said.key;
    }
    if (step.kind == Step.Kind.SOURCE) {
      List<String> meant = new ArrayList<>();
      for (String source : known) {
        if (Names.called(step.name(), source)) {
          meant.add(source);
        }
      }
      if (meant.size() > 1) {
        throw new Refusal(
            "the job's source '" + Names.plain(step.name()) + "' means "
                + String.join(" or ", meant) + "; map it in " + Settings.MAPPING.key());
      }
      if (!meant.isEmpty()) {
        return meant.get(0);
      }
    }
    return Names.slug(step.name());
  }
}
