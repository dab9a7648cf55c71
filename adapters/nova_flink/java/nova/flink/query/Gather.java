package nova.flink.query;

import nova.engines.query.AggregateWindows;
import nova.engines.query.JoinWindows;
import nova.engines.query.Program;
import nova.engines.query.Windows;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.TaskOutputs;

/** An instance of a join or an aggregate. What it has gathered is in memory only. */
public final class Gather extends AbstractStreamOperator<FlinkRow>
    implements OneInputStreamOperator<FlinkRow, FlinkRow> {
  private static final long serialVersionUID = 1L;

  private final long[] window;
  private final boolean[] kept;
  private final int[][] columns;
  private final Program[] programs;
  private final String[] functions;
  private final boolean partial;
  private transient Windows<?> windows;

  /**
   * @param window length and distance, ms
   * @param kept whether the left and right input keep their windows
   * @param columns of a join the keys of its left and right input; of an aggregate its groups
   * @param programs of a join its condition or none; of an aggregate what it adds up
   * @param functions of an aggregate; null for a join
   * @param partial whether partial results are emitted
   */
  public Gather(
      long[] window,
      boolean[] kept,
      int[][] columns,
      Program[] programs,
      String[] functions,
      boolean partial) {
    this.window = window;
    this.kept = kept;
    this.columns = columns;
    this.programs = programs;
    this.functions = functions;
    this.partial = partial;
  }

  @Override
  public void open() throws Exception {
    super.open();
    if (functions == null) {
      Program condition = programs.length == 0 ? null : programs[0];
      windows =
          new JoinWindows(window[0], window[1], kept, columns[0], columns[1], condition);
    } else {
      windows =
          new AggregateWindows(
              window[0], window[1], kept, columns[0], functions, programs, partial);
    }
  }

  @Override
  public void processElement(StreamRecord<FlinkRow> record) {
    windows.add(record.getValue().row);
  }

  @Override
  public void processWatermark(Watermark mark) throws Exception {
    windows.reached(
        mark.getTimestamp(),
        row -> output.collect(new StreamRecord<>(new FlinkRow(row), row.timeMs)));
    super.processWatermark(mark);
    TaskOutputs.flush(getContainingTask());
  }
}
