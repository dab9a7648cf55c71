package nova.engines;

import java.io.Serializable;

/**
 * When a watermark is worth its cost: at ends of windows, and no more often than asked for. In
 * between it would wake every operator after the source and close nothing.
 */
public final class Watermarks implements Serializable {
  private static final long serialVersionUID = 1L;
  private final long step;
  private long last = Long.MIN_VALUE;

  /**
   * @param windowMs length of the windows
   * @param watermarkMs least distance of watermarks
   */
  public Watermarks(long windowMs, long watermarkMs) {
    step = Math.max(windowMs, watermarkMs);
  }

  /**
   * The watermark to emit when every tuple before a time has been emitted, or Long.MIN_VALUE for
   * none.
   */
  public long reached(long timeMs) {
    long mark = timeMs / step * step - 1;
    if (mark <= last) {
      return Long.MIN_VALUE;
    }
    last = mark;
    return mark;
  }
}
