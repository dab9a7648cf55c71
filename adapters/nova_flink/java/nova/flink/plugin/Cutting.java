package nova.flink.plugin;

import java.util.ArrayList;
import java.util.List;
import nova.engines.Intervals;
import org.apache.flink.api.common.functions.Function;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.dag.Transformation;
import org.apache.flink.streaming.api.graph.StreamEdge;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamGraphs;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.apache.flink.streaming.api.operators.SimpleOperatorFactory;
import org.apache.flink.streaming.api.operators.StreamOperator;
import org.apache.flink.streaming.api.windowing.assigners.MergingWindowAssigner;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.triggers.EventTimeTrigger;
import org.apache.flink.util.OutputTag;

/**
 * Replaces a join by instances: each gets some partitions of both inputs, so that every pair of
 * tuples meets in exactly one, and what follows gets what all of them emit.
 *
 * <p>That is the same join only if a result depends on one tuple of either side and on nothing
 * else: an inner join over windows or intervals of event time.
 */
final class Cutting {
  private Cutting() {}

  /** Why a step cannot be cut; null where it can. */
  static String obstacle(Shape shape, Step step) {
    if (step.kind != Step.Kind.JOIN) {
      return "it is no join of two inputs";
    }
    StreamNode head = step.head;
    if (head.getCoLocationGroup() != null) {
      return "it is bound to other operators by a co-location group";
    }
    Object operator = Operators.of(head);
    if (operator == null) {
      return "it is no operator";
    }
    if (sides(shape, head).stream().anyMatch(List::isEmpty)) {
      return "it has not two inputs";
    }
    String name = operator.getClass().getName();
    if (name.startsWith(Operators.TABLE_JOINS + "window.")
        || name.startsWith(Operators.TABLE_JOINS + "interval.")) {
      return inner(operator);
    }
    if (name.contains("KeyedCoProcessOperator")) {
      for (Function function : Operators.functions(operator)) {
        String kind = function.getClass().getName();
        if (kind.equals(Operators.TABLE_JOINS + "interval.RowTimeIntervalJoin")) {
          return inner(function);
        }
        if (kind.equals(Operators.TABLE_JOINS + "interval.ProcTimeIntervalJoin")) {
          return "it joins by processing time";
        }
      }
    }
    if (Operators.isIntervalJoin(operator)) {
      return null;
    }
    return Operators.isWindow(operator)
        ? windowed(operator)
        : "it is no window join and no interval join";
  }

  private static String inner(Object join) {
    Object kind = Operators.field(join, "joinType");
    if (!(kind instanceof Enum)) {
      return "Flink does not tell which kind of join it is";
    }
    return ((Enum<?>) kind).name().equals("INNER") ? null : "it is no inner join (" + kind + ")";
  }

  /** Of a join of data streams, which Flink makes a window over both inputs. */
  private static String windowed(Object operator) {
    if (!Operators.hasFunction(operator, ".*\\$(Flat)?JoinCoGroupFunction")) {
      return "it is a co-group or an aggregate, whose results depend on whole windows";
    }
    Object assigner = Operators.field(operator, "windowAssigner");
    Object trigger = Operators.field(operator, "trigger");
    if (!(assigner instanceof WindowAssigner) || !((WindowAssigner<?, ?>) assigner).isEventTime()) {
      return "its windows are not of event time";
    }
    if (assigner instanceof MergingWindowAssigner) {
      return "its windows are sessions, which depend on all tuples";
    }
    if (!(trigger instanceof EventTimeTrigger)) {
      return "its windows have a trigger of their own";
    }
    if (operator.getClass().getSimpleName().contains("Evicting")) {
      return "its windows have an evictor";
    }
    return Long.valueOf(0).equals(Operators.field(operator, "allowedLateness"))
        ? null
        : "its windows allow late tuples, and emit again what they emitted";
  }

  /** The edges of the left and of the right input. */
  private static List<List<StreamEdge>> sides(Shape shape, StreamNode join) {
    List<StreamEdge> left = new ArrayList<>();
    List<StreamEdge> right = new ArrayList<>();
    for (StreamEdge edge : join.getInEdges()) {
      // Inputs of a window over both come one after the other; others are numbered 1 and 2.
      boolean isLeft =
          edge.getTypeNumber() == 0
              ? from(shape, edge).equals(from(shape, join.getInEdges().get(0)))
              : edge.getTypeNumber() == 1;
      (isLeft ? left : right).add(edge);
    }
    return List.of(left, right);
  }

  /** What an edge comes from: its sender, or the source that this is a part of. */
  private static Object from(Shape shape, StreamEdge edge) {
    StreamNode sender = shape.graph.getSourceVertex(edge);
    Step step = shape.of(sender);
    return step != null && step.part != null ? step.part.origin : sender.getId();
  }

