package nova.storm;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import nova.engines.RealClock;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Values;

/**
 * Emits tuple k when it is due, floor(k * 1e6 / rate) us after the start, or as soon after it as
 * Storm asks; none is left out. Tuples are the same however often it is started: one that Storm
 * starts again begins anew, and joins know what they have had.
 */
public final class PacedSpout extends BaseRichSpout {
  private static final long serialVersionUID = 1L;
  private static final double SECOND_US = 1e6;
  // Storm sends what it has, and stops spouts, between two calls.
  private static final int AT_ONCE = 200;

  private final int source;
  private final double[] values;
  private final double rate;
  private final long startMs;
  private final long count;
  private final long stepMs;

  private transient SpoutOutputCollector collector;
  private long sequence;
  private long dueUs;
  private int at;
  private long marked = Long.MIN_VALUE;

  /**
   * @param source index into the workload's sources
   * @param values repeated when they are used up
   * @param path file of little-endian 64-bit floats to use instead, where it is not empty; it is
   *     read when the topology is submitted
   * @param rate tuples/s
   * @param startMs event time of the first tuple, ms since the epoch
   * @param count tuples in all, or a negative number for no end
   * @param windowMs length of the windows
   * @param watermarkMs least distance of marks, which are at ends of windows
   */
  public PacedSpout(
      int source,
      List<Number> values,
      String path,
      double rate,
      long startMs,
      long count,
      long windowMs,
      long watermarkMs) {
    this.source = source;
    this.values = path.isEmpty() ? listed(values) : read(Path.of(path));
    this.rate = rate;
    this.startMs = startMs;
    this.count = count;
    this.stepMs = Math.max(windowMs, watermarkMs);
    if (this.values.length == 0) {
      throw new IllegalArgumentException("source " + source + ": nothing to replay");
    }
  }

  private static double[] listed(List<Number> values) {
    return values.stream().mapToDouble(Number::doubleValue).toArray();
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
  }

  @Override
  public void nextTuple() {
    if (marked == Schema.END) {
      return;
    }
    long sinceStartUs = RealClock.nowUs() - startMs * 1_000;
    for (int i = 0; i < AT_ONCE && dueUs <= sinceStartUs && sequence != count; i++) {
      long time = startMs + dueUs / 1_000;
      collector.emit(new Values(source, sequence, time, RealClock.nowUs(), values[at]));
      sequence++;
      at = at + 1 == values.length ? 0 : at + 1;
      dueUs = (long) Math.floor(sequence * SECOND_US / rate);
    }
    mark(sequence == count ? Schema.END : reached(Math.min(dueUs, sinceStartUs)));
  }

  /** The last end of a window before which nothing will come, where all before it is emitted. */
  private long reached(long emittedUs) {
    return Math.floorDiv(startMs + Math.floorDiv(emittedUs, 1_000L), stepMs) * stepMs - 1;
  }

  private void mark(long timeMs) {
    if (timeMs > marked) {
      marked = timeMs;
      collector.emit(Schema.mark(source, timeMs));
    }
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    declarer.declare(Schema.TUPLE);
  }
}
