package nova.storm;

import java.time.Instant;

/** The real-time clock in microseconds. */
final class Clock {
  private Clock() {}

  static long nowUs() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000L + now.getNano() / 1_000;
  }
}
