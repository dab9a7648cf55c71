package nova.flink;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;

/**
 * Writes results to a file on the sink's host, as 80-byte little-endian records: ints instance, left
 * source, right source, us the inputs waited
 * before the engine took one in; longs window (ms), left and right sequence number, left and right emit
 * time, arrival (us); doubles left and right value.
 */
public final class ResultSink extends RichSinkFunction<JoinResult> {
  private static final long serialVersionUID = 1L;
  private static final int RECORD = 80;
  private static final int BUFFER = 512 * RECORD;
  private static final long FLUSH_MS = 200;

  private final String path;
  // A FileChannel would be closed by the interrupt that cancels a task, with results in the buffer.
  private transient FileOutputStream file;
  private transient ByteBuffer buffer;
  private transient Thread flusher;
  private transient IOException failure;

  public ResultSink(String path) {
    this.path = path;
  }

  @Override
  public void open(OpenContext context) throws IOException {
    Path target = Path.of(path);
    if (target.getParent() != null) {
      Files.createDirectories(target.getParent());
    }
    file = new FileOutputStream(target.toFile());
    buffer = ByteBuffer.allocate(BUFFER).order(ByteOrder.LITTLE_ENDIAN);
    flusher = new Thread(this::flushNowAndThen, "nova-result-flusher");
    flusher.setDaemon(true);
    flusher.start();
  }

  @Override
  public void invoke(JoinResult result, Context context) throws IOException {
    long arriveUs = RealClock.nowUs();
    synchronized (this) {
      if (failure != null) {
        throw failure;
      }
      buffer.putInt(result.instance);
      buffer.putInt(result.leftSource);
      buffer.putInt(result.rightSource);
      buffer.putInt(result.waitedUs);
      buffer.putLong(result.windowMs);
      buffer.putLong(result.leftSequence);
      buffer.putLong(result.rightSequence);
      buffer.putLong(result.leftEmitUs);
      buffer.putLong(result.rightEmitUs);
      buffer.putLong(arriveUs);
      buffer.putDouble(result.leftValue);
      buffer.putDouble(result.rightValue);
      if (buffer.remaining() < RECORD) {
        flush();
      }
    }
  }

  private void flush() throws IOException {
    file.write(buffer.array(), 0, buffer.position());
    buffer.clear();
  }

  private void flushNowAndThen() {
    try {
      while (true) {
        Thread.sleep(FLUSH_MS);
        synchronized (this) {
          if (buffer.position() > 0) {
            flush();
          }
        }
      }
    } catch (InterruptedException end) {
      Thread.currentThread().interrupt();
    } catch (IOException error) {
      synchronized (this) {
        failure = error;
      }
    }
  }

  @Override
  public void close() throws Exception {
    if (flusher != null) {
      flusher.interrupt();
      flusher.join();
    }
    if (file != null) {
      try (FileOutputStream closing = file) {
        if (failure == null) {
          flush();
        }
      }
    }
  }
}
