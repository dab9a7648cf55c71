package nova.flink.query;

import nova.engines.query.Row;
import nova.engines.query.Step;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.TaskOutputs;

/** What is done to every tuple alone. */
public final class StepOperator extends AbstractStreamOperator<FlinkRow>
    implements OneInputStreamOperator<FlinkRow, FlinkRow> {
  private static final long serialVersionUID = 1L;

  private final Step step;

  public StepOperator(Step step) {
    this.step = step;
  }

  @Override
  public void processElement(StreamRecord<FlinkRow> record) {
    Row out = step.of(record.getValue().row);
    if (out != null) {
      output.collect(new StreamRecord<>(new FlinkRow(out), record.getTimestamp()));
    }
  }

  @Override
  public void processWatermark(Watermark mark) throws Exception {
    super.processWatermark(mark);
    TaskOutputs.flush(getContainingTask());
  }
}
