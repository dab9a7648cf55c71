package nova.flink;

import java.io.IOException;
import nova.engines.PairResults;
import nova.engines.RealClock;

/** Writes results of pairs to a file on the sink's host. */
public final class ResultSink extends FileSink<JoinResult, PairResults> {
  private static final long serialVersionUID = 1L;

  public ResultSink(String path) {
    super(path);
  }

  @Override
  protected PairResults open(String path, String job) throws IOException {
    return new PairResults(path, job);
  }

  @Override
  protected void add(PairResults file, JoinResult result) throws IOException {
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
        RealClock.nowUs(),
        result.leftValue,
        result.rightValue);
  }
}
