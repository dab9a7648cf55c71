package nova.engines;

import java.io.Closeable;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/**
 * Texts that records name by where they begin: each is its length in bytes (int, little endian) and
 * UTF-8. A text that came lately is not written again.
 */
final class TextFile implements Closeable {
  // A power of two.
  private static final int RECENT = 4096;
  // Longer ones are not kept in memory.
  private static final int KEPT = 1024;
  private static final int BUFFER = 65_536;

  private final RandomAccessFile file;
  private final ByteBuffer buffer = ByteBuffer.allocate(BUFFER).order(ByteOrder.LITTLE_ENDIAN);
  private final String[] recent = new String[RECENT];
  private final long[] begins = new long[RECENT];
  // Where the buffer's content begins in the file.
  private long written;

  TextFile(Path path) throws IOException {
    file = new RandomAccessFile(path.toFile(), "rw");
    written = file.length();
    file.seek(written);
  }

  /** Where a text begins. */
  long add(String text) throws IOException {
    int hash = text.hashCode();
    int slot = (hash ^ hash >>> 16) & RECENT - 1;
    if (text.equals(recent[slot])) {
      return begins[slot];
    }
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    if (buffer.remaining() < Integer.BYTES) {
      flush();
    }
    long begin = written + buffer.position();
    buffer.putInt(bytes.length);
    if (buffer.remaining() < bytes.length) {
      flush();
    }
    if (bytes.length <= buffer.capacity()) {
      buffer.put(bytes);
    } else {
      file.write(bytes);
      written += bytes.length;
    }
    if (text.length() <= KEPT) {
      recent[slot] = text;
      begins[slot] = begin;
    }
    return begin;
  }

  void flush() throws IOException {
    file.write(buffer.array(), 0, buffer.position());
    written += buffer.position();
    buffer.clear();
  }

  void sync() throws IOException {
    file.getFD().sync();
  }

  @Override
  public void close() throws IOException {
    file.close();
  }
}
