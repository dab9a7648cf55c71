package nova.flink.query;

import java.io.IOException;
import nova.engines.RealClock;
import nova.engines.query.RowFile;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;

/** Writes the results of a query to a file on the sink's host. */
public final class RowSink extends RichSinkFunction<FlinkRow> {
  private static final long serialVersionUID = 1L;

  private final String path;
  private transient RowFile file;

  public RowSink(String path) {
    this.path = path;
  }

  @Override
  public void open(OpenContext context) throws IOException {
    file = new RowFile(path);
  }

  @Override
  public void invoke(FlinkRow result, Context context) throws IOException {
    file.add(result.row, RealClock.nowUs());
  }

  @Override
  public void finish() throws IOException {
    file.finish();
  }

  @Override
  public void close() throws IOException {
    if (file != null) {
      file.close();
    }
  }
}
