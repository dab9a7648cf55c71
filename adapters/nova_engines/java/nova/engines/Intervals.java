package nova.engines;

import java.io.Serializable;

/**
 * Some partitions of an input, by the rule sequence-share: a tuple's sequence number times
 * 0x9E3779B97F4A7C15 modulo 2^64, divided by 2^64, is its place in [0, 1), and lies in one of the
 * given intervals or in none.
 */
public final class Intervals implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final long STEP = 0x9E3779B97F4A7C15L;
  private static final double UNIT = 1.0 / (1L << 53);

  private final double[] low;
  private final double[] high;

  /**
   * @param low begin of each interval, which belongs to it
   * @param high end of each interval, which does not
   */
  public Intervals(double[] low, double[] high) {
    this.low = low;
    this.high = high;
  }

  /** Where in [0, 1) a tuple of that number lies. */
  public static double place(long sequence) {
    return ((sequence * STEP) >>> 11) * UNIT;
  }

  /** Whether a place is in one of the intervals. */
  public boolean hold(double place) {
    for (int i = 0; i < low.length; i++) {
      if (low[i] <= place && place < high[i]) {
        return true;
      }
    }
    return false;
  }

  /** Whether some of the places from one up to another are in one of the intervals. */
  public boolean meet(double begin, double end) {
    for (int i = 0; i < low.length; i++) {
      if (low[i] < end && begin < high[i]) {
        return true;
      }
    }
    return false;
  }
}
