import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.JoinFunction;
import org.apache.flink.api.common.operators.SlotSharingGroup;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;

/** Two streams of so many numbers are joined; with a second argument, where its author says. */
public final class Counted {
  private static final int PER_MS = 100;
  private static final Duration WINDOW = Duration.ofMillis(100);

  public static void main(String[] arguments) throws Exception {
    long count = Long.parseLong(arguments[0]);
    boolean byHand = arguments.length > 1;
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
    DataStream<Long> left = numbers(environment, count, "pressure", byHand ? "hill" : null);
    DataStream<Long> right = numbers(environment, count, "humidity", byHand ? "shore" : null);
    KeySelector<Long, Long> itself = number -> number;
    JoinFunction<Long, Long, Long> first = (one, other) -> one;
    SingleOutputStreamOperator<Long> joined =
        left.join(right)
            .where(itself, Types.LONG)
            .equalTo(itself, Types.LONG)
            .window(TumblingEventTimeWindows.of(WINDOW))
            .apply(first, Types.LONG);
    joined.name("join");
    if (byHand) {
      joined.slotSharingGroup(at("barn"));
    }
    var sink = joined.sinkTo(new DiscardingSink<>()).name("results");
    if (byHand) {
      sink.slotSharingGroup(at("hub"));
    }
    environment.execute("counted");
  }

  private static DataStream<Long> numbers(
      StreamExecutionEnvironment environment, long count, String name, String node) {
    var made =
        environment.fromSource(
            new NumberSequenceSource(0, count - 1),
            WatermarkStrategy.<Long>forMonotonousTimestamps()
                .withTimestampAssigner((number, none) -> number / PER_MS)
                // What one stream is ahead of the other is kept in a small heap.
                .withWatermarkAlignment("both", WINDOW.multipliedBy(2), WINDOW.dividedBy(2)),
            name);
    return node == null ? made : made.slotSharingGroup(at(node));
  }

  private static SlotSharingGroup at(String node) {
    return SlotSharingGroup.newBuilder("at-" + node)
        .setCpuCores(0.01)
        .setTaskHeapMemoryMB(1)
        .setExternalResource("node-" + node, 1.0)
        .build();
  }
}
