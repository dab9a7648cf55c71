package nova.flink;

import nova.engines.Intervals;
import org.apache.flink.api.common.functions.FilterFunction;

/** Passes the tuples of some partitions. */
public final class PartitionFilter implements FilterFunction<SensorTuple> {
  private static final long serialVersionUID = 1L;

  private final Intervals partitions;

  /**
   * @param low begin of each interval, which belongs to it
   * @param high end of each interval, which does not
   */
  public PartitionFilter(double[] low, double[] high) {
    partitions = new Intervals(low, high);
  }

  @Override
  public boolean filter(SensorTuple tuple) {
    return holds(Intervals.place(tuple.sequence));
  }

  /** Whether a tuple of that place passes. */
  boolean holds(double place) {
    return partitions.hold(place);
  }
}
