package nova.flink;

import java.io.IOException;
import nova.engines.ResultFile;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Writes results to a file on the sink's host; a job whose results cannot be written fails. */
public abstract class FileSink<T, F extends ResultFile> extends RichSinkFunction<T> {
  private static final long serialVersionUID = 1L;
  private static final Logger LOG = LoggerFactory.getLogger(FileSink.class);

  private final String path;
  private transient F file;

  protected FileSink(String path) {
    this.path = path;
  }

  /** The file at a path, for results of a job. */
  protected abstract F open(String path, String job) throws IOException;

  /** Adds a result that arrived now. */
  protected abstract void add(F file, T result) throws IOException;

  @Override
  public void open(OpenContext context) throws IOException {
    file = open(path, getRuntimeContext().getJobInfo().getJobId().toString());
  }

  @Override
  public void invoke(T result, Context context) throws IOException {
    add(file, result);
  }

  @Override
  public void writeWatermark(Watermark mark) {
    file.complete(mark.getTimestamp());
  }

  @Override
  public void finish() throws IOException {
    file.finish();
  }

  @Override
  public void close() {
    if (file == null) {
      return;
    }
    try {
      file.close();
    } catch (IOException error) {
      // Of a job that ended, finish has failed before; of one that is cancelled, the file beside the
      // results says so. Thrown here, it would end the whole TaskManager.
      LOG.error("{}", error.getMessage());
    }
  }
}
