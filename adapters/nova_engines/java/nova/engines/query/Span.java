package nova.engines.query;

/**
 * Of the readings that a tuple is made of, the oldest and the newest: their event times (ms), and
 * when they were emitted (us since the epoch).
 */
public final class Span {
  public final long oldestMs;
  public final long oldestUs;
  public final long newestMs;
  public final long newestUs;

  public Span(long oldestMs, long oldestUs, long newestMs, long newestUs) {
    this.oldestMs = oldestMs;
    this.oldestUs = oldestUs;
    this.newestMs = newestMs;
    this.newestUs = newestUs;
  }

  /** Of a reading. */
  public Span(long timeMs, long emitUs) {
    this(timeMs, emitUs, timeMs, emitUs);
  }

  /** Of all readings of both; this one, where the other one adds none at either end. */
  public Span and(Span other) {
    boolean older = less(other.oldestMs, other.oldestUs, oldestMs, oldestUs);
    boolean newer = less(newestMs, newestUs, other.newestMs, other.newestUs);
    if (!older && !newer) {
      return this;
    }
    return new Span(
        older ? other.oldestMs : oldestMs,
        older ? other.oldestUs : oldestUs,
        newer ? other.newestMs : newestMs,
        newer ? other.newestUs : newestUs);
  }

  private static boolean less(long ms, long us, long otherMs, long otherUs) {
    return ms < otherMs || (ms == otherMs && us < otherUs);
  }

  /** Whether it is that of a reading of this event time. */
  boolean single(long timeMs) {
    return oldestMs == timeMs && newestMs == timeMs && oldestUs == newestUs;
  }
}
