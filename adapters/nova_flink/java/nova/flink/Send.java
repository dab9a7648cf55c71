package nova.flink;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import nova.engines.Intervals;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.metrics.Counter;
import org.apache.flink.runtime.execution.Environment;
import org.apache.flink.runtime.io.network.api.writer.RecordWriter;
import org.apache.flink.runtime.io.network.api.writer.ResultPartitionWriter;
import org.apache.flink.runtime.plugable.SerializationDelegate;
import org.apache.flink.streaming.api.graph.NonChainedOutput;
import org.apache.flink.streaming.api.graph.StreamEdge;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamElement;
import org.apache.flink.streaming.runtime.streamrecord.StreamElementSerializer;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.TaskOutputs;
import org.apache.flink.util.OutputTag;

/**
 * Sends a source's tuples to the pieces of its joins, each only what is of its partitions, and off
 * with every watermark, as {@link Forward} does.
 *
 * <p>One operator does it for all pieces, and makes bytes of a tuple once. With a filter for each,
 * every tuple would pass as many operators as there are pieces, most of them in vain, and be made
 * bytes of for every piece that gets it.
 */
public final class Send extends AbstractStreamOperator<SensorTuple>
    implements OneInputStreamOperator<SensorTuple, SensorTuple> {
  private static final long serialVersionUID = 2L;
  private static final int RECORD_BYTES = 64;

  private final OutputTag<SensorTuple>[] tags;
  private final PartitionFilter[] filters;

  // Of each piece; null where an operator of the same task receives it.
  private transient ResultPartitionWriter[][] writers;
  private transient boolean whole;
  private transient Counter sent;
  private transient SerializationDelegate<StreamElement> element;
  private transient DataOutputSerializer bytes;

  /**
   * @param tags of the pieces
   * @param filters what each of them gets
   */
  public Send(OutputTag<SensorTuple>[] tags, PartitionFilter[] filters) {
    this.tags = tags;
    this.filters = filters;
  }

  @Override
  public void open() throws Exception {
    super.open();
    Environment environment = getContainingTask().getEnvironment();
    ClassLoader loader = getUserCodeClassloader();
    List<NonChainedOutput> outputs =
        getContainingTask().getConfiguration().getVertexNonChainedOutputs(loader);
    writers = new ResultPartitionWriter[tags.length][];
    Set<OutputTag<?>> inside = new HashSet<>();
    for (StreamEdge edge : getOperatorConfig().getChainedOutputs(loader)) {
      inside.add(edge.getOutputTag());
    }
    whole = inside.contains(null);
    for (NonChainedOutput output : outputs) {
      whole |= output.getOutputTag() == null;
    }
    for (int piece = 0; piece < tags.length; piece++) {
      if (inside.contains(tags[piece])) {
        continue;
      }
      List<ResultPartitionWriter> its = new ArrayList<>();
      for (int number = 0; number < outputs.size(); number++) {
        if (tags[piece].equals(outputs.get(number).getOutputTag())) {
          its.add(environment.getWriter(number));
        }
      }
      writers[piece] = its.toArray(new ResultPartitionWriter[0]);
    }
    sent = environment.getMetricGroup().getIOMetricGroup().getNumRecordsOutCounter();
    element =
        new SerializationDelegate<>(
            new StreamElementSerializer<>(
                SensorTuple.type().createSerializer(getExecutionConfig().getSerializerConfig())));
    bytes = new DataOutputSerializer(RECORD_BYTES);
  }

  @Override
  public void processElement(StreamRecord<SensorTuple> record) throws IOException {
    double place = Intervals.place(record.getValue().sequence);
    ByteBuffer made = null;
    for (int piece = 0; piece < filters.length; piece++) {
      if (!filters[piece].holds(place)) {
        continue;
      }
      if (writers[piece] == null) {
        output.collect(tags[piece], record);
        continue;
      }
      if (made == null) {
        element.setInstance(record);
        made = RecordWriter.serializeRecord(bytes, element);
      }
      for (ResultPartitionWriter writer : writers[piece]) {
        made.rewind();
        writer.emitRecord(made, 0);
        sent.inc();
      }
    }
    if (whole) {
      // What is not cut goes to others as it is.
      output.collect(record);
    }
  }

  @Override
  public void processWatermark(Watermark mark) throws Exception {
    super.processWatermark(mark);
    TaskOutputs.flush(getContainingTask());
  }
}
