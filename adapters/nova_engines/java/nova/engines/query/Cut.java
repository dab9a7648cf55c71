package nova.engines.query;

import java.io.Serializable;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import nova.engines.Intervals;

/**
 * Some partitions of an input: by the number of a tuple (rule sequence-share), or by the values of
 * some columns, so that equal values are in one partition. Frequent values of a join's columns have
 * partitions of their own: tuples of its left input are in one of them, by their number, and those
 * of its right input in all of them.
 */
public final class Cut implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final long STEP = 0x9E3779B97F4A7C15L;
  private static final int LEFT = 0;

  private final int side;
  private final Intervals partitions;
  private final int[] hashed;
  private final Map<List<String>, double[]> hot = new HashMap<>();
  private final double others;

  /**
   * @param side which input of its consumer what passes is
   * @param low begin of each interval of [0, 1) that passes
   * @param high their ends, which do not
   * @param hashed columns; none to go by numbers
   * @param values of frequent keys: those of the columns, as text
   * @param begin of what each of them has of [0, 1)
   * @param end of it
   * @param others begin of what all other keys share, to 1
   */
  public Cut(
      int side,
      double[] low,
      double[] high,
      int[] hashed,
      String[][] values,
      double[] begin,
      double[] end,
      double others) {
    this.side = side;
    this.partitions = new Intervals(low, high);
    this.hashed = hashed;
    for (int i = 0; i < values.length; i++) {
      hot.put(List.of(values[i]), new double[] {begin[i], end[i]});
    }
    this.others = others;
  }

  /** The tuple as its consumer's input, or null where it is of another partition. */
  public Row of(Row row) {
    return passes(row) ? row.as(side) : null;
  }

  private boolean passes(Row row) {
    if (hashed.length == 0) {
      return partitions.hold(Intervals.place(row.sequence));
    }
    double[] own = hot.isEmpty() ? null : hot.get(values(row));
    if (own == null) {
      return partitions.hold(others + (1 - others) * Intervals.place(hash(row)));
    }
    if (side != LEFT) {
      return partitions.meet(own[0], own[1]);
    }
    double place = own[0] + (own[1] - own[0]) * Intervals.place(row.sequence);
    // Rounding must not take it to the next key's partition, where nothing of the right input is.
    return partitions.hold(Math.min(place, Math.nextDown(own[1])));
  }

  private List<String> values(Row row) {
    String[] values = new String[hashed.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = row.fields[hashed[i]].toString();
    }
    return List.of(values);
  }

  private long hash(Row row) {
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
