package nova.flink;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import nova.engines.Orders;
import nova.engines.Pace;
import nova.engines.RealClock;
import nova.engines.Watermarks;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichSourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;

/**
 * Emits a tuple when it is due ({@link Pace}), or as soon after it as the operators behind take it;
 * none is left out. Flink's own sources emit in bursts of a second, or pay for a rate limiter with
 * every tuple.
 *
 * <p>One that takes orders ({@link Orders}) emits nothing before it is told when to begin. Its tuples
 * have the numbers they would have without, so that two jobs that share a source's time emit
 * together what one would have emitted.
 *
 * <p>One that Flink starts again goes on with the tuple that the last checkpoint names.
 */
public final class PacedSource extends RichSourceFunction<SensorTuple>
    implements CheckpointedFunction {
  private static final long serialVersionUID = 3L;
  private static final long LOOK_US = 100_000;

  private final int source;
  private final byte[] values;
  private final Pace pace;
  private final long startMs;
  private final long count;
  private final long tickUs;
  private final Watermarks watermarks;
  private final String control;
  private volatile boolean running = true;
  // Number of the next tuple, under the checkpoint lock once the source runs.
  private transient long sequence;
  private transient boolean restored;
  private transient ListState<Long> kept;

  /**
   * @param source index into the job's sources
   * @param values little-endian 64-bit floats, repeated when they are used up
   * @param pace of tuples, see {@link Pace}; little-endian 64-bit floats as well
   * @param startMs event time of the first tuple, ms since the epoch
   * @param count tuples in all, or a negative number for no end
   * @param tickUs time between looks at the clock, which are at its multiples after the start
   * @param windowMs length of the windows
   * @param watermarkMs least distance of watermarks
   * @param control directory of orders on the source's host; empty for a source that takes none
   */
  public PacedSource(
      int source,
      byte[] values,
      byte[] pace,
      long startMs,
      long count,
      long tickUs,
      long windowMs,
      long watermarkMs,
      String control) {
    this.source = source;
    this.values = values;
    this.pace = new Pace(doubles(pace));
    this.startMs = startMs;
    this.count = count;
    this.tickUs = tickUs;
    this.watermarks = new Watermarks(windowMs, watermarkMs);
    this.control = control;
  }

  private static double[] doubles(byte[] bytes) {
    double[] found = new double[bytes.length / Double.BYTES];
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asDoubleBuffer().get(found);
    return found;
  }

  @Override
  public void run(SourceContext<SensorTuple> context) throws IOException {
    double[] value = doubles(values);
    SensorTuple tuple = new SensorTuple();
    tuple.source = source;
    Orders orders = orders();
    if (!restored) {
      sequence = begin(orders);
    }
    long dueUs = pace.dueUs(sequence);
    long emittedMs = Long.MIN_VALUE;
    long lookUs = Long.MIN_VALUE;
    while (running && sequence != count) {
      long nowUs = RealClock.nowUs();
      long sinceStartUs = nowUs - startMs * 1_000;
      if (orders != null && sinceStartUs >= lookUs) {
        orders.look(emittedMs);
        orders.arrived(pace.before(sinceStartUs), nowUs / 1_000);
        lookUs = sinceStartUs + LOOK_US;
      }
      long endMs = orders == null ? Orders.NONE : orders.endMs();
      boolean held = startMs + dueUs / 1_000 >= endMs;
      if (held && orders.committed() && nowUs / 1_000 >= endMs) {
        return;
      }
      if (dueUs > sinceStartUs) {
        // Every look wakes a thread: tuples due between two ticks are emitted together.
        long wakeUs = (dueUs + tickUs - 1) / tickUs * tickUs;
        LockSupport.parkNanos(Math.min(wakeUs - sinceStartUs, LOOK_US) * 1_000);
        continue;
      }
      // For every tuple the moment counts, but not a date. Orders are looked at also by a source that
      // has much to catch up with.
      long clockUs = nowUs - System.nanoTime() / 1_000;
      long untilUs = nowUs + LOOK_US;
      // Not the time of the last one: clocks may be set back.
      tuple.emitUs = nowUs;
      synchronized (context.getCheckpointLock()) {
        while (running
            && dueUs <= sinceStartUs
            && sequence != count
            && tuple.emitUs < untilUs
            && startMs + dueUs / 1_000 < endMs) {
          tuple.sequence = sequence;
          tuple.value = value[(int) (sequence % value.length)];
          tuple.emitUs = clockUs + System.nanoTime() / 1_000;
          emittedMs = startMs + dueUs / 1_000;
          context.collectWithTimestamp(tuple, emittedMs);
          sequence++;
          dueUs = pace.dueUs(sequence);
        }
        // Nothing earlier than the next tuple will come, and nothing that is not due yet.
        long mark = watermarks.reached(startMs + Math.min(dueUs, sinceStartUs) / 1_000);
        if (mark != Long.MIN_VALUE && sequence != count) {
          context.emitWatermark(new Watermark(mark));
        }
      }
      if (held) {
        LockSupport.parkNanos(tickUs * 1_000);
      }
    }
  }

  @Override
  public void initializeState(FunctionInitializationContext context) throws Exception {
    kept =
        context
            .getOperatorStateStore()
            .getListState(new ListStateDescriptor<>("sequence", Types.LONG));
    for (long number : kept.get()) {
      sequence = number;
      restored = true;
    }
  }

  @Override
  public void snapshotState(FunctionSnapshotContext context) throws Exception {
    kept.update(List.of(sequence));
  }

  private Orders orders() {
    if (control.isEmpty()) {
      return null;
    }
    String job = getRuntimeContext().getJobInfo().getJobId().toString();
    return new Orders(control, job, source);
  }

  /** Number of the first tuple, as soon as it is told. */
  private long begin(Orders orders) throws IOException {
    if (orders == null) {
      return 0;
    }
    while (running && orders.beginMs() == Orders.NONE) {
      LockSupport.parkNanos(LOOK_US * 1_000);
      orders.look(Long.MIN_VALUE);
    }
    long first = pace.before((orders.beginMs() - startMs) * 1_000);
    return count < 0 ? first : Math.min(first, count);
  }

  @Override
  public void cancel() {
    running = false;
  }
}
