package nova.storm;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import nova.engines.RealClock;
import nova.engines.ResultFile;
import org.apache.storm.generated.GlobalStreamId;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Tuple;

/**
 * Writes results to a file on the sink's host. Nothing a bolt does ends a topology in failure: that
 * results cannot be written is told by a file beside theirs, and that all are there by another.
 */
public final class ResultSink extends BaseRichBolt {
  private static final long serialVersionUID = 1L;

  private final String path;
  private transient OutputCollector collector;
  private transient ResultFile file;
  private transient Set<Integer> running;

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
      file = new ResultFile(path, context.getStormId());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public void execute(Tuple tuple) {
    long arriveUs = RealClock.nowUs();
    try {
      if (Schema.isEnd(tuple)) {
        running.remove(tuple.getSourceTask());
        if (running.isEmpty()) {
          file.finish();
        }
      } else {
        file.add(
            tuple.getInteger(0),
            tuple.getInteger(1),
            tuple.getInteger(2),
            0,
            tuple.getLong(3),
            tuple.getLong(4),
            tuple.getLong(5),
            tuple.getLong(6),
            tuple.getLong(7),
            arriveUs,
            tuple.getDouble(8),
            tuple.getDouble(9));
      }
    } catch (IOException error) {
      collector.reportError(error);
      throw new UncheckedIOException(error);
    }
    collector.ack(tuple);
  }

  @Override
  public void cleanup() {
    try {
      file.close();
    } catch (IOException error) {
      collector.reportError(error);
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    // It is the last.
  }
}
