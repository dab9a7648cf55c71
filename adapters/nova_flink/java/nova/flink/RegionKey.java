package nova.flink;

import org.apache.flink.api.java.functions.KeySelector;

/** The region of a tuple. An instance of a join has one, so that every tuple it gets is of it. */
public final class RegionKey implements KeySelector<SensorTuple, Integer> {
  private static final long serialVersionUID = 1L;

  @Override
  public Integer getKey(SensorTuple tuple) {
    return 0;
  }
}
