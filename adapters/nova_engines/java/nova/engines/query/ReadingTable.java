package nova.engines.query;

import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * Readings of a source in the order of their event times, encoded one behind the other
 * (little-endian): the time in ms, then every column: 64 bits, or of a text its length in 32 bits
 * and its UTF-8.
 */
public final class ReadingTable {
  private final ByteBuffer bytes;
  private final String[] types;

  public ReadingTable(byte[] encoded, String[] types) {
    this(ByteBuffer.wrap(encoded), types);
  }

  /** Those from the position of a buffer on. */
  public ReadingTable(ByteBuffer encoded, String[] types) {
    this.bytes = encoded.order(ByteOrder.LITTLE_ENDIAN);
    this.types = types;
  }

  /**
   * The row of a broker's message: long us since the epoch when it was produced, little endian, then
   * the reading.
   *
   * @throws IOException where it is none
   */
  public static Row ofMessage(byte[] message, String[] types, long sequence) throws IOException {
    byte[] all = message == null ? new byte[0] : message;
    try {
      ByteBuffer bytes = ByteBuffer.wrap(all).order(ByteOrder.LITTLE_ENDIAN);
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
        "a message of " + all.length + " bytes: no tuple of " + types.length + " columns");
  }

  /** Whether there is another one. */
  public boolean more() {
    return bytes.hasRemaining();
  }

  /** Event time of the next one, ms. */
  public long time() {
    return bytes.getLong(bytes.position());
  }

  /** Passes over those before an event time, ms; how many these are. */
  public long skip(long timeMs) {
    long passed = 0;
    for (; more() && time() < timeMs; passed++) {
      bytes.getLong();
      for (String type : types) {
        int length = type.equals("text") ? bytes.getInt() : Long.BYTES;
        bytes.position(bytes.position() + length);
      }
    }
    return passed;
  }

  /**
   * The next one.
   *
   * @throws BufferUnderflowException where it is cut off
   */
  public Row next(long sequence, long emitUs) {
    long timeMs = bytes.getLong();
    Object[] fields = new Object[types.length];
    for (int i = 0; i < fields.length; i++) {
      switch (types[i]) {
        case "int":
          fields[i] = bytes.getLong();
          break;
        case "float":
          fields[i] = bytes.getDouble();
          break;
        default:
          int length = bytes.getInt();
          if (length < 0 || length > bytes.remaining()) {
            throw new BufferUnderflowException();
          }
          byte[] text = new byte[length];
          bytes.get(text);
          fields[i] = new String(text, StandardCharsets.UTF_8);
      }
    }
    return new Row(0, timeMs, sequence, new Span(timeMs, emitUs), fields);
  }
}
