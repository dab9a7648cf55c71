package nova.storm;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import nova.engines.PairResults;
import nova.engines.RealClock;
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
  private transient PairResults file;
  // Of every join: up to when all results of its windows have come.
  private transient Map<Integer, Long> marks;

  public ResultSink(String path) {
    this.path = path;
  }

  @Override
  public void prepare(
      Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
    this.collector = collector;
    marks = new HashMap<>();
    for (GlobalStreamId stream : context.getThisSources().keySet()) {
      for (int task : context.getComponentTasks(stream.get_componentId())) {
        marks.put(task, Long.MIN_VALUE);
      }
    }
    if (!Control.first(conf, context)) {
      return;
    }
    try {
      file = new PairResults(path, context.getStormId());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public void execute(Tuple tuple) {
    long arriveUs = RealClock.nowUs();
    if (file == null) {
      return;
    }
    try {
      if (Schema.isComplete(tuple)) {
        marks.merge(tuple.getSourceTask(), tuple.getLong(3), Math::max);
        long reached = Collections.min(marks.values());
        if (reached == Schema.END) {
          file.finish();
        } else if (reached != Long.MIN_VALUE) {
          file.complete(reached);
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
    if (file == null) {
      return;
    }
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
