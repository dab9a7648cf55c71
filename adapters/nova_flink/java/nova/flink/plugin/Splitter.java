package nova.flink.plugin;

import nova.engines.Intervals;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.OutputTag;

/**
 * Sends what one input of a join gets to the join's instances, to each what is of its partitions.
 *
 * <p>Tuples are numbered as they come, and lie in a partition by the rule sequence-share. That one
 * operator decides for all instances makes it exact whatever the numbers are: a restored job may
 * count anew.
 */
final class Splitter<T> extends AbstractStreamOperator<T> implements OneInputStreamOperator<T, T> {
  private static final long serialVersionUID = 1L;

  private final OutputTag<T>[] tags;
  private final Intervals[] parts;
  private transient long number;

  /**
   * @param tags of the instances
   * @param parts what each of them gets
   */
  Splitter(OutputTag<T>[] tags, Intervals[] parts) {
    this.tags = tags;
    this.parts = parts;
  }

  @Override
  public void open() throws Exception {
    super.open();
    // Subtasks that count alike would send what comes at a time to one place.
    number = (long) getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() << 32;
  }

  @Override
  public void processElement(StreamRecord<T> element) {
    double place = Intervals.place(number++);
    for (int i = 0; i < tags.length; i++) {
      if (parts[i].hold(place)) {
        output.collect(tags[i], element);
      }
    }
  }
}
