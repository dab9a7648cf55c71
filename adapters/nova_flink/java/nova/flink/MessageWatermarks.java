package nova.flink;

import nova.engines.Watermarks;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkGeneratorSupplier;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;

/**
 * Watermarks of a source whose tuples come in order from elsewhere: a window has ended when a tuple
 * behind it has come.
 */
public final class MessageWatermarks<T> implements WatermarkStrategy<T> {
  private static final long serialVersionUID = 1L;

  private final long windowMs;
  private final long watermarkMs;

  /**
   * @param windowMs length of the windows
   * @param watermarkMs least distance of watermarks
   */
  public MessageWatermarks(long windowMs, long watermarkMs) {
    this.windowMs = windowMs;
    this.watermarkMs = watermarkMs;
  }

  @Override
  public WatermarkGenerator<T> createWatermarkGenerator(
      WatermarkGeneratorSupplier.Context context) {
    Watermarks watermarks = new Watermarks(windowMs, watermarkMs);
    return new WatermarkGenerator<>() {
      @Override
      public void onEvent(T tuple, long timeMs, WatermarkOutput output) {
        long mark = watermarks.reached(timeMs);
        if (mark != Long.MIN_VALUE) {
          output.emitWatermark(new Watermark(mark));
        }
      }

      @Override
      public void onPeriodicEmit(WatermarkOutput output) {}
    };
  }
}
