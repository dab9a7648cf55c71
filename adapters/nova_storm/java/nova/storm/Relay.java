package nova.storm;

import java.util.Map;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Tuple;

/** A hop of a route: passes on what it receives. */
public final class Relay extends BaseRichBolt {
  private static final long serialVersionUID = 1L;

  private final boolean results;
  private transient OutputCollector collector;
  private transient boolean works;

  /**
   * @param results whether results of joins pass, not tuples of sources
   */
  public Relay(boolean results) {
    this.results = results;
  }

  @Override
  public void prepare(
      Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
    this.collector = collector;
    works = Control.first(conf, context);
  }

  @Override
  public void execute(Tuple tuple) {
    if (works) {
      collector.emit(tuple, tuple.getValues());
    }
    collector.ack(tuple);
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    declarer.declare(results ? Schema.RESULT : Schema.TUPLE);
  }
}
