package nova.engines.query;

import java.io.IOException;
import nova.engines.EventClock;
import nova.engines.Orders;

/**
 * Readings of a source, each when its event time has come, or as soon after as it is taken.
 *
 * <p>One that takes orders ({@link Orders}) emits nothing before it is told when to begin. Its
 * readings have the numbers they would have without, so that two jobs that share a source's time
 * emit together what one would have emitted. It does not end with its own readings but with the
 * last ones of all sources, as it has to answer until then.
 */
public final class Replay implements RowSource {
  private static final long LOOK_US = 100_000;
  private static final long NEVER = Long.MAX_VALUE;

  private final ReadingTable table;
  // Passes over readings when they are due, to count them; only with orders.
  private final ReadingTable due;
  private final EventClock clock;
  private final long watermarkMs;
  private final Orders orders;
  private final long lastMs;
  private long sequence;
  private long marked = Long.MIN_VALUE;
  private long emittedMs = Long.MIN_VALUE;
  private long lookUs = Long.MIN_VALUE;
  private long dueCount;
  private boolean begun;

  /**
   * @param readings as {@link ReadingTable} reads them
   * @param types of the columns
   * @param clock when they are due; one of speed 0 waits for nothing
   * @param watermarkMs watermarks are at its multiples
   * @param orders to the source; null where it takes none
   * @param lastMs event time of the last reading of all sources; of use with orders only
   */
  public Replay(
      byte[] readings,
      String[] types,
      EventClock clock,
      long watermarkMs,
      Orders orders,
      long lastMs) {
    this.table = new ReadingTable(readings, types);
    this.due = orders == null ? null : new ReadingTable(readings, types);
    this.clock = clock;
    this.watermarkMs = watermarkMs;
    this.orders = orders;
    this.lastMs = lastMs;
    this.begun = orders == null;
  }

  /** Looks for orders now and then; whether the source may emit. */
  public boolean begun(long nowUs) throws IOException {
    if (orders == null || nowUs < lookUs) {
      return begun;
    }
    lookUs = nowUs + LOOK_US;
    orders.look(emittedMs);
    if (!begun && orders.beginMs() != Orders.NONE) {
      sequence = table.skip(orders.beginMs());
      begun = true;
    }
    if (begun) {
      dueCount += due.skip(clock.eventMs(nowUs) + 1);
      orders.arrived(dueCount, nowUs / 1_000);
    }
    return begun;
  }

  /** Whether there is another reading. */
  @Override
  public boolean more() {
    return table.more();
  }

  /** Whether nothing more will be emitted. */
  public boolean ended(long nowUs) {
    if (orders == null) {
      return !more();
    }
    long nowMs = clock.eventMs(nowUs);
    long endMs = orders.endMs();
    if (endMs != Orders.NONE && (!more() || table.time() >= endMs)) {
      // Another end may be ordered before this one is final.
      return begun && orders.committed() && nowMs >= endMs;
    }
    return begun && !more() && nowMs > lastMs;
  }

  /** How long the next reading is not due yet, us; 0 or less where it is. */
  @Override
  public long waitUs(long nowUs) {
    if (!more() || (orders != null && table.time() >= orders.endMs())) {
      return NEVER;
    }
    return clock.speed() == 0 ? 0 : clock.dueUs(table.time()) - nowUs;
  }

  /** The next reading. */
  @Override
  public Row next(long nowUs) {
    emittedMs = table.time();
    return table.next(sequence++, nowUs);
  }

  /** A new watermark, before which nothing will come any more; null where it is the last one's. */
  @Override
  public Long mark(long nowUs) {
    // Nothing earlier than the next reading will come, and nothing that is not due yet.
    long reached = clock.eventMs(nowUs);
    if (more()) {
      reached = Math.min(reached, table.time());
    }
    long mark = Math.floorDiv(reached, watermarkMs) * watermarkMs - 1;
    if (mark <= marked) {
      return null;
    }
    marked = mark;
    return mark;
  }

  /** How long a source that emits nothing may rest, us: a watermark is of use, or orders may come. */
  @Override
  public long stepUs() {
    double speed = clock.speed();
    long stepUs = speed == 0 ? 0 : Math.max(1_000, (long) (watermarkMs * 1_000 / speed));
    return begun ? Math.min(stepUs, LOOK_US) : LOOK_US;
  }
}
