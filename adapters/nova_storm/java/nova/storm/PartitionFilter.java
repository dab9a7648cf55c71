package nova.storm;

import java.util.List;
import java.util.Map;
import nova.engines.Intervals;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Tuple;

/** Passes the tuples of some partitions. */
public final class PartitionFilter extends BaseRichBolt {
  private static final long serialVersionUID = 1L;

  private final Intervals partitions;
  private transient OutputCollector collector;
  private transient boolean works;

  /**
   * @param low begin of each interval, which belongs to it
   * @param high end of each interval, which does not
   */
  public PartitionFilter(List<Number> low, List<Number> high) {
    partitions = new Intervals(Schema.doubles(low), Schema.doubles(high));
  }

  @Override
  public void prepare(
      Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
    this.collector = collector;
    works = Control.first(conf, context);
  }

  @Override
  public void execute(Tuple tuple) {
    if (works
        && (Schema.isMark(tuple) || partitions.hold(Intervals.place(tuple.getLong(1))))) {
      collector.emit(tuple, tuple.getValues());
    }
    collector.ack(tuple);
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    declarer.declare(Schema.TUPLE);
  }
}
