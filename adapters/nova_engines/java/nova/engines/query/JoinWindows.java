package nova.engines.query;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Pairs of tuples of one window that match: the fields of the left one, then of the right one. */
public final class JoinWindows extends Windows<JoinWindows.Pane> {
  private final int[][] keys;
  private final Program condition;

  /** Tuples of both inputs by their keys. */
  static final class Pane {
    private final List<Map<List<Object>, List<Row>>> sides =
        List.of(new HashMap<>(), new HashMap<>());
  }

  /**
   * @param keys columns of the left input, and those of the right one that equal them
   * @param condition what has to hold of both; null for all pairs of equal keys
   */
  public JoinWindows(
      long sizeMs, long slideMs, boolean[] kept, int[] left, int[] right, Program condition) {
    super(sizeMs, slideMs, kept);
    this.keys = new int[][] {left, right};
    this.condition = condition;
  }

  @Override
  protected Pane fresh() {
    return new Pane();
  }

  @Override
  protected void gather(Pane pane, Row row) {
    int[] columns = keys[row.input];
    Object[] key = new Object[columns.length];
    for (int i = 0; i < key.length; i++) {
      key[i] = row.fields[columns[i]];
    }
    pane.sides.get(row.input).computeIfAbsent(Arrays.asList(key), any -> new ArrayList<>()).add(row);
  }

  @Override
  protected void results(Pane pane, Results out) {
    pane.sides
        .get(0)
        .forEach(
            (key, left) -> {
              for (Row other : pane.sides.get(1).getOrDefault(key, List.of())) {
                for (Row one : left) {
                  Object[] both = Arrays.copyOf(one.fields, one.fields.length + other.fields.length);
                  System.arraycopy(other.fields, 0, both, one.fields.length, other.fields.length);
                  if (condition == null || condition.holds(both)) {
                    out.add(one.span.and(other.span), both);
                  }
                }
              }
            });
  }
}
