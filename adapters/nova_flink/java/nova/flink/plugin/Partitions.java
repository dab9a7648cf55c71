package nova.flink.plugin;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.dag.Transformation;
import org.apache.flink.streaming.api.graph.StreamEdge;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamGraphs;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.apache.flink.streaming.api.operators.SourceOperatorFactory;
import org.apache.flink.util.InstantiationUtil;

/**
 * Has a topic of Kafka read on several nodes, its partitions on those that the mapping says: the
 * source, and what Flink can chain to it, is copied for each node, and what came behind it gets
 * what all copies emit.
 */
final class Partitions {
  /** What one copy of a source reads. */
  static final class Part {
    /** Number of the operator that it is a copy of. */
    final int origin;

    final String node;

    /** Of all partitions, those that it reads; 0 to 1. */
    final double share;

    /** What the mapping says of the source. */
    final Mapping.Entry said;

    Part(int origin, String node, double share, Mapping.Entry said) {
      this.origin = origin;
      this.node = node;
      this.share = share;
      this.said = said;
    }
  }

  private static final String KAFKA = "org.apache.flink.connector.kafka.source.KafkaSource";

  private Partitions() {}

  /** Copy the sources whose partitions are mapped; what each reads, by number of its operator. */
  static Map<Integer, Part> divide(StreamGraph graph, Mapping mapping) {
    Map<Integer, Part> parts = new HashMap<>();
    for (Step step : Shape.of(graph, mapping, Set.of(), Map.of()).of(Step.Kind.SOURCE)) {
      if (step.said != null && step.said.partitions != null) {
        divide(graph, step, parts);
      }
    }
    return parts;
  }

  private static void divide(StreamGraph graph, Step step, Map<Integer, Part> parts) {
    Map<String, List<Integer>> at = step.said.partitions;
    int all = at.values().stream().mapToInt(List::size).sum();
    // All are made of the source as it was.
    Map<String, SourceOperatorFactory<?>> factories = new LinkedHashMap<>();
    at.forEach((node, numbers) -> factories.put(node, reading(step, numbers)));
    boolean first = true;
    for (Map.Entry<String, List<Integer>> each : at.entrySet()) {
      Map<Integer, StreamNode> copies = new HashMap<>();
      for (StreamNode one : step.members) {
        copies.put(one.getId(), first ? one : copy(graph, one, each.getKey()));
      }
      StreamNode head = copies.get(step.head.getId());
      if (!first) {
        connect(graph, step, copies);
      }
      head.setOperatorFactory(factories.get(each.getKey()));
      for (StreamNode one : copies.values()) {
        int parallelism = Math.min(one.getParallelism(), each.getValue().size());
        graph.setParallelism(one.getId(), parallelism, true);
      }
      double share = (double) each.getValue().size() / all;
      parts.put(head.getId(), new Part(step.head.getId(), each.getKey(), share, step.said));
      first = false;
    }
  }

  private static StreamNode copy(StreamGraph graph, StreamNode one, String node) {
    int id = Transformation.getNewNodeId();
    return StreamGraphs.copy(graph, one, id, one.getOperatorName() + " on " + node);
  }

  private static void connect(StreamGraph graph, Step step, Map<Integer, StreamNode> copies) {
    for (StreamNode one : step.members) {
      for (StreamEdge edge : List.copyOf(one.getOutEdges())) {
        StreamNode target = copies.get(edge.getTargetId());
        int to = target == null ? edge.getTargetId() : target.getId();
        int from = copies.get(one.getId()).getId();
        Cutting.connect(graph, from, edge, to, edge.getOutputTag());
      }
    }
  }

  /** What makes the source's operator, reading these partitions only. */
  private static SourceOperatorFactory<?> reading(Step step, List<Integer> numbers) {
    if (!(step.head.getOperatorFactory() instanceof SourceOperatorFactory)) {
      throw wrong(step, "only a table or source of Kafka has any");
    }
    try {
      ClassLoader loader = Thread.currentThread().getContextClassLoader();
      SourceOperatorFactory<?> made =
          InstantiationUtil.clone(
              (SourceOperatorFactory<?>) step.head.getOperatorFactory(), loader);
      Object source = field(made, "source").get(made);
      if (!source.getClass().getName().equals(KAFKA)) {
        throw wrong(step, "only a table or source of Kafka has any");
      }
      Field subscriber = field(source, "subscriber");
      subscriber.set(source, subscribed(step, subscriber, subscriber.get(source), numbers));
      return made;
    } catch (ReflectiveOperationException | IOException | RuntimeException error) {
      throw wrong(step, "this version of Kafka's connector cannot be told them (" + error + ")");
    }
  }

  private static Object subscribed(
      Step step, Field subscriber, Object old, List<Integer> numbers)
      throws ReflectiveOperationException {
    Object topics;
    try {
      topics = field(old, "topics").get(old);
    } catch (NoSuchFieldException error) {
      throw wrong(step, "its topics are a pattern; name one topic");
    }
    if (((List<?>) topics).size() != 1) {
      throw wrong(step, "it reads " + topics + "; name one topic");
    }
    Method make =
        subscriber.getType().getMethod("getPartitionSetSubscriber", Set.class);
    // Which of Kafka's classes it is depends on whether the connector has them renamed.
    ParameterizedType of = (ParameterizedType) make.getGenericParameterTypes()[0];
    Class<?> partition = (Class<?>) of.getActualTypeArguments()[0];
    Set<Object> partitions = new HashSet<>();
    for (int number : numbers) {
      partitions.add(
          partition
              .getConstructor(String.class, int.class)
              .newInstance(((List<?>) topics).get(0), number));
    }
    return make.invoke(null, partitions);
  }

  private static Field field(Object of, String name) throws NoSuchFieldException {
    Field found = of.getClass().getDeclaredField(name);
    found.setAccessible(true);
    return found;
  }

  private static Refusal wrong(Step step, String why) {
    return new Refusal("source " + step.said.key + ": partitions: " + why);
  }
}
