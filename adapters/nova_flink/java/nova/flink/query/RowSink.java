package nova.flink.query;

import java.io.IOException;
import nova.engines.RealClock;
import nova.engines.query.RowResults;
import nova.flink.FileSink;

/** Writes the results of a query to a file on the sink's host. */
public final class RowSink extends FileSink<FlinkRow, RowResults> {
  private static final long serialVersionUID = 1L;

  private final String[] columns;
  private final String[] types;

  /**
   * @param path of the file
   * @param columns names of the results' columns
   * @param types of these: int, float or text
   */
  public RowSink(String path, String[] columns, String[] types) {
    super(path);
    this.columns = columns;
    this.types = types;
  }

  @Override
  protected RowResults open(String path, String job) throws IOException {
    return new RowResults(path, job, columns, types);
  }

  @Override
  protected void add(RowResults file, FlinkRow result) throws IOException {
    file.add(result.row, RealClock.nowUs());
  }
}
