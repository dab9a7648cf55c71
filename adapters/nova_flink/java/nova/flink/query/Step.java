package nova.flink.query;

import nova.engines.query.Cut;
import nova.engines.query.Program;
import nova.engines.query.Row;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.TaskOutputs;

/** What is done to every tuple alone: a filter, a projection, or the cut of a consumer's share. */
public final class Step extends AbstractStreamOperator<FlinkRow>
    implements OneInputStreamOperator<FlinkRow, FlinkRow> {
  private static final long serialVersionUID = 1L;

  private final Program condition;
  private final Program[] made;
  private final Cut cut;

  /** One of them; the others are null. */
  public Step(Program condition, Program[] made, Cut cut) {
    this.condition = condition;
    this.made = made;
    this.cut = cut;
  }

  @Override
  public void processElement(StreamRecord<FlinkRow> record) {
    Row row = record.getValue().row;
    Row out = row;
    if (condition != null) {
      out = condition.holds(row.fields) ? row : null;
    } else if (made != null) {
      Object[] fields = new Object[made.length];
      for (int i = 0; i < fields.length; i++) {
        fields[i] = made[i].of(row.fields);
      }
      out = row.with(fields);
    } else {
      out = cut.of(row);
    }
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
