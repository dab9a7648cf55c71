package nova.storm.query;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import nova.engines.EventClock;
import nova.engines.Orders;
import nova.engines.RealClock;
import nova.engines.query.Replay;
import nova.storm.Control;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichSpout;

/** Replays readings, which are part of the topology from when it is submitted. */
public final class RowSpout extends BaseRichSpout {
  private static final long serialVersionUID = 1L;
  // Storm sends what it has, and stops spouts, between two calls.
  private static final int AT_ONCE = 200;

  private final int source;
  private final byte[] readings;
  private final String[] types;
  private final EventClock clock;
  private final long watermarkMs;
  private final long lastMs;

  private transient SpoutOutputCollector collector;
  private transient Replay replay;
  private transient boolean ended;

  /**
   * See {@link Replay} and {@link EventClock}.
   *
   * @param source its index
   * @param path file of the readings, where the topology is submitted
   */
  public RowSpout(
      int source,
      String path,
      List<String> types,
      long firstMs,
      long startMs,
      double speed,
      long watermarkMs,
      long lastMs) {
    try {
      this.readings = Files.readAllBytes(Path.of(path));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    this.source = source;
    this.types = types.toArray(new String[0]);
    this.clock = new EventClock(firstMs, startMs, speed);
    this.watermarkMs = watermarkMs;
    this.lastMs = lastMs;
  }

  @Override
  public void open(
      Map<String, Object> conf, TopologyContext context, SpoutOutputCollector collector) {
    this.collector = collector;
    Orders orders = Control.orders(conf, context, source);
    replay = new Replay(readings, types, clock, watermarkMs, orders, lastMs);
    ended = !Control.first(conf, context);
  }

  @Override
  public void nextTuple() {
    long nowUs = RealClock.nowUs();
    if (ended || !begun(nowUs)) {
      return;
    }
    for (int i = 0; i < AT_ONCE && replay.waitUs(nowUs) <= 0; i++) {
      collector.emit(Rows.values(replay.next(nowUs)));
    }
    ended = replay.ended(nowUs);
    Long mark = ended ? Long.valueOf(Rows.END) : replay.mark(nowUs);
    if (mark != null) {
      collector.emit(Rows.mark(mark));
    }
  }

  private boolean begun(long nowUs) {
    try {
      return replay.begun(nowUs);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    declarer.declare(Rows.FIELDS);
  }
}
