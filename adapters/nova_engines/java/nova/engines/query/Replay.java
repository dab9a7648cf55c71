package nova.engines.query;

/** Readings of a source, each when its event time has come, or as soon after as it is taken. */
public final class Replay {
  private final ReadingTable table;
  private final long firstMs;
  private final long startMs;
  private final double speed;
  private final long watermarkMs;
  private long sequence;
  private long marked = Long.MIN_VALUE;

  /**
   * @param readings as {@link ReadingTable} reads them
   * @param types of the columns
   * @param firstMs event time of the first reading of all sources
   * @param startMs when that is emitted, ms since the epoch
   * @param speed ms of event time per ms; 0 waits for nothing
   * @param watermarkMs watermarks are at its multiples
   */
  public Replay(
      byte[] readings,
      String[] types,
      long firstMs,
      long startMs,
      double speed,
      long watermarkMs) {
    this.table = new ReadingTable(readings, types);
    this.firstMs = firstMs;
    this.startMs = startMs;
    this.speed = speed;
    this.watermarkMs = watermarkMs;
  }

  /** Whether there is another reading. */
  public boolean more() {
    return table.more();
  }

  /** How long the next reading is not due yet, us; 0 or less where it is, or where there is none. */
  public long waitUs(long nowUs) {
    if (speed == 0 || !table.more()) {
      return 0;
    }
    return startMs * 1_000 + (long) ((table.time() - firstMs) * 1_000 / speed) - nowUs;
  }

  /** The next reading. */
  public Row next(long nowUs) {
    return table.next(sequence++, nowUs);
  }

  /** A new watermark, before which nothing will come any more; null where it is the last one's. */
  public Long mark(long nowUs) {
    // Nothing earlier than the next reading will come, and nothing that is not due yet.
    long reached = table.time();
    if (speed > 0) {
      reached = Math.min(reached, firstMs + (long) ((nowUs / 1e3 - startMs) * speed));
    }
    long mark = Math.floorDiv(reached, watermarkMs) * watermarkMs - 1;
    if (mark <= marked) {
      return null;
    }
    marked = mark;
    return mark;
  }

  /** How long a watermark is of use, us. */
  public long stepUs() {
    return speed == 0 ? 0 : Math.max(1_000, (long) (watermarkMs * 1_000 / speed));
  }
}
