package nova.flink.query;

import java.io.IOException;
import nova.engines.query.ReadingTable;
import nova.flink.DeadLetters;
import org.apache.flink.api.common.eventtime.SerializableTimestampAssigner;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.util.Collector;

/**
 * Tuples with columns as messages of a broker, see {@link ReadingTable#ofMessage}. Any other message
 * is kept aside, or ends the job.
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
    out.row = ReadingTable.ofMessage(message, types, sequence);
    sequence++;
    return out;
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
