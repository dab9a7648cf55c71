package nova.storm.query;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import nova.engines.RealClock;
import nova.engines.query.Replay;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichSpout;

/** Replays readings, which are part of the topology from when it is submitted. */
public final class RowSpout extends BaseRichSpout {
  private static final long serialVersionUID = 1L;
  // Storm sends what it has, and stops spouts, between two calls.
  private static final int AT_ONCE = 200;

  private final byte[] readings;
  private final String[] types;
  private final long firstMs;
  private final long startMs;
  private final double speed;
  private final long watermarkMs;

  private transient SpoutOutputCollector collector;
  private transient Replay replay;
  private transient boolean ended;

  /**
   * See {@link Replay}.
   *
   * @param path file of the readings, where the topology is submitted
   */
  public RowSpout(
      String path, List<String> types, long firstMs, long startMs, double speed, long watermarkMs) {
    try {
      this.readings = Files.readAllBytes(Path.of(path));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    this.types = types.toArray(new String[0]);
    this.firstMs = firstMs;
    this.startMs = startMs;
    this.speed = speed;
    this.watermarkMs = watermarkMs;
  }

  @Override
  public void open(
      Map<String, Object> conf, TopologyContext context, SpoutOutputCollector collector) {
    this.collector = collector;
    replay = new Replay(readings, types, firstMs, startMs, speed, watermarkMs);
  }

  @Override
  public void nextTuple() {
    if (ended) {
      return;
    }
    long nowUs = RealClock.nowUs();
    for (int i = 0; i < AT_ONCE && replay.more() && replay.waitUs(nowUs) <= 0; i++) {
      collector.emit(Rows.values(replay.next(nowUs)));
    }
    Long mark = replay.more() ? replay.mark(nowUs) : Long.valueOf(Rows.END);
    if (mark != null) {
      collector.emit(Rows.mark(mark));
    }
    ended = !replay.more();
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    declarer.declare(Rows.FIELDS);
  }
}
