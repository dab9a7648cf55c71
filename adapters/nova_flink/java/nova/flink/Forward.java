package nova.flink;

import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.TaskOutputs;

/**
 * Passes on what it receives and sends it off with every watermark: behind a source, or a hop of a
 * route.
 *
 * <p>What ends a window is sent at once, and nothing is sent for its own sake in between. Sending a
 * buffer wakes threads on both hosts, which at a sensor's rate costs many times what its tuples do.
 */
public final class Forward<T> extends AbstractStreamOperator<T>
    implements OneInputStreamOperator<T, T> {
  private static final long serialVersionUID = 1L;

  @Override
  public void processElement(StreamRecord<T> record) {
    output.collect(record);
  }

  @Override
  public void processWatermark(Watermark mark) throws Exception {
    super.processWatermark(mark);
    TaskOutputs.flush(getContainingTask());
  }
}
