package nova.flink.query;

import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import nova.engines.query.ReadingTable;
import nova.engines.query.Row;
import nova.flink.DeadLetters;
import org.apache.flink.api.common.eventtime.SerializableTimestampAssigner;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.util.Collector;

/**
 * Tuples with columns as messages of a broker: long us since the epoch when the tuple was produced,
 * little endian, then the tuple as {@link ReadingTable} reads it, with its event time. Any other
 * message is kept aside, or ends the job.
 */
public final class RowMessage
    implements DeserializationSchema<FlinkRow>, SerializableTimestampAssigner<FlinkRow> {
  private static final long serialVersionUID = 1L;

  private final int source;
  private final String[] types;
  private final boolean strict;
  private long sequence;
  private transient FlinkRow out;
  private transient DeadLetters unreadable;

  /**
   * @param source index into the job's sources
   * @param types of the columns
   * @param strict whether a message that is no tuple ends the job
   */
  public RowMessage(int source, String[] types, boolean strict) {
    this.source = source;
    this.types = types;
    this.strict = strict;
  }

  @Override
  public void open(InitializationContext context) {
    unreadable = new DeadLetters(source, context.getMetricGroup());
  }

  @Override
  public void deserialize(byte[] message, Collector<FlinkRow> collector) throws IOException {
    byte[] bytes = message == null ? new byte[0] : message;
    FlinkRow row;
    try {
      row = deserialize(bytes);
    } catch (IOException error) {
      if (strict) {
        throw new IOException("source " + source + ": " + error.getMessage());
      }
      unreadable.add(error.getMessage(), bytes);
      return;
    }
    collector.collect(row);
  }

  @Override
  public FlinkRow deserialize(byte[] message) throws IOException {
    if (out == null) {
      out = new FlinkRow();
    }
    out.row = read(message);
    sequence++;
    return out;
  }

  private Row read(byte[] message) throws IOException {
    try {
      ByteBuffer bytes = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
      long producedUs = bytes.getLong();
      ReadingTable table = new ReadingTable(bytes, types);
      Row row = table.next(sequence, producedUs);
      if (!table.more()) {
        return row;
      }
    } catch (BufferUnderflowException tooShort) {
      // said below
    }
    throw new IOException(
        "a message of " + message.length + " bytes: no tuple of " + types.length + " columns");
  }

  @Override
  public long extractTimestamp(FlinkRow row, long sentMs) {
    return row.row.timeMs;
  }

  @Override
  public boolean isEndOfStream(FlinkRow next) {
    return false;
  }

  @Override
  public TypeInformation<FlinkRow> getProducedType() {
    return FlinkRow.type();
  }
}
