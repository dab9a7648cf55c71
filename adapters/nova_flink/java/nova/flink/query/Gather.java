package nova.flink.query;

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

  /** See {@link Windows#of}. */
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
    windows = Windows.of(window, kept, columns, programs, functions, partial);
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
