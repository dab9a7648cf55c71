package nova.engines;

import java.io.IOException;

/** Results of pairs: two tuples of a window each, 80 bytes. */
public final class PairResults extends ResultFile {
  private static final String[] FIELDS = {
    "left_source",
    "right_source",
    "left_sequence",
    "right_sequence",
    "left_emit_us",
    "right_emit_us",
    "left_value",
    "right_value"
  };
  private static final String[] TYPES = {"i4", "i4", "i8", "i8", "i8", "i8", "f8", "f8"};

  /** See {@link ResultFile}. */
  public PairResults(String path, String job) throws IOException {
    super(path, job, FIELDS, TYPES);
  }

  /** Adds a result. */
  public synchronized void add(
      int instance,
      int left,
      int right,
      int waitedUs,
      long windowMs,
      long leftSequence,
      long rightSequence,
      long leftEmitUs,
      long rightEmitUs,
      long arriveUs,
      double leftValue,
      double rightValue)
      throws IOException {
    begin(instance, waitedUs, windowMs, arriveUs)
        .putInt(left)
        .putInt(right)
        .putLong(leftSequence)
        .putLong(rightSequence)
        .putLong(leftEmitUs)
        .putLong(rightEmitUs)
        .putDouble(leftValue)
        .putDouble(rightValue);
  }
}
