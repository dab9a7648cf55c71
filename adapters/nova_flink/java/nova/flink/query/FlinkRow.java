package nova.flink.query;

import java.io.IOException;
import nova.engines.query.Row;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.typeutils.ValueTypeInfo;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.types.CopyableValue;

/** A tuple of a query as Flink sends it. */
public final class FlinkRow implements CopyableValue<FlinkRow> {
  private static final long serialVersionUID = 1L;

  /** What is sent; nothing changes it. */
  public transient Row row;

  public FlinkRow() {}

  public FlinkRow(Row row) {
    this.row = row;
  }

  public static TypeInformation<FlinkRow> type() {
    return new ValueTypeInfo<>(FlinkRow.class);
  }

  @Override
  public int getBinaryLength() {
    return -1;
  }

  @Override
  public void copyTo(FlinkRow target) {
    target.row = row;
  }

  @Override
  public FlinkRow copy() {
    return new FlinkRow(row);
  }

  @Override
  public void copy(DataInputView from, DataOutputView to) throws IOException {
    Row.read(from).write(to);
  }

  @Override
  public void write(DataOutputView out) throws IOException {
    row.write(out);
  }

  @Override
  public void read(DataInputView in) throws IOException {
    row = Row.read(in);
  }
}
