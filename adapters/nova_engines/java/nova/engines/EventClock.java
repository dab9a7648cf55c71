package nova.engines;

import java.io.Serializable;

/**
 * When event times are: both run on from a moment, event time {@code speed} times as fast. The same
 * as Python's nova_engines.sources.Clock.
 */
public final class EventClock implements Serializable {
  private static final long serialVersionUID = 1L;

  private final long firstMs;
  private final long startMs;
  private final double speed;

  /**
   * @param firstMs event time, ms
   * @param startMs when that is, ms since the epoch
   * @param speed ms of event time per ms; 0 for event times that are all there at once
   */
  public EventClock(long firstMs, long startMs, double speed) {
    this.firstMs = firstMs;
    this.startMs = startMs;
    this.speed = speed;
  }

  /** ms of event time per ms. */
  public double speed() {
    return speed;
  }

  /** Event time, ms, at a time in us since the epoch; of speed 0 the latest there is. */
  public long eventMs(long nowUs) {
    if (speed == 0) {
      return Long.MAX_VALUE;
    }
    return firstMs + (long) Math.floor((nowUs / 1e3 - startMs) * speed);
  }

  /** When an event time is, us since the epoch; of speed 0 long ago. */
  public long dueUs(long eventMs) {
    if (speed == 0) {
      return Long.MIN_VALUE;
    }
    return startMs * 1_000 + (long) ((eventMs - firstMs) * 1_000 / speed);
  }
}
