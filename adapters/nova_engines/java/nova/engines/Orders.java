package nova.engines;

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
 *
 * <p>DIRECTORY/SOURCE.arrived says how many tuples the source has had to emit, whether it has or not,
 * and when that was, in ms since the epoch. It is the same for all jobs of these sources.
 */
public final class Orders {
  /** No time: there is no end, or sources have not been told to begin. */
  public static final long NONE = Long.MAX_VALUE;

  private static final long NOTE_MS = 1_000;

  private final Path file;
  private final Path arrived;
  private long notedMs = Long.MIN_VALUE;
  private String last = "";
  private long beginMs = NONE;
  private long endMs = NONE;
  private boolean committed;

  /**
   * @param directory of orders, on the source's host
   * @param job whose source it is; no other one has that name
   * @param source index into the job's sources
   */
  public Orders(String directory, String job, int source) {
    file = Path.of(directory, job, String.valueOf(source));
    arrived = Path.of(directory, source + ".arrived");
  }

  /** Event time of the first tuple, ms since the epoch, or NONE. */
  public long beginMs() {
    return beginMs;
  }

  /** Event time that all tuples are before, ms since the epoch, or NONE. */
  public long endMs() {
    return endMs;
  }

  /** Whether that end is final. */
  public boolean committed() {
    return committed;
  }

  /**
   * Takes and answers an order that has come since.
   *
   * @param emittedMs event time of the last tuple that was emitted, or Long.MIN_VALUE
   */
  public void look(long emittedMs) throws IOException {
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

  /** Notes how many tuples have been due at a time, ms since the epoch; at most once a second. */
  public void arrived(long count, long atMs) {
    if (atMs < notedMs + NOTE_MS) {
      return;
    }
    notedMs = atMs;
    String line = arrived.getFileName() + " " + count + " " + atMs + "\n";
    try {
      replace(arrived, file.getParent().getFileName() + "." + arrived.getFileName(), line);
    } catch (IOException full) {
      // Then nobody knows the rate, which is no reason to end the job.
    }
  }

  private static long time(Properties order, String name) {
    String value = order.getProperty(name);
    return value == null ? NONE : Long.parseLong(value);
  }

  private void answer(String text) throws IOException {
    Path answer = file.resolveSibling(file.getFileName() + ".answer");
    replace(answer, answer.getFileName() + ".part", text + "\n");
  }

  /** A file is there whole or not at all. */
  private static void replace(Path target, String part, String text) throws IOException {
    Path written = target.resolveSibling(part);
    Files.writeString(written, text);
    Files.move(
        written, target, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
  }
}
