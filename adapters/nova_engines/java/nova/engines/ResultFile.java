package nova.engines;

import java.io.Closeable;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * Results of a sink in a file on its host, as little-endian records of one size. Each begins with the
 * ints instance and us that the inputs waited before the engine took one in, and the longs time
 * (ms) and arrival (us); the fields of its kind follow. A text is a long: where it begins in
 * PATH.texts, see {@link TextFile}.
 *
 * <p>Files beside it tell what else there is to know. PATH.fields has name and type of every field in
 * order, as JSON, before there are records. PATH.job names the job, a line for each time its sink
 * was started: a job that is started again goes on behind what it has written. Those of another job
 * that are in the way are kept, as PATH.JOB. PATH.end says that no more will come, and how many
 * records there are; PATH.failed, that some could not be written, and why. PATH.complete has an event
 * time, ms, where the engine tells it: all results of windows up to it are there.
 */
public abstract class ResultFile implements Closeable {
  private static final String[] FIRST = {"instance", "waited_us", "time_ms", "arrive_us"};
  private static final String[] FIRST_TYPES = {"i4", "i4", "i8", "i8"};
  private static final String TEXT = "text";
  private static final int BUFFER = 40_960;
  private static final long FLUSH_MS = 200;
  private static final List<String> BESIDE =
      List.of("", ".fields", ".texts", ".job", ".end", ".failed", ".complete");

  private final Path path;
  private final int record;
  // A FileChannel would be closed by the interrupt that cancels a task, with results in the buffer.
  private final RandomAccessFile file;
  private final TextFile texts;
  private final ByteBuffer buffer;
  private final Thread flusher;
  private long completeMs = Long.MIN_VALUE;
  private long toldMs = Long.MIN_VALUE;
  private IOException failure;

