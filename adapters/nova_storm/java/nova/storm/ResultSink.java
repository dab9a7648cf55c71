package nova.storm;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.storm.generated.GlobalStreamId;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Tuple;

/**
 * Writes results to a file on the sink's host, as 80-byte little-endian records: ints instance, left
 * source, right source, 0; longs window (ms), left and right sequence number, left and right emit
 * time, arrival (us); doubles left and right value. A file PATH.end says that there will be no more.
 */
public final class ResultSink extends BaseRichBolt {
  private static final long serialVersionUID = 1L;
  private static final int RECORD = 80;
  private static final int BUFFER = 512 * RECORD;
  private static final long FLUSH_MS = 200;

  private final String path;
  private transient OutputCollector collector;
  private transient RandomAccessFile file;
  private transient ByteBuffer buffer;
  private transient Set<Integer> running;
  private transient Thread flusher;
  private transient IOException failure;

  public ResultSink(String path) {
    this.path = path;
  }

  @Override
  public void prepare(
      Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
    this.collector = collector;
    running = new HashSet<>();
    for (GlobalStreamId stream : context.getThisSources().keySet()) {
      running.addAll(context.getComponentTasks(stream.get_componentId()));
    }
    try {
      open(context.getStormId());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    buffer = ByteBuffer.allocate(BUFFER).order(ByteOrder.LITTLE_ENDIAN);
    flusher = new Thread(this::flushNowAndThen, "nova-result-flusher");
    flusher.setDaemon(true);
    flusher.start();
  }

  /** Goes on with the file of this topology where it has one: then Storm has started it again. */
  private void open(String topology) throws IOException {
    Path target = Path.of(path).toAbsolutePath();
    Path owner = Path.of(target + ".topology");
    Files.createDirectories(target.getParent());
    boolean again = Files.exists(owner) && Files.readString(owner).equals(topology);
    Files.deleteIfExists(Path.of(target + ".end"));
    file = new RandomAccessFile(target.toFile(), "rw");
    file.setLength(again ? file.length() / RECORD * RECORD : 0);
    file.seek(file.length());
    Files.writeString(owner, topology);
  }

  @Override
  public void execute(Tuple tuple) {
    long arriveUs = Clock.nowUs();
    try {
      synchronized (this) {
        if (failure != null) {
          throw failure;
        }
        if (Schema.isEnd(tuple)) {
          running.remove(tuple.getSourceTask());
          if (running.isEmpty()) {
            flush();
            Files.writeString(Path.of(path + ".end"), "");
          }
        } else {
          write(tuple, arriveUs);
        }
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    collector.ack(tuple);
  }

  private void write(Tuple tuple, long arriveUs) throws IOException {
    for (int field = 0; field < 3; field++) {
      buffer.putInt(tuple.getInteger(field));
    }
    buffer.putInt(0);
    for (int field = 3; field < 8; field++) {
      buffer.putLong(tuple.getLong(field));
    }
    buffer.putLong(arriveUs);
    buffer.putDouble(tuple.getDouble(8));
    buffer.putDouble(tuple.getDouble(9));
    if (buffer.remaining() < RECORD) {
      flush();
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
  public void cleanup() {
    flusher.interrupt();
    try {
      synchronized (this) {
        if (failure == null) {
          flush();
        }
        file.close();
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    // It is the last.
  }
}
