package org.apache.flink.streaming.api.graph;

import java.util.Arrays;
import java.util.Map;
import org.apache.flink.streaming.api.operators.SourceOperatorFactory;
import org.apache.flink.streaming.api.operators.StreamOperatorFactory;
import org.apache.flink.streaming.runtime.tasks.OneInputStreamTask;

/** Adds nodes to a graph that is built already; only classes of this package can. */
public final class StreamGraphs {
  private StreamGraphs() {}

  /** A node that does what another does; without its edges and its uid. */
  public static StreamNode copy(StreamGraph graph, StreamNode one, int id, String name) {
    StreamNode made;
    if (one.getOperatorFactory() instanceof SourceOperatorFactory) {
      graph.addSource(
          id,
          one.getSlotSharingGroup(),
          one.getCoLocationGroup(),
          (SourceOperatorFactory<?>) one.getOperatorFactory(),
          null,
          null,
          name);
      made = graph.getStreamNode(id);
    } else {
      made =
          graph.addNode(
              id,
              one.getSlotSharingGroup(),
              one.getCoLocationGroup(),
              one.getJobVertexClass(),
              one.getOperatorFactory(),
              name);
    }
    if (one.getTypeSerializersIn().length > 0) {
      made.setSerializersIn(one.getTypeSerializersIn());
    }
    made.setSerializerOut(one.getTypeSerializerOut());
    if (one.getStatePartitioners().length > 0) {
      made.setStatePartitioners(one.getStatePartitioners());
      made.setStateKeySerializer(one.getStateKeySerializer());
    }
    for (Map.Entry<Integer, StreamConfig.InputRequirement> each :
        one.getInputRequirements().entrySet()) {
      made.addInputRequirement(each.getKey(), each.getValue());
    }
    made.setManagedMemoryUseCaseWeights(
        one.getManagedMemoryOperatorScopeUseCaseWeights(), one.getManagedMemorySlotScopeUseCases());
    made.setAttribute(one.getAttribute());
    likewise(made, one);
    return made;
  }

  /** A node that works on what another emits, as many times in parallel. */
  public static StreamNode behind(
      StreamGraph graph, StreamNode one, int id, String name, StreamOperatorFactory<?> factory) {
    StreamNode made =
        graph.addNode(
            id,
            one.getSlotSharingGroup(),
            one.getCoLocationGroup(),
            OneInputStreamTask.class,
            factory,
            name);
    made.setSerializersIn(one.getTypeSerializerOut());
    made.setSerializerOut(one.getTypeSerializerOut());
    likewise(made, one);
    return made;
  }

  private static void likewise(StreamNode made, StreamNode one) {
    made.setParallelism(one.getParallelism(), true);
    made.setMaxParallelism(one.getMaxParallelism());
    made.setBufferTimeout(one.getBufferTimeout());
    made.setResources(one.getMinResources(), one.getPreferredResources());
  }

  /** Take an edge out of a graph. */
  public static void remove(StreamGraph graph, StreamEdge edge) {
    graph.getStreamNode(edge.getSourceId()).getOutEdges().removeAll(Arrays.asList(edge));
    graph.getStreamNode(edge.getTargetId()).getInEdges().removeAll(Arrays.asList(edge));
  }
}
