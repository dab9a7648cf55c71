package nova.storm;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.storm.generated.GlobalStreamId;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * An instance of a join: tuples of both inputs match when their event times lie in the same tumbling
 * window, which begins at multiples of its length since the epoch, and their sequence numbers are
 * equal modulo the number of keys, to a multiple of another number.
 *
 * <p>Storm's own JoinBolt stops looking through a window at the first tuple that is further ahead
 * than the lag it waits for in any case: it loses tuples of an input that is behind another. Here a
 * window ends when every input's mark has passed its end, and holds what is of it.
 */
public final class WindowJoin extends BaseRichBolt {
  private static final long serialVersionUID = 1L;
  private static final Logger LOG = LoggerFactory.getLogger(WindowJoin.class);

  private final int instance;
  private final Set<String> leftInputs;
  private final long windowMs;
  private final long keys;
  private final long every;

  private transient OutputCollector collector;
  private transient Map<Integer, Input> inputs;
  private transient TreeMap<Long, Window> windows;
  private transient long marked;
  private transient boolean works;

  /**
   * @param instance index into the plan's joins
   * @param leftInputs components of the left input; others are the right one's
   * @param windowMs length of the windows
   * @param keys modulus of sequence numbers
   * @param every of which what they are equal to has to be a multiple
   */
  public WindowJoin(int instance, List<String> leftInputs, long windowMs, long keys, long every) {
    this.instance = instance;
    this.leftInputs = new HashSet<>(leftInputs);
    this.windowMs = windowMs;
    this.keys = keys;
    this.every = every;
  }

  @Override
  public void prepare(
      Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
    this.collector = collector;
    works = Control.first(conf, context);
    inputs = new HashMap<>();
    windows = new TreeMap<>();
    marked = Long.MIN_VALUE;
    for (GlobalStreamId stream : context.getThisSources().keySet()) {
      String component = stream.get_componentId();
      for (int task : context.getComponentTasks(component)) {
        inputs.put(task, new Input(leftInputs.contains(component)));
      }
    }
  }

  @Override
  public void execute(Tuple tuple) {
    if (works) {
      take(tuple);
    }
    collector.ack(tuple);
  }

  private void take(Tuple tuple) {
    Input input = inputs.get(tuple.getSourceTask());
    long timeMs = tuple.getLong(2);
    if (Schema.isMark(tuple)) {
      input.mark = Math.max(input.mark, timeMs);
      advance();
    } else if (tuple.getLong(1) > input.last) {
      // What a source repeats that was started again has been here before.
      input.last = tuple.getLong(1);
      add(tuple, timeMs, input.left);
    }
  }

  private void add(Tuple tuple, long timeMs, boolean left) {
    if (timeMs <= marked) {
      LOG.error("Lost a tuple of source {}: its window has ended", tuple.getInteger(0));
      return;
    }
    long key = tuple.getLong(1) % keys;
    if (key % every != 0) {
      return;
    }
    long start = Math.floorDiv(timeMs, windowMs) * windowMs;
    Window window = windows.computeIfAbsent(start, any -> new Window());
    if (left) {
      window.left.add(tuple.getValues());
    } else {
      window.right.computeIfAbsent(key, each -> new ArrayList<>()).add(tuple.getValues());
    }
  }

  private void advance() {
    long reached = Schema.END;
    for (Input input : inputs.values()) {
      reached = Math.min(reached, input.mark);
    }
    if (reached <= marked) {
      return;
    }
    marked = reached;
    while (!windows.isEmpty() && windows.firstKey() + windowMs - 1 <= reached) {
      Map.Entry<Long, Window> ended = windows.pollFirstEntry();
      match(ended.getKey(), ended.getValue());
    }
    collector.emit(Schema.complete(reached));
  }

  private void match(long start, Window window) {
    for (List<Object> one : window.left) {
      List<List<Object>> found = window.right.get((Long) one.get(1) % keys);
      if (found == null) {
        continue;
      }
      for (List<Object> other : found) {
        collector.emit(
            new Values(
                instance,
                one.get(0),
                other.get(0),
                start,
                one.get(1),
                other.get(1),
                one.get(3),
                other.get(3),
                one.get(4),
                other.get(4)));
      }
    }
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    declarer.declare(Schema.RESULT);
  }

  private static final class Input {
    final boolean left;
    long last = -1;
    long mark = Long.MIN_VALUE;

    Input(boolean left) {
      this.left = left;
    }
  }

  private static final class Window {
    final List<List<Object>> left = new ArrayList<>();
    final Map<Long, List<List<Object>>> right = new HashMap<>();
  }
}
