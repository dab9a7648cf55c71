package nova.engines;

import java.io.Serializable;

/**
 * When tuples are due: in each part, tuple k is due floor((k - first) * 1e6 / rate) us after the
 * part's first one. The same sums as in Python's nova_engines.sources.Pace, so that both agree.
 */
public final class Pace implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final double SECOND_US = 1e6;
  private static final int FIELDS = 3;

  private final long[] first;
  private final long[] dueUs;
  private final double[] rate;

  /**
   * @param parts of each part the number of its first tuple, when that is due in us after the start,
   *     and tuples/s
   */
  public Pace(double[] parts) {
    int count = parts.length / FIELDS;
    first = new long[count];
    dueUs = new long[count];
    rate = new double[count];
    for (int i = 0; i < count; i++) {
      first[i] = (long) parts[FIELDS * i];
      dueUs[i] = (long) parts[FIELDS * i + 1];
      rate[i] = parts[FIELDS * i + 2];
    }
  }

  /** When a tuple is due, us after the start. */
  public long dueUs(long sequence) {
    int part = last(first, sequence);
    return dueUs[part] + (long) ((sequence - first[part]) * SECOND_US / rate[part]);
  }

  /** How many tuples are due before a time, us after the start. */
  public long before(long us) {
    int part = last(dueUs, us);
    long since = Math.max(us - dueUs[part], 0);
    long sequence = first[part] + (long) (since * rate[part] / SECOND_US);
    // Rounding may put a tuple on either side.
    while (sequence > 0 && dueUs(sequence - 1) >= us) {
      sequence--;
    }
    while (dueUs(sequence) < us) {
      sequence++;
    }
    return sequence;
  }

  /** The last part that begins at a value or before; there are few. */
  private static int last(long[] begins, long value) {
    int part = begins.length - 1;
    while (part > 0 && begins[part] > value) {
      part--;
    }
    return part;
  }
}
