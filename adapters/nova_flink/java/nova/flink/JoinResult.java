package nova.flink;

import java.io.IOException;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.typeutils.ValueTypeInfo;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.types.CopyableValue;

/** A pair of tuples that match, and the instance that found it. */
public final class JoinResult implements CopyableValue<JoinResult> {
  private static final int BYTES = 72;

  /** Index into the flow's joins. */
  public int instance;

  public int leftSource;
  public int rightSource;

  /** From when the earlier of the two was emitted to when the first of them was taken in, us. */
  public int waitedUs;

  /** Begin of the window, ms since the epoch. */
  public long windowMs;

  public long leftSequence;
  public long rightSequence;
  public long leftEmitUs;
  public long rightEmitUs;
  public double leftValue;
  public double rightValue;

  public static TypeInformation<JoinResult> type() {
    return new ValueTypeInfo<>(JoinResult.class);
  }

  @Override
  public int getBinaryLength() {
    return BYTES;
  }

  @Override
  public void copyTo(JoinResult target) {
    target.instance = instance;
    target.leftSource = leftSource;
    target.rightSource = rightSource;
    target.waitedUs = waitedUs;
    target.windowMs = windowMs;
    target.leftSequence = leftSequence;
    target.rightSequence = rightSequence;
    target.leftEmitUs = leftEmitUs;
    target.rightEmitUs = rightEmitUs;
    target.leftValue = leftValue;
    target.rightValue = rightValue;
  }

  @Override
  public JoinResult copy() {
    JoinResult target = new JoinResult();
    copyTo(target);
    return target;
  }

  @Override
  public void copy(DataInputView from, DataOutputView to) throws IOException {
    to.write(from, BYTES);
  }

  @Override
  public void write(DataOutputView out) throws IOException {
    out.writeInt(instance);
    out.writeInt(leftSource);
    out.writeInt(rightSource);
    out.writeInt(waitedUs);
    out.writeLong(windowMs);
    out.writeLong(leftSequence);
    out.writeLong(rightSequence);
    out.writeLong(leftEmitUs);
    out.writeLong(rightEmitUs);
    out.writeDouble(leftValue);
    out.writeDouble(rightValue);
  }

  @Override
  public void read(DataInputView in) throws IOException {
    instance = in.readInt();
    leftSource = in.readInt();
    rightSource = in.readInt();
    waitedUs = in.readInt();
    windowMs = in.readLong();
    leftSequence = in.readLong();
    rightSequence = in.readLong();
    leftEmitUs = in.readLong();
    rightEmitUs = in.readLong();
    leftValue = in.readDouble();
    rightValue = in.readDouble();
  }
}
