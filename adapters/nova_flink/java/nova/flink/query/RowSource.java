package nova.flink.query;

import java.util.concurrent.locks.LockSupport;
import nova.engines.RealClock;
import nova.engines.query.Replay;
import nova.engines.query.Row;
import org.apache.flink.api.common.accumulators.LongMaximum;
import org.apache.flink.streaming.api.functions.source.legacy.RichSourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;

/**
 * Replays readings.
 *
 * <p>When it ends, the job's accumulator {@link #BEHIND} and the source's name has how far it was
 * behind what was due, us: the least lateness of a reading of the last second of event time, so that
 * a short pause does not count; or that of the next reading, where the source is cancelled before
 * its end.
 */
public final class RowSource extends RichSourceFunction<FlinkRow> {
  public static final String BEHIND = "nova behind us: ";

  private static final long serialVersionUID = 1L;
  private static final long SECOND_MS = 1_000;
  private static final long LONGEST_WAIT_US = 100_000;
  private static final int BATCH = 256;

  private final String name;
  private final byte[] readings;
  private final String[] types;
  private final long firstMs;
  private final long startMs;
  private final double speed;
  private final long watermarkMs;
  private volatile boolean running = true;

  /** See {@link Replay}; {@code name} is the source's. */
  public RowSource(
      String name,
      byte[] readings,
      String[] types,
      long firstMs,
      long startMs,
      double speed,
      long watermarkMs) {
    this.name = name;
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
    Lateness late = new Lateness();
    try {
      replay(context, replay, late);
    } finally {
      long behindUs = replay.more() ? -replay.waitUs(RealClock.nowUs()) : late.leastUs;
      LongMaximum behind = new LongMaximum();
      behind.add(Math.max(0, behindUs));
      getRuntimeContext().addAccumulator(BEHIND + name, behind);
    }
  }

  private void replay(SourceContext<FlinkRow> context, Replay replay, Lateness late) {
    FlinkRow out = new FlinkRow();
    while (running && replay.more()) {
      long nowUs = RealClock.nowUs();
      synchronized (context.getCheckpointLock()) {
        for (int i = 0; i < BATCH && replay.more() && replay.waitUs(nowUs) <= 0; i++) {
          long lateUs = -replay.waitUs(nowUs);
          Row row = replay.next(nowUs);
          late.add(row.timeMs, lateUs);
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

  /** How late readings of the last second of event time were. */
  private static final class Lateness {
    private long second = Long.MIN_VALUE;
    private long leastUs;

    void add(long timeMs, long lateUs) {
      long now = Math.floorDiv(timeMs, SECOND_MS);
      leastUs = now == second ? Math.min(leastUs, lateUs) : lateUs;
      second = now;
    }
  }
}
