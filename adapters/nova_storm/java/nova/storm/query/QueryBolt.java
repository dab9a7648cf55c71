package nova.storm.query;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Stream;
import nova.engines.RealClock;
import nova.engines.query.Cut;
import nova.engines.query.Program;
import nova.engines.query.Row;
import nova.engines.query.RowResults;
import nova.engines.query.Step;
import nova.engines.query.Windows;
import nova.storm.Control;
import org.apache.storm.generated.GlobalStreamId;
import org.apache.storm.shade.org.yaml.snakeyaml.LoaderOptions;
import org.apache.storm.shade.org.yaml.snakeyaml.Yaml;
import org.apache.storm.shade.org.yaml.snakeyaml.constructor.SafeConstructor;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Tuple;

/** An operator of a flow of queries, but for its sources. What it has gathered is in memory only. */
public final class QueryBolt extends BaseRichBolt {
  private static final long serialVersionUID = 1L;

  private final String operator;
  private final String path;

  private transient OutputCollector collector;
  private transient Map<Integer, Long> marks;
  private transient long reached;
  private transient Step step;
  private transient Windows<?> windows;
  private transient RowResults file;
  private transient boolean works;

  /**
   * @param operator as nova_engines.flow has it, in JSON
   * @param path of a sink's results; empty for others
   */
  public QueryBolt(String operator, String path) {
    this.operator = operator;
    this.path = path;
  }

  @Override
  public void prepare(
      Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
    this.collector = collector;
    works = Control.first(conf, context);
    if (!works) {
      return;
    }
    marks = new HashMap<>();
    reached = Long.MIN_VALUE;
    for (GlobalStreamId stream : context.getThisSources().keySet()) {
      for (int task : context.getComponentTasks(stream.get_componentId())) {
        marks.put(task, Long.MIN_VALUE);
      }
    }
    // JSON is YAML, which workers can read.
    Map<?, ?> told = new Yaml(new SafeConstructor(new LoaderOptions())).load(operator);
    Program[] programs =
        rows(told.get("programs"))
            .map(one -> new Program(strings(one)))
            .toArray(Program[]::new);
    switch ((String) told.get("kind")) {
      case "filter":
        step = new Step(programs[0], null, null);
        break;
      case "project":
        step = new Step(null, programs, null);
        break;
      case "cut":
      case "select":
        step = new Step(null, null, cut(told));
        break;
      case "relay":
        break;
      case "sink":
        file = open(context.getStormId(), strings(told.get("columns")), strings(told.get("types")));
        break;
      default:
        windows = windows(told, programs);
    }
  }

  private static Cut cut(Map<?, ?> told) {
    List<?>[] hot = rows(told.get("hot")).toArray(List<?>[]::new);
    return new Cut(
        ((Number) told.get("side")).intValue(),
        doubles(told.get("low")),
        doubles(told.get("high")),
        ints(told.get("hashed")),
        Stream.of(hot).map(one -> strings(one.get(0))).toArray(String[][]::new),
        doubles(Stream.of(hot).map(one -> one.get(1)).toList()),
        doubles(Stream.of(hot).map(one -> one.get(2)).toList()),
        Double.parseDouble(told.get("others").toString()));
  }

  private static Windows<?> windows(Map<?, ?> told, Program[] programs) {
    long[] window =
        rows(told.get("window")).mapToLong(one -> ((Number) one).longValue()).toArray();
    List<?> kept = (List<?>) told.get("kept");
    boolean join = told.get("kind").equals("join");
    int[][] columns = {ints(told.get("groups"))};
    if (join) {
      int[][] keys = rows(told.get("keys")).map(QueryBolt::ints).toArray(int[][]::new);
      columns = new int[2][keys.length];
      for (int i = 0; i < keys.length; i++) {
        columns[0][i] = keys[i][0];
        columns[1][i] = keys[i][1];
      }
    }
    return Windows.of(
        window,
        new boolean[] {(Boolean) kept.get(0), (Boolean) kept.get(1)},
        columns,
        programs,
        join ? null : strings(told.get("functions")),
        (Boolean) told.get("partial"));
  }

  private static Stream<?> rows(Object list) {
    return ((List<?>) list).stream();
  }

  private static String[] strings(Object list) {
    return rows(list).map(Object::toString).toArray(String[]::new);
  }

  private static int[] ints(Object list) {
    return rows(list).mapToInt(one -> ((Number) one).intValue()).toArray();
  }

  private static double[] doubles(Object list) {
    // To YAML a number like 1e-05 is text.
    return rows(list).mapToDouble(one -> Double.parseDouble(one.toString())).toArray();
  }

  private RowResults open(String job, String[] columns, String[] types) {
    try {
      return new RowResults(path, job, columns, types);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public void execute(Tuple tuple) {
    if (!works) {
      return;
    }
    try {
      Row row = (Row) tuple.getValue(0);
      if (row == null) {
        mark(tuple.getSourceTask(), tuple.getLong(1));
      } else if (file != null) {
        file.add(row, RealClock.nowUs());
      } else if (windows != null) {
        windows.add(row);
      } else {
        send(step == null ? row : step.of(row));
      }
    } catch (IOException error) {
      collector.reportError(error);
      throw new UncheckedIOException(error);
    }
    collector.ack(tuple);
  }

  private void mark(int task, long timeMs) throws IOException {
    marks.merge(task, timeMs, Math::max);
    long least = marks.values().stream().mapToLong(Long::longValue).min().getAsLong();
    if (least <= reached) {
      return;
    }
    reached = least;
    if (windows != null) {
      Consumer<Row> out = this::send;
      windows.reached(least, out);
    }
    if (file == null) {
      collector.emit(Rows.mark(least));
      return;
    }
    // As Flink tells it: at the end, all of all time.
    file.complete(least);
    if (least == Rows.END) {
      file.finish();
    }
  }

  private void send(Row row) {
    if (row != null) {
      collector.emit(Rows.values(row));
    }
  }

  @Override
  public void cleanup() {
    if (file != null) {
      try {
        file.close();
      } catch (IOException error) {
        collector.reportError(error);
      }
    }
  }

  @Override
  public void declareOutputFields(OutputFieldsDeclarer declarer) {
    declarer.declare(Rows.FIELDS);
  }
}
