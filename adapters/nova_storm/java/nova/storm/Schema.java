package nova.storm;

import java.util.List;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * What flows between components. Both kinds of stream carry marks in band, so that no component
 * waits for a clock: a tuple of a source with a negative sequence number says that everything up to
 * its time has been emitted, and a result of a negative instance that all of windows up to its time
 * have been.
 */
final class Schema {
  /** Of sources, filters and relays: emit in us since the epoch, time in ms. */
  static final Fields TUPLE = new Fields("source", "sequence", "time", "emit", "value");

  /** Of joins and relays: indices into the plan's joins and the job's sources, times in us. */
  static final Fields RESULT =
      new Fields(
          "instance",
          "left",
          "right",
          "window",
          "leftSequence",
          "rightSequence",
          "leftEmit",
          "rightEmit",
          "leftValue",
          "rightValue");

  /** The last mark of a source or join. */
  static final long END = Long.MAX_VALUE;

  private static final long MARK = -1L;
  private static final int NO_INSTANCE = -1;

  private Schema() {}

  static Values mark(int source, long timeMs) {
    return new Values(source, MARK, timeMs, 0L, 0.0);
  }

  static Values complete(long timeMs) {
    return new Values(NO_INSTANCE, 0, 0, timeMs, 0L, 0L, 0L, 0L, 0.0, 0.0);
  }

  /** Numbers of a component's arguments, as Flux gives them. */
  static double[] doubles(List<Number> values) {
    return values.stream().mapToDouble(Number::doubleValue).toArray();
  }

  static boolean isMark(Tuple tuple) {
    return tuple.getLong(1) < 0;
  }

  static boolean isComplete(Tuple result) {
    return result.getInteger(0) < 0;
  }
}
