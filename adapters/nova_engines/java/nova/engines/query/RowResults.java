package nova.engines.query;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.stream.Stream;
import nova.engines.ResultFile;

/**
 * Results of a query: the event time (ms) of the oldest reading that each is made of, and when that
 * was emitted (us since the epoch); the same of the newest one; then its columns.
 */
public final class RowResults extends ResultFile {
  private static final String[] SPAN = {"oldest_ms", "oldest_us", "newest_ms", "newest_us"};
  // What delivered a row is not known.
  private static final int NO_INSTANCE = -1;

  private final String[] types;

  /**
   * @param path see {@link ResultFile}
   * @param job see there
   * @param columns names
   * @param types of the columns: int, float or text
   */
  public RowResults(String path, String job, String[] columns, String[] types)
      throws IOException {
    super(
        path,
        job,
        both(SPAN, columns),
        both(Stream.of(SPAN).map(one -> "i8"), Stream.of(types).map(RowResults::written)));
    this.types = types;
  }

  private static String[] both(String[] first, String[] second) {
    return both(Stream.of(first), Stream.of(second));
  }

  private static String[] both(Stream<String> first, Stream<String> second) {
    return Stream.concat(first, second).toArray(String[]::new);
  }

  private static String written(String type) {
    switch (type) {
      case "int":
        return "i8";
      case "float":
        return "f8";
      default:
        return type;
    }
  }

  /** Adds a result that arrived now. */
  public synchronized void add(Row row, long arriveUs) throws IOException {
    Object[] fields = row.fields;
    if (fields.length != types.length) {
      throw new IllegalStateException(fields.length + " columns; expected " + types.length);
    }
    Span span = row.span;
    ByteBuffer to = begin(NO_INSTANCE, 0, row.timeMs, arriveUs);
    to.putLong(span.oldestMs).putLong(span.oldestUs);
    to.putLong(span.newestMs).putLong(span.newestUs);
    for (int i = 0; i < fields.length; i++) {
      switch (types[i].charAt(0)) {
        case 'i':
          to.putLong((Long) fields[i]);
          break;
        case 'f':
          to.putDouble((Double) fields[i]);
          break;
        default:
          to.putLong(text((String) fields[i]));
      }
    }
  }
}
