package nova.flink.query;

import java.util.concurrent.locks.LockSupport;
import nova.engines.RealClock;
import nova.engines.query.ReadingTable;
import nova.engines.query.Row;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;

/** Replays readings: each when its event time has come, or as soon after as it is taken. */
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

  /**
   * @param readings as {@link ReadingTable} reads them
   * @param types of the columns
   * @param firstMs event time of the first reading of all sources
   * @param startMs when that is emitted, ms since the epoch
   * @param speed ms of event time per ms; 0 waits for nothing
   * @param watermarkMs watermarks are at its multiples
   */
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

  private long dueUs(long timeMs) {
    return speed == 0 ? 0 : startMs * 1_000 + (long) ((timeMs - firstMs) * 1_000 / speed);
  }

  @Override
  public void run(SourceContext<FlinkRow> context) {
    ReadingTable table = new ReadingTable(readings, types);
    FlinkRow out = new FlinkRow();
    long sequence = 0;
    long last = Long.MIN_VALUE;
    while (running && table.more()) {
      long nowUs = RealClock.nowUs();
      synchronized (context.getCheckpointLock()) {
        for (int i = 0; i < BATCH && table.more() && dueUs(table.time()) <= nowUs; i++) {
          Row row = table.next(sequence++, nowUs);
          out.row = row;
          context.collectWithTimestamp(out, row.timeMs);
        }
        if (!table.more()) {
          return; // what follows is the end of the stream, and its watermark
        }
        // Nothing earlier than the next reading will come, and nothing that is not due yet.
        long reached = table.time();
        if (speed > 0) {
          reached = Math.min(reached, firstMs + (long) ((nowUs / 1e3 - startMs) * speed));
        }
        long mark = Math.floorDiv(reached, watermarkMs) * watermarkMs - 1;
        if (mark > last) {
          last = mark;
          context.emitWatermark(new Watermark(mark));
        }
      }
      long waitUs = dueUs(table.time()) - nowUs;
      if (waitUs > 0) {
        long stepUs = Math.max(1_000, (long) (watermarkMs * 1_000 / speed));
        LockSupport.parkNanos(Math.min(Math.min(waitUs, stepUs), LONGEST_WAIT_US) * 1_000);
      }
    }
  }

  @Override
  public void cancel() {
    running = false;
  }
}
