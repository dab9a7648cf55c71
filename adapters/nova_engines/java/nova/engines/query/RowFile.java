package nova.engines.query;

import java.io.BufferedWriter;
import java.io.Closeable;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Results in a file on the sink's host, a JSON array a line: event time (ms); event time (ms) of the
 * oldest reading it is made of, and when that was emitted (us since the epoch); the same of the newest
 * one; when it arrived; then its fields. PATH.end says that no more will come, and how many there
 * are.
 */
public final class RowFile implements Closeable {
  private static final long FLUSH_US = 200_000;

  private final Path path;
  private final BufferedWriter out;
  private long rows;
  private long flushedUs;

  public RowFile(String name) throws IOException {
    path = Path.of(name).toAbsolutePath();
    Files.createDirectories(path.getParent());
    Files.deleteIfExists(end());
    out = Files.newBufferedWriter(path, StandardCharsets.UTF_8);
  }

  private Path end() {
    return path.resolveSibling(path.getFileName() + ".end");
  }

  /** Adds a result that arrived now. */
  public void add(Row row, long arriveUs) throws IOException {
    StringBuilder line = new StringBuilder(128);
    Span span = row.span;
    line.append('[').append(row.timeMs);
    line.append(',').append(span.oldestMs).append(',').append(span.oldestUs);
    line.append(',').append(span.newestMs).append(',').append(span.newestUs);
    line.append(',').append(arriveUs);
    for (Object field : row.fields) {
      line.append(',');
      if (field instanceof String) {
        quote(line, (String) field);
      } else {
        line.append(field);
      }
    }
    out.append(line.append("]\n"));
    rows++;
    if (arriveUs - flushedUs > FLUSH_US) {
      out.flush();
      flushedUs = arriveUs;
    }
  }

  private static void quote(StringBuilder line, String text) {
    line.append('"');
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\') {
        line.append('\\').append(c);
      } else if (c < ' ') {
        line.append(String.format("\\u%04x", (int) c));
      } else {
        line.append(c);
      }
    }
    line.append('"');
  }

  /** No more will come. */
  public void finish() throws IOException {
    out.flush();
    Files.writeString(end(), rows + "\n");
  }

  @Override
  public void close() throws IOException {
    out.close();
  }
}
