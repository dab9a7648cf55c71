import java.util.List;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.operators.SlotSharingGroup;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.BroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** Jobs as people write them, none of which knows of Nova; the first argument says which. */
public final class Strangers {
  private static final StreamExecutionEnvironment JOB =
      StreamExecutionEnvironment.getExecutionEnvironment();

  public static void main(String[] arguments) throws Exception {
    switch (arguments[0]) {
      case "odd":
        odd();
        break;
      case "sums":
        sums();
        break;
      case "united":
        united();
        break;
      case "sized":
        summed(
            SlotSharingGroup.newBuilder("big")
                .setCpuCores(1.5)
                .setTaskHeapMemoryMB(Integer.parseInt(arguments[1]))
                .setManagedMemory(MemorySize.ofMebiBytes(24))
                .build());
        break;
      case "by-hand":
        summed(
            SlotSharingGroup.newBuilder("at-hill")
                .setCpuCores(0.01)
                .setTaskHeapMemoryMB(1)
                .setExternalResource("node-hill", 1.0)
                .build());
        break;
      default:
        counted();
    }
    JOB.execute(arguments[0]);
  }

  private static DataStream<Long> numbers(String name, long count) {
    return JOB.fromSequence(1, count)
        .name(name)
        .map(
            number -> {
              Thread.sleep(5);
              return number;
            })
        .returns(Types.LONG)
        .name("parse, clean -> typed");
  }

  /** Names with brackets and commas. */
  private static void odd() {
    numbers("sensor readings (raw)", Integer.MAX_VALUE)
        .keyBy(number -> number % 3, Types.LONG)
        .reduce(Long::sum)
        .name("sum (per key)")
        .sinkTo(new DiscardingSink<>());
  }

  /** Keyed state with checkpoints, uids, and more than one subtask. */
  private static void sums() {
    JOB.enableCheckpointing(1000);
    numbers("numbers", Integer.MAX_VALUE)
        .map(number -> Tuple2.of(number % 5, number))
        .returns(Types.TUPLE(Types.LONG, Types.LONG))
        .keyBy(pair -> pair.f0, Types.LONG)
        .reduce((one, other) -> Tuple2.of(one.f0, one.f1 + other.f1))
        .name("sum")
        .uid("sum")
        .setParallelism(2)
        .sinkTo(new DiscardingSink<>())
        .uid("out");
  }

  /** Two sources as one stream, and rules that all of it gets. */
  private static void united() {
    MapStateDescriptor<String, Long> rules =
        new MapStateDescriptor<>("rules", Types.STRING, Types.LONG);
    numbers("north", Integer.MAX_VALUE)
        .union(numbers("south", Integer.MAX_VALUE))
        .connect(numbers("limits", Integer.MAX_VALUE).broadcast(rules))
        .process(
            new BroadcastProcessFunction<Long, Long, Long>() {
              @Override
              public void processElement(Long one, ReadOnlyContext context, Collector<Long> out) {
                out.collect(one);
              }

              @Override
              public void processBroadcastElement(Long one, Context to, Collector<Long> out)
                  throws Exception {
                to.getBroadcastState(rules).put("limit", one);
              }
            })
        .returns(Types.LONG)
        .name("limited")
        .sinkTo(new DiscardingSink<>());
  }

  /** An operator, and the sink behind it, whose author says what their slot must have. */
  private static void summed(SlotSharingGroup slot) {
    numbers("numbers", Integer.MAX_VALUE)
        .keyBy(number -> number % 3, Types.LONG)
        .reduce(Long::sum)
        .name("sum")
        .slotSharingGroup(slot)
        .sinkTo(new DiscardingSink<>());
  }

  /** A batch job with several stages. */
  private static void counted() {
    JOB.setRuntimeMode(RuntimeExecutionMode.BATCH);
    JOB.fromData(List.of("a", "b", "a"))
        .name("words")
        .map(word -> Tuple2.of(word, 1))
        .returns(Types.TUPLE(Types.STRING, Types.INT))
        .keyBy(pair -> pair.f0)
        .reduce((one, other) -> Tuple2.of(one.f0, one.f1 + other.f1))
        .name("count")
        .sinkTo(new DiscardingSink<>());
  }
}
