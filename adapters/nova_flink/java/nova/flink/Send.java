package nova.flink;

import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.TaskOutputs;
import org.apache.flink.util.OutputTag;

/**
 * Sends a source's tuples to the pieces of its joins, each only what is of its partitions, and off
 * with every watermark, as {@link Forward} does.
 *
 * <p>One operator does it for all pieces: with a filter for each, every tuple would pass as many
 * operators as there are pieces, most of them in vain.
 */
public final class Send extends AbstractStreamOperator<SensorTuple>
    implements OneInputStreamOperator<SensorTuple, SensorTuple> {
  private static final long serialVersionUID = 1L;

  private final OutputTag<SensorTuple>[] tags;
  private final PartitionFilter[] filters;

  /**
   * @param tags of the pieces
   * @param filters what each of them gets
   */
  public Send(OutputTag<SensorTuple>[] tags, PartitionFilter[] filters) {
    this.tags = tags;
    this.filters = filters;
  }

  @Override
  public void processElement(StreamRecord<SensorTuple> record) {
    double place = PartitionFilter.place(record.getValue().sequence);
    for (int piece = 0; piece < filters.length; piece++) {
      if (filters[piece].holds(place)) {
        output.collect(tags[piece], record);
      }
    }
    // What is not cut goes to others as it is.
    output.collect(record);
  }

  @Override
  public void processWatermark(Watermark mark) throws Exception {
    super.processWatermark(mark);
    TaskOutputs.flush(getContainingTask());
  }
}
