package nova.storm.query;

import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.Serializer;
import com.esotericsoftware.kryo.io.Input;
import com.esotericsoftware.kryo.io.Output;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import nova.engines.query.Row;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;

/**
 * What components of queries send: a row, or a mark in band that says up to which time everything
 * has been sent. Storm takes an instance as the serializer of rows.
 */
public final class Rows extends Serializer<Row> {
  static final Fields FIELDS = new Fields("row", "mark");

  /** The last mark of a component. */
  static final long END = Long.MAX_VALUE;

  static Values values(Row row) {
    return new Values(row, null);
  }

  static Values mark(long timeMs) {
    return new Values(null, timeMs);
  }

  @Override
  public void write(Kryo kryo, Output output, Row row) {
    try {
      row.write(new DataOutputStream(output));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public Row read(Kryo kryo, Input input, Class<? extends Row> type) {
    try {
      return Row.read(new DataInputStream(input));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
