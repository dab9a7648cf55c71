package nova.flink;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketException;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import nova.engines.RealClock;
import nova.engines.Watermarks;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.functions.source.legacy.RichSourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;

/**
 * Reads tuples from a TCP connection, a line each, as {@code nova workload replay} sends them in CSV:
 * sensor, region, stream, sequence, time_ms, value, a partition or none, emit_us. Flink's own
 * SocketTextStreamFunction fails when nobody listens yet, and takes a line cut short for a whole one.
 * A line that is no tuple of this source is kept aside, or ends the job.
 */
public final class SocketSource extends RichSourceFunction<SensorTuple> {
  private static final long serialVersionUID = 1L;
  private static final String CELL = "(\"(?:[^\"]|\"\")*\"|[^\",]*),";
  private static final Pattern LINE =
      Pattern.compile(
          CELL.repeat(3)
              + "(\\d+),(\\d+),(-?[\\d.]+(?:[eE][-+]?\\d+)?),(?:[\\d|]+,)?(\\d+)\r?");
  private static final int LONGEST = 1 << 16;
  private static final int QUOTED = 80;
  private static final long RETRY_MS = 200;

  private final int source;
  private final String sensor;
  private final String stream;
  private final String host;
  private final int port;
  private final long connectMs;
  private final long count;
  private final long windowMs;
  private final Watermarks watermarks;
  private final boolean strict;
  private transient DeadLetters unreadable;
  private long came;
  private long lineNumber;
  private long mark = Long.MIN_VALUE;
  private volatile boolean running = true;
  private transient volatile Socket connection;

  /**
   * @param source index into the job's sources
   * @param sensor whose tuples come: the sensor's name, or that and the stream's, joined by "-"
   * @param stream the logical stream, or empty for any
   * @param host to connect to
   * @param port to connect to
   * @param connectMs for how long to try
   * @param count tuples in all, or a negative number for no end
   * @param windowMs length of the windows
   * @param watermarkMs least distance of watermarks
   * @param strict whether a line that is no tuple of this source ends the job
   */
  public SocketSource(
      int source,
      String sensor,
      String stream,
      String host,
      int port,
      long connectMs,
      long count,
      long windowMs,
      long watermarkMs,
      boolean strict) {
    this.source = source;
    this.sensor = sensor;
    this.stream = stream;
    this.host = host;
    this.port = port;
    this.connectMs = connectMs;
    this.count = count;
    this.windowMs = windowMs;
    this.watermarks = new Watermarks(windowMs, watermarkMs);
    this.strict = strict;
  }

  @Override
  public void open(OpenContext context) {
    unreadable = new DeadLetters(source, getRuntimeContext().getMetricGroup());
  }

  @Override
  public void close() {
    if (unreadable != null) {
      unreadable.close();
    }
  }

  @Override
  public void run(SourceContext<SensorTuple> context) throws IOException, InterruptedException {
    SensorTuple tuple = new SensorTuple();
    tuple.source = source;
    while (running && came != count) {
      try (Socket opened = connect()) {
        connection = opened;
        read(opened.getInputStream(), tuple, context);
      } catch (SocketException error) {
        if (running) {
          throw failure("after " + came + " tuples: " + error);
        }
      }
      if (running && came != count) {
        // The other side has closed before the last tuple: it may be starting anew.
        Thread.sleep(RETRY_MS);
      }
    }
  }

  private Socket connect() throws IOException, InterruptedException {
    long until = System.nanoTime() + connectMs * 1_000_000;
    while (true) {
      // A last attempt has time enough to be told why it fails.
      long leftMs = Math.max(RETRY_MS, (until - System.nanoTime()) / 1_000_000);
      Socket opened = new Socket();
      try {
        opened.connect(new InetSocketAddress(host, port), (int) leftMs);
        return opened;
      } catch (IOException error) {
        opened.close();
        if (!running || System.nanoTime() >= until) {
          String tried = "cannot connect for " + connectMs / 1e3 + " s: " + error;
          throw failure(tried + "; " + came + (count < 0 ? "" : " of " + count) + " tuples came");
        }
      }
      Thread.sleep(RETRY_MS);
    }
  }

