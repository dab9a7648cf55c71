package nova.engines.query;

/** Rows of a source, one after the other. */
public interface RowSource extends AutoCloseable {
  /** Whether there is another row, or will be. */
  boolean more();

  /** For how long the next row will not be there, us; 0 or less where it is. */
  long waitUs(long nowUs);

  /** The next row, which is there; null where what has come is none. */
  Row next(long nowUs);

  /** A new watermark, before which nothing will come any more; null where it is the last one's. */
  Long mark(long nowUs);

  /** How long a source that emits nothing may rest, us. */
  long stepUs();

  @Override
  default void close() {}
}
