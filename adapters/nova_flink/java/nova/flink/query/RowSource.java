package nova.flink.query;

import java.io.IOException;
import java.util.concurrent.locks.LockSupport;
import nova.engines.EventClock;
import nova.engines.Orders;
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

  private static final long serialVersionUID = 2L;
  private static final long SECOND_MS = 1_000;
  private static final int BATCH = 256;

  private final String name;
  private final int source;
  private final byte[] readings;
  private final String[] types;
  private final EventClock clock;
  private final long watermarkMs;
  private final String control;
  private final long lastMs;
  private volatile boolean running = true;

  /**
   * See {@link Replay}.
   *
   * @param name the source's
   * @param source its index
   * @param control directory of orders on the source's host; empty for a source that takes none
   */
  public RowSource(
      String name,
      int source,
      byte[] readings,
      String[] types,
      EventClock clock,
      long watermarkMs,
      String control,
      long lastMs) {
    this.name = name;
    this.source = source;
    this.readings = readings;
    this.types = types;
    this.clock = clock;
    this.watermarkMs = watermarkMs;
    this.control = control;
    this.lastMs = lastMs;
  }

  @Override
  public void run(SourceContext<FlinkRow> context) throws IOException {
    String job = getRuntimeContext().getJobInfo().getJobId().toString();
    Orders orders = control.isEmpty() ? null : new Orders(control, job, source);
    Replay replay = new Replay(readings, types, clock, watermarkMs, orders, lastMs);
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

  private void replay(SourceContext<FlinkRow> context, Replay replay, Lateness late)
      throws IOException {
    FlinkRow out = new FlinkRow();
    long nowUs = RealClock.nowUs();
    while (running && !replay.ended(nowUs)) {
      if (replay.begun(nowUs)) {
        synchronized (context.getCheckpointLock()) {
          for (int i = 0; i < BATCH && replay.waitUs(nowUs) <= 0; i++) {
            long lateUs = -replay.waitUs(nowUs);
            Row row = replay.next(nowUs);
            late.add(row.timeMs, lateUs);
            out.row = row;
            context.collectWithTimestamp(out, row.timeMs);
          }
          if (replay.ended(nowUs)) {
            return; // what follows is the end of the stream, and its watermark
          }
          Long mark = replay.mark(nowUs);
          if (mark != null) {
            context.emitWatermark(new Watermark(mark));
          }
        }
      }
      long waitUs = replay.begun(nowUs) ? replay.waitUs(nowUs) : replay.stepUs();
      if (waitUs > 0) {
        LockSupport.parkNanos(Math.min(waitUs, replay.stepUs()) * 1_000);
      }
      nowUs = RealClock.nowUs();
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
