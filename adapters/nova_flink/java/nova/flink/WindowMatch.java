package nova.flink;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.flink.streaming.api.functions.windowing.WindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * The predicate of a join, over what Flink's window operator has gathered: tuples of both inputs
 * match when their sequence numbers are equal modulo the number of keys, and that key is wanted.
 *
 * <p>Flink's state is keyed by region alone. Keyed by sequence number too, as Flink plans the same
 * join in SQL, every pair of tuples would have a state entry and a timer of its own.
 */
public final class WindowMatch
    implements WindowFunction<SensorTuple, JoinResult, Integer, TimeWindow> {
  private static final long serialVersionUID = 1L;

  private final int instance;
  private final int leftSource;
  private final long keys;
  private final long every;

  /**
   * @param instance index into the flow's joins
   * @param leftSource index of the left input's source; other tuples are the right input's
   * @param keys modulus of sequence numbers
   * @param every of which a key has to be a multiple
   */
  public WindowMatch(int instance, int leftSource, long keys, long every) {
    this.instance = instance;
    this.leftSource = leftSource;
    this.keys = keys;
    this.every = every;
  }

  @Override
  public void apply(
      Integer region, TimeWindow window, Iterable<SensorTuple> tuples, Collector<JoinResult> out) {
    List<SensorTuple> left = new ArrayList<>();
    List<SensorTuple> right = new ArrayList<>();
    for (SensorTuple tuple : tuples) {
      (tuple.source == leftSource ? left : right).add(tuple);
    }
    if (left.isEmpty() || right.isEmpty()) {
      return;
    }
    JoinResult result = new JoinResult();
    result.instance = instance;
    result.windowMs = window.getStart();
    // Right tuples in chains by key: chain[slot] is the first one's number, next[number] the next.
    int size = right.size();
    int slots = Integer.highestOneBit(size) << 1;
    int[] chain = new int[slots];
    int[] next = new int[size];
    Arrays.fill(chain, -1);
    for (int number = size - 1; number >= 0; number--) {
      long key = right.get(number).sequence % keys;
      if (key % every != 0) {
        continue;
      }
      int slot = slot(key, slots);
      next[number] = chain[slot];
      chain[slot] = number;
    }
    for (SensorTuple one : left) {
      long key = one.sequence % keys;
      if (key % every != 0) {
        continue;
      }
      for (int number = chain[slot(key, slots)]; number >= 0; number = next[number]) {
        SensorTuple other = right.get(number);
        if (other.sequence % keys == key) {
          fill(result, one, other);
          out.collect(result);
        }
      }
    }
  }

  private static int slot(long key, int slots) {
    // Keys that are wanted may all be even.
    return (int) ((key * 0x9E3779B97F4A7C15L) >>> 33) & (slots - 1);
  }

  private static void fill(JoinResult result, SensorTuple left, SensorTuple right) {
    result.leftSource = left.source;
    result.rightSource = right.source;
    result.leftSequence = left.sequence;
    result.rightSequence = right.sequence;
    result.waitedUs =
        (int)
            (Math.min(left.emitUs + left.waitedUs, right.emitUs + right.waitedUs)
                - Math.min(left.emitUs, right.emitUs));
    result.leftEmitUs = left.emitUs;
    result.rightEmitUs = right.emitUs;
    result.leftValue = left.value;
    result.rightValue = right.value;
  }
}
