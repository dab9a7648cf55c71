package nova.flink;

import java.io.IOException;
import nova.engines.RealClock;
import nova.engines.ResultFile;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Writes results to a file on the sink's host; a job whose results cannot be written fails. */
public final class ResultSink extends RichSinkFunction<JoinResult> {
  private static final long serialVersionUID = 1L;
  private static final Logger LOG = LoggerFactory.getLogger(ResultSink.class);

  private final String path;
  private transient ResultFile file;

  public ResultSink(String path) {
    this.path = path;
  }

  @Override
  public void open(OpenContext context) throws IOException {
    file = new ResultFile(path, getRuntimeContext().getJobInfo().getJobId().toString());
  }

  @Override
  public void invoke(JoinResult result, Context context) throws IOException {
    long arriveUs = RealClock.nowUs();
    file.add(
        result.instance,
        result.leftSource,
        result.rightSource,
        result.waitedUs,
        result.windowMs,
        result.leftSequence,
        result.rightSequence,
        result.leftEmitUs,
        result.rightEmitUs,
        arriveUs,
        result.leftValue,
        result.rightValue);
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
