package nova.engines.query;

import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;

/**
 * What an operator has gathered, by the end of its windows. A window begins at every multiple of the
 * slide. Its results leave when no more tuples of it can come, with its last ms as event time.
 *
 * @param <W> what is kept of a window
 */
public abstract class Windows<W> {
  private final long sizeMs;
  private final long slideMs;
  private final boolean[] kept;
  private final TreeMap<Long, W> open = new TreeMap<>();
  private long emitted;

  /**
   * @param sizeMs length
   * @param slideMs distance
   * @param kept whether tuples of the left and the right input stay in the window that they are
   *     results of
   */
  protected Windows(long sizeMs, long slideMs, boolean[] kept) {
    this.sizeMs = sizeMs;
    this.slideMs = slideMs;
    this.kept = kept;
  }

  /**
   * Those of a join or an aggregate.
   *
   * @param window length and distance, ms
   * @param kept whether the left and right input keep their windows
   * @param columns of a join the keys of its left and right input; of an aggregate its groups
   * @param programs of a join its condition or none; of an aggregate what it adds up
   * @param functions of an aggregate; null for a join
   * @param partial whether partial results are emitted
   */
  public static Windows<?> of(
      long[] window,
      boolean[] kept,
      int[][] columns,
      Program[] programs,
      String[] functions,
      boolean partial) {
    if (functions == null) {
      Program condition = programs.length == 0 ? null : programs[0];
      return new JoinWindows(window[0], window[1], kept, columns[0], columns[1], condition);
    }
    return new AggregateWindows(
        window[0], window[1], kept, columns[0], functions, programs, partial);
  }

  /** Takes a tuple. */
  public final void add(Row row) {
    if (row.input == Row.PARTIAL || kept[row.input]) {
      put(row, row.timeMs + 1);
      return;
    }
    long last = Math.floorDiv(row.timeMs, slideMs) * slideMs;
    for (long begin = last; begin > row.timeMs - sizeMs; begin -= slideMs) {
      put(row, begin + sizeMs);
    }
  }

  private void put(Row row, long end) {
    gather(open.computeIfAbsent(end, any -> fresh()), row);
  }

  /** Emits the results of all windows that end at or before a watermark. */
  public final void reached(long watermarkMs, Consumer<Row> out) {
    while (!open.isEmpty() && open.firstKey() - 1 <= watermarkMs) {
      Map.Entry<Long, W> first = open.pollFirstEntry();
      results(
          first.getValue(),
          (span, fields) -> out.accept(new Row(0, first.getKey() - 1, emitted++, span, fields)));
    }
  }

  /** Takes the results of a window. */
  protected interface Results {
    void add(Span span, Object[] fields);
  }

  protected abstract W fresh();

  protected abstract void gather(W window, Row row);

  protected abstract void results(W window, Results out);
}
