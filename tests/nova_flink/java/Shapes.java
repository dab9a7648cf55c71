import java.time.Duration;
import org.apache.flink.api.common.functions.JoinFunction;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.BroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.co.CoMapFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.windowing.assigners.TumblingProcessingTimeWindows;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.util.Collector;

/** Jobs as people write them; the first argument names one. */
public final class Shapes {
  private static final long FEW = 1000;
  private static final long ENDLESS = 1_000_000_000L;

  public static void main(String[] arguments) throws Exception {
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
    switch (arguments[0]) {
      case "kinds":
        kinds(environment);
        break;
      case "twins":
        numbers(environment, "Kafka Source")
            .union(numbers(environment, "Kafka Source"))
            .sinkTo(new DiscardingSink<>())
            .name("out");
        break;
      case "odd":
        odd(environment);
        break;
      case "fails":
        numbers(environment, "numbers")
            .map(number -> number / (number - 1))
            .returns(Types.LONG)
            .name("wrong")
            .sinkTo(new DiscardingSink<>())
            .name("out");
        break;
      case "set":
        set();
        return;
      default:
        table();
        return;
    }
    environment.execute(arguments[0]);
  }

  private static DataStream<Long> numbers(StreamExecutionEnvironment environment, String name) {
    return environment.fromSequence(1, FEW).name(name);
  }

  /** An operator of each kind with several inputs. */
  private static void kinds(StreamExecutionEnvironment environment) {
    DataStream<Long> fast =
        numbers(environment, "fast").filter(number -> number % 2 == 0).name("half");
    DataStream<Long> one = numbers(environment, "Kafka Source");
    DataStream<Long> other = numbers(environment, "Kafka Source");
    DataStream<Long> control = numbers(environment, "control");
    KeySelector<Long, Long> itself = number -> number;

    DataStream<Long> all =
        fast.union(one, other).keyBy(itself, Types.LONG).reduce(Long::sum).name("all");
    DataStream<Long> steered =
        all.connect(control)
            .map(
                new CoMapFunction<Long, Long, Long>() {
                  @Override
                  public Long map1(Long value) {
                    return value;
                  }

                  @Override
                  public Long map2(Long value) {
                    return value;
                  }
                })
            .name("steered");
    DataStream<Long> ruled =
        steered
            .connect(
                control.broadcast(new MapStateDescriptor<>("rules", Types.LONG, Types.LONG)))
            .process(
                new BroadcastProcessFunction<Long, Long, Long>() {
                  @Override
                  public void processElement(
                      Long value, ReadOnlyContext context, Collector<Long> out) {
                    out.collect(value);
                  }

                  @Override
                  public void processBroadcastElement(
                      Long value, Context context, Collector<Long> out) {}
                })
            .name("ruled");
    DataStream<Long> more =
        ruled
            .rebalance()
            .flatMap((Long value, Collector<Long> out) -> out.collect(value))
            .returns(Types.LONG)
            .name("more")
            .filter(number -> true)
            .name("fewer");
    JoinFunction<Long, Long, Long> left = (first, second) -> first;
    DataStream<Long> pairs =
        one.join(other)
            .where(itself, Types.LONG)
            .equalTo(itself, Types.LONG)
            .window(TumblingProcessingTimeWindows.of(Duration.ofMillis(100)))
            .apply(left, Types.LONG);
    more.union(pairs).sinkTo(new DiscardingSink<>()).name("out");
  }

  /** Names with signs that Flink itself uses, and two of one name in a row. */
  private static void odd(StreamExecutionEnvironment environment) {
    environment
        .fromSequence(1, ENDLESS)
        .name("sensor readings (raw)")
        .map(
            number -> {
              Thread.sleep(5);
              return number;
            })
        .returns(Types.LONG)
        .name("parse, clean -> typed")
        .keyBy(number -> number % 3, Types.LONG)
        .reduce(Long::sum)
        .name("sum (per key) [ümlaut], <all>")
        .map(number -> number)
        .returns(Types.LONG)
        .filter(number -> number % 2 == 0)
        .map(number -> number)
        .returns(Types.LONG)
        .sinkTo(new DiscardingSink<>())
        .name("drop");
  }

  private static void table() {
    tables()
        .executeSql("INSERT INTO sums SELECT MOD(n, 5), SUM(n) FROM numbers GROUP BY MOD(n, 5)");
  }

  /** Statements that have sums in common; two take them as they are. */
  private static void set() {
    TableEnvironment tables = tables();
    tables.executeSql("CREATE TABLE copies (k BIGINT, s BIGINT) WITH ('connector' = 'blackhole')");
    tables.executeSql("CREATE TABLE least (s BIGINT) WITH ('connector' = 'blackhole')");
    tables.executeSql(
        "CREATE VIEW totals AS SELECT MOD(n, 5) AS k, SUM(n) AS s FROM TABLE(TUMBLE("
            + "TABLE numbers, DESCRIPTOR(t), INTERVAL '1' SECOND)) "
            + "GROUP BY MOD(n, 5), window_start, window_end");
    tables
        .createStatementSet()
        .addInsertSql("INSERT INTO sums SELECT * FROM totals")
        .addInsertSql("INSERT INTO copies SELECT * FROM totals")
        .addInsertSql("INSERT INTO least SELECT MIN(s) FROM totals GROUP BY k")
        .execute();
  }

  private static TableEnvironment tables() {
    TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
    tables.executeSql(
        "CREATE TABLE numbers (n BIGINT, t AS PROCTIME()) WITH ('connector' = 'datagen')");
    tables.executeSql("CREATE TABLE sums (k BIGINT, s BIGINT) WITH ('connector' = 'blackhole')");
    return tables;
  }
}
