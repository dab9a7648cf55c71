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
import java.util.List;

/**
 * Results of a job in a file on the sink's host, as 80-byte little-endian records: ints instance,
 * left source, right source, us the inputs waited before the engine took one in; longs window (ms),
 * left and right sequence number, left and right emit time, arrival (us); doubles left and right
 * value.
 *
 * <p>Files beside it tell what else there is to know. PATH.job names the job, a line for each time
 * its sink was started: a job that is started again goes on behind what it has written. Those of
 * another job that are in the way are kept, as PATH.JOB. PATH.end says that no more will come, and
 * how many records there are; PATH.failed, that some could not be written, and why. PATH.complete
 * has an event time, ms, where the engine tells it: all results of windows up to it are there.
 */
public final class ResultFile implements Closeable {
  private static final int RECORD = 80;
  private static final int BUFFER = 512 * RECORD;
  private static final long FLUSH_MS = 200;
  private static final List<String> BESIDE = List.of("", ".job", ".end", ".failed", ".complete");

  private final Path path;
  // A FileChannel would be closed by the interrupt that cancels a task, with results in the buffer.
  private final RandomAccessFile file;
  private final ByteBuffer buffer = ByteBuffer.allocate(BUFFER).order(ByteOrder.LITTLE_ENDIAN);
  private final Thread flusher;
  private long completeMs = Long.MIN_VALUE;
  private long toldMs = Long.MIN_VALUE;
  private IOException failure;

  /**
   * @param name path of the file
   * @param job whose results they are; the same when the engine starts it again
   */
  public ResultFile(String name, String job) throws IOException {
    path = Path.of(name).toAbsolutePath();
    Files.createDirectories(path.getParent());
    keepOthers(job);
    Files.deleteIfExists(beside(".end"));
    Files.deleteIfExists(beside(".complete"));
    file = new RandomAccessFile(path.toFile(), "rw");
    try {
      long whole = file.length() / RECORD * RECORD;
      if (whole < file.length()) {
        file.setLength(whole);
      }
      file.seek(whole);
      Files.writeString(
          beside(".job"), job + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    } catch (IOException error) {
      file.close();
      throw fail(error);
    }
    flusher = new Thread(this::flushNowAndThen, "nova-result-flusher");
    flusher.setDaemon(true);
    flusher.start();
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

  /** Adds a record; it is written within a fifth of a second. */
  public synchronized void add(
      int instance,
      int left,
      int right,
      int waitedUs,
      long windowMs,
      long leftSequence,
      long rightSequence,
      long leftEmitUs,
      long rightEmitUs,
      long arriveUs,
      double leftValue,
      double rightValue)
      throws IOException {
    refuse();
    buffer.putInt(instance).putInt(left).putInt(right).putInt(waitedUs);
    buffer.putLong(windowMs).putLong(leftSequence).putLong(rightSequence);
    buffer.putLong(leftEmitUs).putLong(rightEmitUs).putLong(arriveUs);
    buffer.putDouble(leftValue).putDouble(rightValue);
    if (buffer.remaining() < RECORD) {
      flush();
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
      file.getFD().sync();
      Files.writeString(beside(".end"), file.length() / RECORD + "\n");
    } catch (IOException error) {
      throw fail(error);
    }
  }

  private void flush() throws IOException {
    refuse();
    try {
      file.write(buffer.array(), 0, buffer.position());
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
      // Whoever reads it finds the old time or the new one, and all results up to it.
      Files.writeString(beside(".complete.part"), completeMs + "\n");
      Files.move(
          beside(".complete.part"),
          beside(".complete"),
          StandardCopyOption.REPLACE_EXISTING,
          StandardCopyOption.ATOMIC_MOVE);
      toldMs = completeMs;
    } catch (IOException error) {
      throw fail(error);
    }
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
      try (RandomAccessFile closing = file) {
        flush();
      }
    }
  }
}
