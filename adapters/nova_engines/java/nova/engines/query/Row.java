package nova.engines.query;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** A tuple of a query. Nothing changes it, so operators on one host may share it. */
public final class Row {
  /** Partial results of an aggregate, beside inputs 0 (left) and 1 (right). */
  public static final int PARTIAL = 2;

  private static final int INT = 0;
  private static final int FLOAT = 1;
  private static final int TEXT = 2;
  // Beside the input of what is not a reading.
  private static final int SPAN = 16;

  /** Which input of its consumer it is of. */
  public final int input;

  /** Event time, ms; of a result the last one of its window. */
  public final long timeMs;

  /** Number among what its operator emitted, from 0; it says which partition it is of. */
  public final long sequence;

  /** Of the readings that it is made of. */
  public final Span span;

  /** Long, Double or String each. */
  public final Object[] fields;

  public Row(int input, long timeMs, long sequence, Span span, Object[] fields) {
    this.input = input;
    this.timeMs = timeMs;
    this.sequence = sequence;
    this.span = span;
    this.fields = fields;
  }

  /** The same tuple as another input's. */
  public Row as(int other) {
    return other == input ? this : new Row(other, timeMs, sequence, span, fields);
  }

  /** The same tuple with other fields. */
  public Row with(Object[] others) {
    return new Row(input, timeMs, sequence, span, others);
  }

  public void write(DataOutput out) throws IOException {
    boolean single = span.single(timeMs);
    out.writeByte(single ? input : input | SPAN);
    out.writeLong(timeMs);
    out.writeLong(sequence);
    out.writeLong(span.newestUs);
    if (!single) {
      out.writeLong(span.newestMs);
      out.writeLong(span.oldestMs);
      out.writeLong(span.oldestUs);
    }
    out.writeShort(fields.length);
    for (Object field : fields) {
      if (field instanceof Long) {
        out.writeByte(INT);
        out.writeLong((Long) field);
      } else if (field instanceof Double) {
        out.writeByte(FLOAT);
        out.writeDouble((Double) field);
      } else {
        byte[] text = ((String) field).getBytes(StandardCharsets.UTF_8);
        out.writeByte(TEXT);
        out.writeInt(text.length);
        out.write(text);
      }
    }
  }

  public static Row read(DataInput in) throws IOException {
    int first = in.readByte();
    long timeMs = in.readLong();
    long sequence = in.readLong();
    long newestUs = in.readLong();
    Span span;
    if ((first & SPAN) == 0) {
      span = new Span(timeMs, newestUs);
    } else {
      long newestMs = in.readLong();
      span = new Span(in.readLong(), in.readLong(), newestMs, newestUs);
    }
    Object[] fields = new Object[in.readShort()];
    for (int i = 0; i < fields.length; i++) {
      int type = in.readByte();
      if (type == INT) {
        fields[i] = in.readLong();
      } else if (type == FLOAT) {
        fields[i] = in.readDouble();
      } else {
        byte[] text = new byte[in.readInt()];
        in.readFully(text);
        fields[i] = new String(text, StandardCharsets.UTF_8);
      }
    }
    return new Row(first & ~SPAN, timeMs, sequence, span, fields);
  }
}
