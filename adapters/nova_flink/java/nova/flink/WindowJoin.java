package nova.flink;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.TwoInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.TaskOutputs;

/**
 * Joins two streams over tumbling windows of event time, when the windows end: tuples of one window
 * match when their sequence numbers are equal modulo the number of keys.
 *
 * <p>Flink's own window joins keep a state entry and set a timer for every key of every window, which
 * at one match per tuple costs several times what the rest of the dataflow does.
 */
public final class WindowJoin extends AbstractStreamOperator<JoinResult>
    implements TwoInputStreamOperator<SensorTuple, SensorTuple, JoinResult> {
  private static final long serialVersionUID = 1L;

  private final long windowMs;
  private final long keys;
  private final int instance;

  private transient TreeMap<Long, Window> windows;
  private transient Window latest;
  private transient StreamRecord<JoinResult> output;
  private transient long closed;

  private static final class Window {
    final long begin;
    final List<SensorTuple> left = new ArrayList<>();
    final List<SensorTuple> right = new ArrayList<>();

    Window(long begin) {
      this.begin = begin;
    }
  }

  /**
   * @param instance index into the dataflow's joins
   * @param windowMs length of the windows, which begin at its multiples
   * @param keys modulus of sequence numbers
   */
  public WindowJoin(int instance, long windowMs, long keys) {
    this.instance = instance;
    this.windowMs = windowMs;
    this.keys = keys;
  }

  @Override
  public void open() throws Exception {
    super.open();
    windows = new TreeMap<>();
    closed = Long.MIN_VALUE;
    JoinResult result = new JoinResult();
    result.instance = instance;
    output = new StreamRecord<>(result);
  }

  @Override
  public void processElement1(StreamRecord<SensorTuple> record) {
    window(record.getTimestamp()).left.add(record.getValue());
  }

  @Override
  public void processElement2(StreamRecord<SensorTuple> record) {
    window(record.getTimestamp()).right.add(record.getValue());
  }

  private Window window(long timeMs) {
    long begin = timeMs - timeMs % windowMs;
    if (latest != null && latest.begin == begin) {
      return latest;
    }
    if (begin + windowMs - 1 <= closed) {
      // Its results would be lost without a word.
      throw new IllegalStateException(
          "a tuple of time " + timeMs + " came after the watermark " + closed);
    }
    latest = windows.computeIfAbsent(begin, Window::new);
    return latest;
  }

  /** Ends windows, and sends off what they gave. */
  @Override
  public void processWatermark(Watermark mark) throws Exception {
    closed = mark.getTimestamp();
    Iterator<Map.Entry<Long, Window>> each = windows.entrySet().iterator();
    while (each.hasNext()) {
      Window window = each.next().getValue();
      if (window.begin + windowMs - 1 > closed) {
        break;
      }
      each.remove();
      latest = null;
      join(window);
    }
    super.processWatermark(mark);
    TaskOutputs.flush(getContainingTask());
  }

  private void join(Window window) {
    if (window.left.isEmpty() || window.right.isEmpty()) {
      return;
    }
    output.getValue().windowMs = window.begin;
    if (keys == 1) {
      for (SensorTuple left : window.left) {
        for (SensorTuple right : window.right) {
          emit(left, right);
        }
      }
      return;
    }
    // Right tuples in chains by key: chain[slot] is the first one's number, next[number] the next.
    int size = window.right.size();
    int slots = Integer.highestOneBit(size) << 1;
    int[] chain = new int[slots];
    int[] next = new int[size];
    Arrays.fill(chain, -1);
    for (int number = size - 1; number >= 0; number--) {
      int slot = slot(window.right.get(number).sequence % keys, slots);
      next[number] = chain[slot];
      chain[slot] = number;
    }
    for (SensorTuple left : window.left) {
      long key = left.sequence % keys;
      for (int number = chain[slot(key, slots)]; number >= 0; number = next[number]) {
        SensorTuple right = window.right.get(number);
        if (right.sequence % keys == key) {
          emit(left, right);
        }
      }
    }
  }

  private static int slot(long key, int slots) {
    return (int) key & (slots - 1);
  }

  private void emit(SensorTuple left, SensorTuple right) {
    JoinResult result = output.getValue();
    result.leftSource = left.source;
    result.rightSource = right.source;
    result.leftSequence = left.sequence;
    result.rightSequence = right.sequence;
    result.leftEmitUs = left.emitUs;
    result.rightEmitUs = right.emitUs;
    result.leftValue = left.value;
    result.rightValue = right.value;
    super.output.collect(output);
  }
}