  private void read(InputStream stream, SensorTuple tuple, SourceContext<SensorTuple> context)
      throws IOException {
    InputStream in = new BufferedInputStream(stream, LONGEST);
    ByteArrayOutputStream line = new ByteArrayOutputStream();
    boolean tooLong = false;
    lineNumber = 1;
    while (running && came != count) {
      int next = in.read();
      if (next == '\n') {
        if (tooLong) {
          refuse(" is longer than " + LONGEST + " bytes", line);
        } else {
          emit(line, tuple, context);
        }
        line.reset();
        tooLong = false;
        lineNumber++;
      } else if (next < 0) {
        if (line.size() > 0) {
          refuse(" is cut short", line);
          // It did not come in full, and may come again.
          came--;
        }
        return;
      } else if (line.size() == LONGEST) {
        tooLong = true;
      } else {
        line.write(next);
      }
    }
  }

  private void refuse(String why, ByteArrayOutputStream line) throws IOException {
    String reason = "line " + lineNumber + why;
    if (strict) {
      throw failure(reason);
    }
    unreadable.add(failure(reason).getMessage(), line.toByteArray());
    came++;
  }

  private void emit(
      ByteArrayOutputStream bytes, SensorTuple tuple, SourceContext<SensorTuple> context)
      throws IOException {
    String line = bytes.toString(StandardCharsets.UTF_8);
    Matcher cells = LINE.matcher(line);
    long timeMs;
    try {
      if (!cells.matches()) {
        throw new NumberFormatException();
      }
      tuple.sequence = Long.parseLong(cells.group(4));
      timeMs = Long.parseLong(cells.group(5));
      tuple.value = Double.parseDouble(cells.group(6));
      tuple.emitUs = Long.parseLong(cells.group(7));
    } catch (NumberFormatException error) {
      String quoted = line.substring(0, Math.min(line.length(), QUOTED));
      refuse(": no tuple: '" + quoted + "'", bytes);
      return;
    }
    String from = unquoted(cells.group(1));
    String of = unquoted(cells.group(3));
    boolean named = from.equals(sensor) && (stream.isEmpty() || of.equals(stream));
    if (!named && !(from + "-" + of).equals(sensor)) {
      refuse(": a tuple of '" + from + "' (" + of + ")", bytes);
      return;
    }
    if ((timeMs / windowMs + 1) * windowMs - 1 <= mark) {
      // Flink would drop it without a word.
      refuse(": time_ms " + timeMs + ": its window has ended", bytes);
      return;
    }
    tuple.waitedUs = (int) Math.min(RealClock.nowUs() - tuple.emitUs, Integer.MAX_VALUE);
    synchronized (context.getCheckpointLock()) {
      context.collectWithTimestamp(tuple, timeMs);
      came++;
      long reached = watermarks.reached(timeMs);
      if (reached != Long.MIN_VALUE) {
        mark = reached;
        context.emitWatermark(new Watermark(mark));
      }
    }
  }

  private static String unquoted(String cell) {
    return cell.startsWith("\"")
        ? cell.substring(1, cell.length() - 1).replace("\"\"", "\"")
        : cell;
  }

  private IOException failure(String reason) {
    String whose = "source of '" + sensor + "'" + (stream.isEmpty() ? "" : " (" + stream + ")");
    return new IOException(whose + ": " + host + ":" + port + ": " + reason);
  }

  @Override
  public void cancel() {
    running = false;
    Socket opened = connection;
    if (opened != null) {
      try {
        opened.close();
      } catch (IOException error) {
        // It is gone, which is what was wanted.
      }
    }
  }
}
