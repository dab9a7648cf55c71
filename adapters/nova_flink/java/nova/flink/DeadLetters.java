package nova.flink;

import java.io.Closeable;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.MetricGroup;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps what came for a source and is no tuple of it: a line each, in base64 with a reason before
 * it, in the directory dead-letters beside the TaskManager's log.
 */
public final class DeadLetters implements Closeable {
  private static final Logger LOG = LoggerFactory.getLogger(DeadLetters.class);

  private final Path path;
  private final Counter counter;
  private FileOutputStream file;

  /**
   * @param source index into the job's sources
   * @param metrics of the source's operator, which say the job
   */
  public DeadLetters(int source, MetricGroup metrics) {
    String job = metrics.getAllVariables().get("<job_id>");
    String log = System.getProperty("log.file");
    Path directory =
        log == null ? Path.of(System.getProperty("java.io.tmpdir")) : Path.of(log).getParent();
    path = directory.resolve("dead-letters").resolve(job + "." + source);
    counter = metrics.counter("deadLetters");
  }

  /** Keeps one; a source that cannot fails, as nothing else would know of it. */
  public void add(String reason, byte[] letter) throws IOException {
    if (file == null) {
      Files.createDirectories(path.getParent());
      file = new FileOutputStream(path.toFile(), true);
    }
    String line = reason.replaceAll("\\s+", " ");
    String kept = Base64.getEncoder().encodeToString(letter);
    file.write((line + "\t" + kept + "\n").getBytes(StandardCharsets.UTF_8));
    counter.inc();
    if (Long.bitCount(counter.getCount()) == 1) {
      LOG.warn("{} of the dead letters in {}: {}", counter.getCount(), path, line);
    }
  }

  @Override
  public void close() {
    try {
      if (file != null) {
        file.close();
      }
    } catch (IOException error) {
      // All are written; thrown here, it could end the whole TaskManager.
      LOG.error("{}: {}", path, error.getMessage());
    }
  }
}
