package nova.flink;

import java.io.IOException;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.typeutils.ValueTypeInfo;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.types.CopyableValue;

/** What a source emits. Its event time is the record's timestamp. */
public final class SensorTuple implements CopyableValue<SensorTuple> {
  private static final int BYTES = 32;

  /** Index into the job's sources. */
  public int source;

  /** Number of the tuple in its stream, from 0. */
  public long sequence;

  /** When it was emitted, us since the epoch. */
  public long emitUs;

  /** How long after that a source of the engine took it in, us; 0 where that source emitted it. */
  public int waitedUs;

  /** What was measured. */
  public double value;

  public static TypeInformation<SensorTuple> type() {
    return new ValueTypeInfo<>(SensorTuple.class);
  }

  @Override
  public int getBinaryLength() {
    return BYTES;
  }

  @Override
  public void copyTo(SensorTuple target) {
    target.source = source;
    target.sequence = sequence;
    target.emitUs = emitUs;
    target.waitedUs = waitedUs;
    target.value = value;
  }

  @Override
  public SensorTuple copy() {
    SensorTuple target = new SensorTuple();
    copyTo(target);
    return target;
  }

  @Override
  public void copy(DataInputView from, DataOutputView to) throws IOException {
    to.write(from, BYTES);
  }

  @Override
  public void write(DataOutputView out) throws IOException {
    out.writeInt(source);
    out.writeLong(sequence);
    out.writeLong(emitUs);
    out.writeInt(waitedUs);
    out.writeDouble(value);
  }

  @Override
  public void read(DataInputView in) throws IOException {
    source = in.readInt();
    sequence = in.readLong();
    emitUs = in.readLong();
    waitedUs = in.readInt();
    value = in.readDouble();
  }
}