  /**
   * Cut a join whose {@link #obstacle} is null.
   *
   * @return the head of each instance, the first of which is the step's own
   */
  static List<StreamNode> cut(Shape shape, Step step, List<Placement.Instance> instances) {
    StreamGraph graph = shape.graph;
    StreamNode join = step.head;
    List<List<StreamEdge>> sides = sides(shape, join);
    List<StreamEdge> out = new ArrayList<>(join.getOutEdges());
    List<StreamNode> made = new ArrayList<>();
    made.add(join);
    for (int i = 1; i < instances.size(); i++) {
      int id = Transformation.getNewNodeId();
      StreamNode copy = StreamGraphs.copy(graph, join, id, join.getOperatorName() + " #" + i);
      graph.setTransformationUID(id, join.getTransformationUID() + "-" + i);
      made.add(copy);
    }
    for (int side = 0; side < 2; side++) {
      for (StreamEdge edge : sides.get(side)) {
        Step sender = shape.of(graph.getSourceVertex(edge));
        List<Intervals> parts = new ArrayList<>();
        List<StreamNode> receivers = new ArrayList<>();
        for (int i = 0; i < made.size(); i++) {
          Placement.Instance one = instances.get(i);
          Step only = side == 0 ? one.leftPart : one.rightPart;
          if (only == null || only == sender) {
            parts.add(side == 0 ? one.left : one.right);
            receivers.add(made.get(i));
          }
        }
        divide(graph, step, edge, receivers, parts, side == 0 ? "left" : "right");
      }
    }
    for (int i = 1; i < made.size(); i++) {
      for (StreamEdge edge : out) {
        connect(graph, made.get(i).getId(), edge, edge.getTargetId(), edge.getOutputTag());
      }
    }
    return made;
  }

  private static void divide(
      StreamGraph graph,
      Step step,
      StreamEdge edge,
      List<StreamNode> instances,
      List<Intervals> parts,
      String side) {
    boolean whole = parts.stream().allMatch(part -> part == null);
    int from = edge.getSourceId();
    List<OutputTag<?>> tags = new ArrayList<>();
    StreamGraphs.remove(graph, edge);
    if (!whole) {
      StreamNode sender = graph.getStreamNode(from);
      from = splitter(graph, step, sender, edge, parts, side, tags);
    }
    for (int i = 0; i < instances.size(); i++) {
      OutputTag<?> tag = whole ? edge.getOutputTag() : tags.get(i);
      connect(graph, from, edge, instances.get(i).getId(), tag);
    }
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static int splitter(
      StreamGraph graph,
      Step step,
      StreamNode sender,
      StreamEdge edge,
      List<Intervals> parts,
      String side,
      List<OutputTag<?>> tags) {
    TypeSerializer<?> serializer =
        edge.getOutputTag() == null
            ? sender.getTypeSerializerOut()
            : edge.getOutputTag().getTypeInfo().createSerializer(
                graph.getExecutionConfig().getSerializerConfig());
    Intervals[] all = new Intervals[parts.size()];
    for (int i = 0; i < all.length; i++) {
      all[i] =
          parts.get(i) == null
              ? new Intervals(new double[] {0}, new double[] {1})
              : parts.get(i);
      tags.add(new OutputTag("nova-" + step.id + "-" + i, new SerializedType(serializer)));
    }
    int id = Transformation.getNewNodeId();
    SimpleOperatorFactory<?> factory =
        SimpleOperatorFactory.of(
            (StreamOperator) new Splitter(tags.toArray(new OutputTag[0]), all));
    StreamNode made =
        StreamGraphs.behind(graph, sender, id, "cut " + step.id + " " + side, factory);
    made.setSerializersIn(serializer);
    made.setSerializerOut(serializer);
    graph.setTransformationUID(
        id, "nova-cut-" + step.id + "-" + side + "-" + sender.getTransformationUID());
    int from = sender.getId();
    if (edge.getOutputTag() != null) {
      int virtual = Transformation.getNewNodeId();
      graph.addVirtualSideOutputNode(from, virtual, edge.getOutputTag());
      from = virtual;
    }
    // Same parallelism and group: Flink chains it to what it works on.
    graph.addEdge(from, id, 0);
    return id;
  }

  /** An edge like another one, between other nodes. */
  static void connect(
      StreamGraph graph, int from, StreamEdge like, int to, OutputTag<?> tag) {
    int virtual = from;
    if (tag != null) {
      virtual = Transformation.getNewNodeId();
      graph.addVirtualSideOutputNode(from, virtual, tag);
    }
    int partitioned = Transformation.getNewNodeId();
    graph.addVirtualPartitionNode(
        virtual, partitioned, like.getPartitioner().copy(), like.getExchangeMode());
    graph.addEdge(partitioned, to, like.getTypeNumber());
  }
}
