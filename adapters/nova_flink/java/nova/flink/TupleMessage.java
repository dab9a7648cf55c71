package nova.flink;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Map;
import nova.engines.RealClock;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.util.Collector;

/**
 * Tuples as messages of a broker, 24 bytes, little endian: long sequence number, long us since the
 * epoch when the tuple was produced, double value. A message's timestamp is the tuple's event time.
 * Any other message is kept aside, or ends the job.
 */
public final class TupleMessage implements DeserializationSchema<SensorTuple> {
  private static final long serialVersionUID = 1L;

  private static final int BYTES = 24;

  private final int source;
  private final boolean strict;
  private transient SensorTuple tuple;
  private transient DeadLetters unreadable;

  /**
   * @param source index into the job's sources
   * @param strict whether a message that is no tuple ends the job
   */
  public TupleMessage(int source, boolean strict) {
    this.source = source;
    this.strict = strict;
  }

  @Override
  public void open(InitializationContext context) {
    unreadable = new DeadLetters(source, context.getMetricGroup());
  }

  @Override
  public void deserialize(byte[] message, Collector<SensorTuple> out) throws IOException {
    byte[] bytes = message == null ? new byte[0] : message;
    String wrong = complaint(bytes);
    if (wrong == null) {
      out.collect(deserialize(bytes));
    } else if (strict) {
      throw new IOException("source " + source + ": " + wrong);
    } else {
      unreadable.add(wrong, bytes);
    }
  }

  private static String complaint(byte[] message) {
    if (message.length != BYTES) {
      return "a message of " + message.length + " bytes: a tuple has " + BYTES;
    }
    long sequence = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN).getLong();
    return sequence < 0 ? "sequence number " + sequence + ": a tuple's is 0 or more" : null;
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
