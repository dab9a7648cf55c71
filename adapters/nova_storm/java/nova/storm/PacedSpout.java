package nova.storm;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import nova.engines.Orders;
import nova.engines.Pace;
import nova.engines.RealClock;
import nova.engines.Watermarks;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Values;

/**
 * Emits a tuple when it is due ({@link Pace}), or as soon after it as Storm asks; none is left out.
 * Tuples are the same however often it is started: one that Storm starts again begins anew, and
 * joins know what they have had.
 *
 * <p>In a topology that takes orders ({@link Orders}), it emits nothing before it is told when to
 * begin. Its tuples have the numbers they would have without, so that two topologies that share a
 * source's time emit together what one would have emitted.
 */
public final class PacedSpout extends BaseRichSpout {
  private static final long serialVersionUID = 1L;
  // Storm sends what it has, and stops spouts, between two calls.
  private static final int AT_ONCE = 200;
  private static final long LOOK_US = 100_000;

  private final int source;
  private final double[] values;
  private final Pace pace;
  private final long startMs;
  private final long count;
  private final Watermarks watermarks;

  private transient SpoutOutputCollector collector;
  private transient Orders orders;
  private boolean ended;
  private boolean begun;
  private long sequence;
  private long dueUs;
  private long emittedMs = Long.MIN_VALUE;
  private long lookUs = Long.MIN_VALUE;

  /**
   * @param source index into the job's sources
   * @param values repeated when they are used up
   * @param path file of little-endian 64-bit floats to use instead, where it is not empty; it is
   *     read when the topology is submitted
   * @param pace of tuples, see {@link Pace}
   * @param startMs event time of the first tuple, ms since the epoch
   * @param count tuples in all, or a negative number for no end
   * @param windowMs length of the windows
   * @param watermarkMs least distance of marks, which are at ends of windows
   */
  public PacedSpout(
      int source,
      List<Number> values,
      String path,
      List<Number> pace,
      long startMs,
      long count,
      long windowMs,
      long watermarkMs) {
    this.source = source;
    this.values = path.isEmpty() ? Schema.doubles(values) : read(Path.of(path));
    this.pace = new Pace(Schema.doubles(pace));
    this.startMs = startMs;
    this.count = count;
    this.watermarks = new Watermarks(windowMs, watermarkMs);
    if (this.values.length == 0) {
      throw new IllegalArgumentException("source " + source + ": nothing to replay");
    }
  }

  private static double[] read(Path path) {
    try {
      byte[] bytes = Files.readAllBytes(path);
      double[] values = new double[bytes.length / Double.BYTES];
      ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asDoubleBuffer().get(values);
      return values;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public void open(
      Map<String, Object> conf, TopologyContext context, SpoutOutputCollector collector) {
    this.collector = collector;
    orders = Control.orders(conf, context, source);
    ended = !Control.first(conf, context);
  }

  @Override
  public void nextTuple() {
    if (ended) {
      return;
    }
    long nowUs = RealClock.nowUs();
    long sinceStartUs = nowUs - startMs * 1_000;
    if (orders != null && nowUs >= lookUs) {
      lookUs = nowUs + LOOK_US;
      look(sinceStartUs, nowUs / 1_000);
    }
    if (!begun && !begin()) {
      return;
    }
    long endMs = orders == null ? Orders.NONE : orders.endMs();
    for (int i = 0;
        i < AT_ONCE
            && dueUs <= sinceStartUs
            && sequence != count
            && startMs + dueUs / 1_000 < endMs;
        i++) {
      emittedMs = startMs + dueUs / 1_000;
      double value = values[(int) (sequence % values.length)];
      collector.emit(new Values(source, sequence, emittedMs, RealClock.nowUs(), value));
      sequence++;
      dueUs = pace.dueUs(sequence);
    }
    boolean held = startMs + dueUs / 1_000 >= endMs;
    if (sequence == count || (held && orders.committed() && nowUs / 1_000 >= endMs)) {
      ended = true;
      collector.emit(Schema.mark(source, Schema.END));
      return;
    }
    // Nothing earlier than the next tuple will come, and nothing that is not due yet.
    long markMs = watermarks.reached(startMs + Math.min(dueUs, sinceStartUs) / 1_000);
    if (markMs != Long.MIN_VALUE) {
      collector.emit(Schema.mark(source, markMs));
    }
  }

  private void look(long sinceStartUs, long nowMs) {
    try {
      orders.look(emittedMs);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    orders.arrived(pace.before(sinceStartUs), nowMs);
  }

  /** Whether it may emit; from its first tuple on. */
  private boolean begin() {
    if (orders != null) {
      if (orders.beginMs() == Orders.NONE) {
        return false;
      }
      long first = pace.before((orders.beginMs() - startMs) * 1_000);
      sequence = count < 0 ? first : Math.min(first, count);
      dueUs = pace.dueUs(sequence);
    }
    begun = true;
    return true;
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    declarer.declare(Schema.TUPLE);
  }
}
