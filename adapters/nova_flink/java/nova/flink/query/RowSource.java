package nova.flink.query;

import java.util.concurrent.locks.LockSupport;
import nova.engines.RealClock;
import nova.engines.query.Replay;
import nova.engines.query.Row;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;

/** Replays readings. */
public final class RowSource implements SourceFunction<FlinkRow> {
  private static final long serialVersionUID = 1L;
  private static final long LONGEST_WAIT_US = 100_000;
  private static final int BATCH = 256;

  private final byte[] readings;
  private final String[] types;
  private final long firstMs;
  private final long startMs;
  private final double speed;
  private final long watermarkMs;
  private volatile boolean running = true;

  /** See {@link Replay}. */
  public RowSource(
      byte[] readings,
      String[] types,
      long firstMs,
      long startMs,
      double speed,
      long watermarkMs) {
    this.readings = readings;
    this.types = types;
    this.firstMs = firstMs;
    this.startMs = startMs;
    this.speed = speed;
    this.watermarkMs = watermarkMs;
  }

  @Override
  public void run(SourceContext<FlinkRow> context) {
    Replay replay = new Replay(readings, types, firstMs, startMs, speed, watermarkMs);
    FlinkRow out = new FlinkRow();
    while (running && replay.more()) {
      long nowUs = RealClock.nowUs();
      synchronized (context.getCheckpointLock()) {
        for (int i = 0; i < BATCH && replay.more() && replay.waitUs(nowUs) <= 0; i++) {
          Row row = replay.next(nowUs);
          out.row = row;
          context.collectWithTimestamp(out, row.timeMs);
        }
        if (!replay.more()) {
          return; // what follows is the end of the stream, and its watermark
        }
        Long mark = replay.mark(nowUs);
        if (mark != null) {
          context.emitWatermark(new Watermark(mark));
        }
      }
      long waitUs = replay.waitUs(nowUs);
      if (waitUs > 0) {
        long stepUs = Math.min(replay.stepUs(), LONGEST_WAIT_US);
        LockSupport.parkNanos(Math.min(waitUs, stepUs) * 1_000);
      }
    }
  }

  @Override
  public void cancel() {
    running = false;
  }
}