  /**
   * @param name path of the file
   * @param job whose results they are; the same when the engine starts it again
   * @param fields names of the fields behind the first four
   * @param types of these: i4, i8, f8 or text
   */
  protected ResultFile(String name, String job, String[] fields, String[] types)
      throws IOException {
    path = Path.of(name).toAbsolutePath();
    record = bytes(FIRST_TYPES) + bytes(types);
    buffer =
        ByteBuffer.allocate(Math.max(1, BUFFER / record) * record).order(ByteOrder.LITTLE_ENDIAN);
    Files.createDirectories(path.getParent());
    keepOthers(job);
    Files.deleteIfExists(beside(".end"));
    Files.deleteIfExists(beside(".complete"));
    file = new RandomAccessFile(path.toFile(), "rw");
    TextFile opened = null;
    try {
      replace(".fields", described(fields, types));
      if (Arrays.asList(types).contains(TEXT)) {
        opened = new TextFile(beside(".texts"));
      }
      long whole = file.length() / record * record;
      if (whole < file.length()) {
        file.setLength(whole);
      }
      file.seek(whole);
      Files.writeString(
          beside(".job"), job + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    } catch (IOException error) {
      file.close();
      if (opened != null) {
        opened.close();
      }
      throw fail(error);
    }
    texts = opened;
    flusher = new Thread(this::flushNowAndThen, "nova-result-flusher");
    flusher.setDaemon(true);
    flusher.start();
  }

  private static int bytes(String[] types) {
    return Stream.of(types).mapToInt(type -> type.equals("i4") ? 4 : 8).sum();
  }

  private static String described(String[] fields, String[] types) {
    Stream<String> first = rows(FIRST, FIRST_TYPES);
    return Stream.concat(first, rows(fields, types))
        .collect(Collectors.joining(",\n ", "[", "]\n"));
  }

  private static Stream<String> rows(String[] fields, String[] types) {
    return IntStream.range(0, fields.length)
        .mapToObj(i -> "[" + quoted(fields[i]) + ", " + quoted(types[i]) + "]");
  }

  private static String quoted(String text) {
    StringBuilder made = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        made.append('\\').append(c);
      } else if (c < ' ') {
        made.append(String.format("\\u%04x", (int) c));
      } else {
        made.append(c);
      }
    }
    return made.append('"').toString();
  }

  private Path beside(String suffix) {
    return path.resolveSibling(path.getFileName() + suffix);
  }

  private void keepOthers(String job) throws IOException {
    String other = "";
    if (Files.exists(beside(".job"))) {
      other = Files.readString(beside(".job")).lines().findFirst().orElse("");
      if (other.equals(job)) {
        return;
      }
    }
    if (other.isEmpty() && Files.exists(path)) {
      other = "until-" + Files.getLastModifiedTime(path).toMillis();
    }
    for (String suffix : BESIDE) {
      if (Files.exists(beside(suffix))) {
        Files.move(beside(suffix), beside("." + other + suffix));
      }
    }
  }

  /**
   * Begins a record, which is written within a fifth of a second. Whoever calls it holds the monitor
   * of this file until all other fields are put behind what is there, in their order.
   */
  protected final ByteBuffer begin(int instance, int waitedUs, long timeMs, long arriveUs)
      throws IOException {
    refuse();
    if (buffer.remaining() < record) {
      flush();
    }
    return buffer.putInt(instance).putInt(waitedUs).putLong(timeMs).putLong(arriveUs);
  }

  /** What the field of a text holds; whoever calls it holds the monitor of this file. */
  protected final long text(String text) throws IOException {
    try {
      return texts.add(text);
    } catch (IOException error) {
      throw fail(error);
    }
  }

  /** All results of windows that end up to a time, ms, have been added; is told with the next write. */
  public synchronized void complete(long timeMs) {
    completeMs = Math.max(completeMs, timeMs);
  }

  /** No more will come: returns when all that came is on the disk. */
  public synchronized void finish() throws IOException {
    flush();
    tellComplete();
    try {
      if (texts != null) {
        texts.sync();
      }
      file.getFD().sync();
      Files.writeString(beside(".end"), file.length() / record + "\n");
    } catch (IOException error) {
      throw fail(error);
    }
  }

  private void flush() throws IOException {
    refuse();
    try {
      // Texts are there before the records that name them.
      if (texts != null) {
        texts.flush();
      }
      // An error may have ended whoever filled the last one.
      file.write(buffer.array(), 0, buffer.position() / record * record);
    } catch (IOException error) {
      throw fail(error);
    }
    buffer.clear();
  }

  private void tellComplete() throws IOException {
    if (completeMs == toldMs) {
      return;
    }
    try {
      replace(".complete", completeMs + "\n");
      toldMs = completeMs;
    } catch (IOException error) {
      throw fail(error);
    }
  }

  /** Whoever reads it finds the old text or the new one. */
  private void replace(String suffix, String text) throws IOException {
    Path part = beside(suffix + ".part");
    Files.writeString(part, text);
    Files.move(
        part,
        beside(suffix),
        StandardCopyOption.REPLACE_EXISTING,
        StandardCopyOption.ATOMIC_MOVE);
  }

  private void refuse() throws IOException {
    if (failure != null) {
      throw new IOException(failure.getMessage(), failure);
    }
  }

  private IOException fail(IOException error) {
    failure = new IOException(path + ": results cannot be written: " + error.getMessage(), error);
    try {
      Files.writeString(beside(".failed"), error.getMessage() + "\n");
    } catch (IOException full) {
      // An empty file says it as well, and whoever waits for PATH.end waits in vain.
    }
    return failure;
  }

  private void flushNowAndThen() {
    try {
      while (true) {
        Thread.sleep(FLUSH_MS);
        synchronized (this) {
          if (buffer.position() > 0) {
            flush();
          }
          tellComplete();
        }
      }
    } catch (InterruptedException end) {
      Thread.currentThread().interrupt();
    } catch (IOException error) {
      // Kept for whoever adds, finishes or closes next.
    } catch (RuntimeException | Error error) {
      synchronized (this) {
        fail(new IOException(error));
      }
    }
  }

  /** Writes what is left; fails where anything could not be written, then or before. */
  @Override
  public void close() throws IOException {
    flusher.interrupt();
    synchronized (this) {
      try (RandomAccessFile closing = file;
          TextFile closingToo = texts) {
        flush();
      }
    }
  }
}
