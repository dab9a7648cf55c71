package nova.flink;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Map;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;

/**
 * Tuples as messages of a broker, 24 bytes, little endian: long sequence number, long us since the
 * epoch when the tuple was produced, double value. A message's timestamp is the tuple's event time.
 */
public final class TupleMessage implements DeserializationSchema<SensorTuple> {
  private static final long serialVersionUID = 1L;

  private final int source;
  private transient SensorTuple tuple;

  /**
   * @param source index into the workload's sources
   */
  public TupleMessage(int source) {
    this.source = source;
  }

  /** The offset before which to stop: Python has no way to say that a number is a Long. */
  public static Map<Object, Long> until(Object partition, long offset) {
    return Map.of(partition, offset);
  }

  @Override
  public SensorTuple deserialize(byte[] message) {
    if (tuple == null) {
      tuple = new SensorTuple();
      tuple.source = source;
    }
    ByteBuffer bytes = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
    tuple.sequence = bytes.getLong();
    tuple.emitUs = bytes.getLong();
    tuple.value = bytes.getDouble();
    tuple.waitedUs = (int) Math.min(RealClock.nowUs() - tuple.emitUs, Integer.MAX_VALUE);
    return tuple;
  }

  @Override
  public boolean isEndOfStream(SensorTuple next) {
    return false;
  }

  @Override
  public TypeInformation<SensorTuple> getProducedType() {
    return SensorTuple.type();
  }
}
