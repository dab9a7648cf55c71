package nova.flink;

import java.io.IOException;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Properties;

/**
 * What a running source is told, through a file on its host: the event time its tuples begin at,
 * the one they end before, and whether that end is final. A source that reaches an end that is not
 * final waits there, as it may still be given a later one, or none.
 *
 * <p>DIRECTORY/JOB/SOURCE has lines KEY=VALUE: order (a number, larger each time), begin and end (ms
 * since the epoch), committed (true). DIRECTORY/JOB/SOURCE.answer has the order's number and {@code
 * ok}; {@code late} and a time that an end has to be after, where tuples after the end have been
 * emitted; or {@code unreadable}. No job takes another's orders, as its id is in the path.
 */
final class Orders {
  /** No time: there is no end, or sources have not been told to begin. */
  static final long NONE = Long.MAX_VALUE;

  private final Path file;
  private String last = "";
  private long beginMs = NONE;
  private long endMs = NONE;
  private boolean committed;

  Orders(String directory, String job, int source) {
    file = Path.of(directory, job, String.valueOf(source));
  }

  /** Event time of the first tuple, ms since the epoch, or NONE. */
  long beginMs() {
    return beginMs;
  }

  /** Event time that all tuples are before, ms since the epoch, or NONE. */
  long endMs() {
    return endMs;
  }

  /** Whether that end is final. */
  boolean committed() {
    return committed;
  }

  /**
   * Takes and answers an order that has come since.
   *
   * @param emittedMs event time of the last tuple that was emitted, or Long.MIN_VALUE
   */
  void look(long emittedMs) throws IOException {
    String text;
    try {
      text = Files.readString(file);
    } catch (NoSuchFileException nothing) {
      return;
    }
    if (text.equals(last)) {
      return;
    }
    last = text;
    Properties order = new Properties();
    try {
      order.load(new StringReader(text));
      long number = time(order, "order");
      long begin = time(order, "begin");
      long end = time(order, "end");
      if (number == NONE) {
        throw new NumberFormatException("no order");
      }
      if (end <= emittedMs) {
        answer(number + " late " + emittedMs);
        return;
      }
      beginMs = begin;
      endMs = end;
      committed = end != NONE && "true".equals(order.getProperty("committed"));
      answer(number + " ok");
    } catch (IllegalArgumentException error) {
      answer("unreadable");
    }
  }

  private static long time(Properties order, String name) {
    String value = order.getProperty(name);
    return value == null ? NONE : Long.parseLong(value);
  }

  private void answer(String text) throws IOException {
    Path part = file.resolveSibling(file.getFileName() + ".answer.part");
    Files.writeString(part, text + "\n");
    Files.move(
        part,
        file.resolveSibling(file.getFileName() + ".answer"),
        StandardCopyOption.REPLACE_EXISTING,
        StandardCopyOption.ATOMIC_MOVE);
  }
}
