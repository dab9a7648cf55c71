package nova.engines.query;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Counts, sums, means, least and greatest values of every window and group. Partial results are the
 * group followed by what was added up so far, two fields for a mean; whole ones and readings can be
 * combined with them.
 */
public final class AggregateWindows extends Windows<Map<List<Object>, AggregateWindows.Group>> {
  private final int[] groups;
  private final String[] functions;
  private final Program[] of;
  private final boolean partial;

  /** What is known of a group. */
  static final class Group {
    private Span span;
    private final Object[] sums;

    Group(int width) {
      sums = new Object[width];
    }
  }

  /**
   * @param groups columns
   * @param functions count, sum, mean, min or max
   * @param of what they are applied to; empty for a count
   * @param partial whether partial results are emitted
   */
  public AggregateWindows(
      long sizeMs,
      long slideMs,
      boolean[] kept,
      int[] groups,
      String[] functions,
      Program[] of,
      boolean partial) {
    super(sizeMs, slideMs, kept);
    this.groups = groups;
    this.functions = functions;
    this.of = of;
    this.partial = partial;
  }

  @Override
  protected Map<List<Object>, Group> fresh() {
    return new LinkedHashMap<>();
  }

  @Override
  protected void gather(Map<List<Object>, Group> found, Row row) {
    boolean summed = row.input == Row.PARTIAL;
    Object[] key = new Object[groups.length];
    for (int i = 0; i < key.length; i++) {
      Object field = row.fields[summed ? i : groups[i]];
      key[i] = field.equals(-0.0) ? (Object) 0.0 : field;
    }
    Group group = found.computeIfAbsent(Arrays.asList(key), any -> new Group(2 * functions.length));
    group.span = group.span == null ? row.span : group.span.and(row.span);
    int next = groups.length;
    for (int i = 0; i < functions.length; i++) {
      boolean mean = functions[i].equals("mean");
      Object value;
      if (summed) {
        value = row.fields[next++];
      } else {
        value = of[i].empty() ? (Object) 1L : of[i].of(row.fields);
      }
      group.sums[2 * i] = merged(functions[i], group.sums[2 * i], value);
      if (mean) {
        Object count = summed ? row.fields[next++] : (Object) 1L;
        group.sums[2 * i + 1] = merged("count", group.sums[2 * i + 1], count);
      }
    }
  }

  private static Object merged(String function, Object before, Object value) {
    if (before == null) {
      return value;
    }
    if (function.equals("min")) {
      return Program.order(value, before) < 0 ? value : before;
    }
    if (function.equals("max")) {
      return Program.order(value, before) > 0 ? value : before;
    }
    if (before instanceof Long) {
      return Math.addExact((Long) before, (Long) value);
    }
    return (Double) before + (Double) value;
  }

  @Override
  protected void results(Map<List<Object>, Group> found, Results out) {
    found.forEach((key, group) -> out.add(group.span, fields(key, group)));
  }

  private Object[] fields(List<Object> key, Group group) {
    int width = key.size();
    for (String function : functions) {
      width += partial && function.equals("mean") ? 2 : 1;
    }
    Object[] fields = key.toArray(new Object[width]);
    int next = key.size();
    for (int i = 0; i < functions.length; i++) {
      Object sum = group.sums[2 * i];
      if (!functions[i].equals("mean")) {
        fields[next++] = sum;
      } else if (partial) {
        fields[next++] = sum;
        fields[next++] = group.sums[2 * i + 1];
      } else {
        fields[next++] = ((Number) sum).doubleValue() / (Long) group.sums[2 * i + 1];
      }
    }
    return fields;
  }
}
