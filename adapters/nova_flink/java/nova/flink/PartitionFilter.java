package nova.flink;

import org.apache.flink.api.common.functions.FilterFunction;

/**
 * Passes the tuples of some partitions by the rule sequence-share: a tuple's sequence number times
 * 0x9E3779B97F4A7C15 modulo 2^64, divided by 2^64, has to lie in one of the given intervals.
 */
public final class PartitionFilter implements FilterFunction<SensorTuple> {
  private static final long serialVersionUID = 1L;
  private static final long STEP = 0x9E3779B97F4A7C15L;
  private static final double UNIT = 1.0 / (1L << 53);

  private final double[] low;
  private final double[] high;

  /**
   * @param low begin of each interval, which belongs to it
   * @param high end of each interval, which does not
   */
  public PartitionFilter(double[] low, double[] high) {
    this.low = low;
    this.high = high;
  }

  @Override
  public boolean filter(SensorTuple tuple) {
    return holds(place(tuple.sequence));
  }

  /** Where in [0, 1) a tuple of that number lies. */
  static double place(long sequence) {
    return ((sequence * STEP) >>> 11) * UNIT;
  }

  /** Whether a place is in one of the intervals. */
  boolean holds(double place) {
    for (int i = 0; i < low.length; i++) {
      if (low[i] <= place && place < high[i]) {
        return true;
      }
    }
    return false;
  }
}
