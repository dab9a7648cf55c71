package nova.flink;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.locks.LockSupport;
import nova.engines.RealClock;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;

/**
 * Emits tuple k when it is due, floor(k * 1e6 / rate) us after the start, or as soon after it as the
 * operators behind take it; none is left out. Flink's own sources emit in bursts of a second, or pay
 * for a rate limiter with every tuple.
 */
public final class PacedSource implements SourceFunction<SensorTuple> {
  private static final long serialVersionUID = 1L;
  private static final double SECOND_US = 1e6;
  private static final long END_CHECK_US = 100_000;

  private final int source;
  private final byte[] values;
  private final double rate;
  private final long startMs;
  private final long count;
  private final long tickUs;
  private final Watermarks watermarks;
  private volatile boolean running = true;

  /**
   * @param source index into the workload's sources
   * @param values little-endian 64-bit floats, repeated when they are used up
   * @param rate tuples/s
   * @param startMs event time of the first tuple, ms since the epoch
   * @param count tuples in all, or a negative number for no end
   * @param tickUs time between looks at the clock, which are at its multiples after the start
   * @param windowMs length of the windows
   * @param watermarkMs least distance of watermarks
   */
  public PacedSource(
      int source,
      byte[] values,
      double rate,
      long startMs,
      long count,
      long tickUs,
      long windowMs,
      long watermarkMs) {
    this.source = source;
    this.values = values;
    this.rate = rate;
    this.startMs = startMs;
    this.count = count;
    this.tickUs = tickUs;
    this.watermarks = new Watermarks(windowMs, watermarkMs);
  }

  @Override
  public void run(SourceContext<SensorTuple> context) {
    double[] value = new double[values.length / Double.BYTES];
    ByteBuffer.wrap(values).order(ByteOrder.LITTLE_ENDIAN).asDoubleBuffer().get(value);
    SensorTuple tuple = new SensorTuple();
    tuple.source = source;
    long sequence = 0;
    long dueUs = 0;
    int at = 0;
    while (running && sequence != count) {
      long nowUs = RealClock.nowUs();
      long sinceStartUs = nowUs - startMs * 1_000;
      if (dueUs > sinceStartUs) {
        // Every look wakes a thread: tuples due between two ticks are emitted together.
        long wakeUs = (dueUs + tickUs - 1) / tickUs * tickUs;
        LockSupport.parkNanos(Math.min(wakeUs - sinceStartUs, END_CHECK_US) * 1_000);
        continue;
      }
      // For every tuple the moment counts, but not a date.
      long clockUs = nowUs - System.nanoTime() / 1_000;
      synchronized (context.getCheckpointLock()) {
        while (running && dueUs <= sinceStartUs && sequence != count) {
          tuple.sequence = sequence;
          tuple.value = value[at];
          tuple.emitUs = clockUs + System.nanoTime() / 1_000;
          context.collectWithTimestamp(tuple, startMs + dueUs / 1_000);
          sequence++;
          at = at + 1 == value.length ? 0 : at + 1;
          dueUs = (long) (sequence * SECOND_US / rate);
        }
        // Nothing earlier than the next tuple will come, and nothing that is not due yet.
        long mark = watermarks.reached(startMs + Math.min(dueUs, sinceStartUs) / 1_000);
        if (mark != Long.MIN_VALUE && sequence != count) {
          context.emitWatermark(new Watermark(mark));
        }
      }
    }
  }

  @Override
  public void cancel() {
    running = false;
  }
}
