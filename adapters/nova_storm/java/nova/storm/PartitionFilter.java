package nova.storm;

import java.util.List;
import java.util.Map;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Tuple;

/**
 * Passes the tuples of some partitions by the rule sequence-share: a tuple's sequence number times
 * 0x9E3779B97F4A7C15 modulo 2^64, divided by 2^64, has to lie in one of the given intervals.
 */
public final class PartitionFilter extends BaseRichBolt {
  private static final long serialVersionUID = 1L;
  private static final long STEP = 0x9E3779B97F4A7C15L;
  private static final double UNIT = 1.0 / (1L << 53);

  private final double[] low;
  private final double[] high;
  private transient OutputCollector collector;

  /**
   * @param low begin of each interval, which belongs to it
   * @param high end of each interval, which does not
   */
  public PartitionFilter(List<Number> low, List<Number> high) {
    this.low = low.stream().mapToDouble(Number::doubleValue).toArray();
    this.high = high.stream().mapToDouble(Number::doubleValue).toArray();
  }

  @Override
  public void prepare(
      Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
    this.collector = collector;
  }

  @Override
  public void execute(Tuple tuple) {
    if (Schema.isMark(tuple) || passes(tuple.getLong(1))) {
      collector.emit(tuple, tuple.getValues());
    }
    collector.ack(tuple);
  }

  /** Whether a tuple of that number passes. */
  public boolean passes(long sequence) {
    double u = ((sequence * STEP) >>> 11) * UNIT;
    for (int i = 0; i < low.length; i++) {
      if (low[i] <= u && u < high[i]) {
        return true;
      }
    }
    return false;
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    declarer.declare(Schema.TUPLE);
  }
}
