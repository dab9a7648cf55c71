package nova.engines.query;

import java.io.Serializable;
import nova.engines.Intervals;

/**
 * Some partitions of an input: by the number of a tuple (rule sequence-share), or by the values of
 * some columns, so that equal values are in one partition.
 */
public final class Cut implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final long STEP = 0x9E3779B97F4A7C15L;

  private final int side;
  private final Intervals partitions;
  private final int[] hashed;

  /**
   * @param side which input of its consumer what passes is
   * @param low begin of each interval of [0, 1) that passes
   * @param high their ends, which do not
   * @param hashed columns; none to go by numbers
   */
  public Cut(int side, double[] low, double[] high, int[] hashed) {
    this.side = side;
    this.partitions = new Intervals(low, high);
    this.hashed = hashed;
  }

  /** The tuple as its consumer's input, or null where it is of another partition. */
  public Row of(Row row) {
    return partitions.hold(Intervals.place(number(row))) ? row.as(side) : null;
  }

  private long number(Row row) {
    if (hashed.length == 0) {
      return row.sequence;
    }
    long hash = 0;
    for (int column : hashed) {
      Object field = row.fields[column];
      // 0.0 and -0.0 are equal.
      long part = field.equals(-0.0) ? 0 : field.hashCode();
      hash = (hash ^ part) * STEP;
      hash ^= hash >>> 29;
    }
    return hash;
  }
}
