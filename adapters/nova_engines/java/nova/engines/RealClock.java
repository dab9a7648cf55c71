package nova.engines;

import java.time.Instant;

/** The real-time clock in microseconds. */
public final class RealClock {
  private RealClock() {}

  public static long nowUs() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000L + now.getNano() / 1_000;
  }
}
